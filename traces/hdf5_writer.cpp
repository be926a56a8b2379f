#include "platforms/errors.hpp"
#include "traces/hdf5_schema.hpp"
#include "traces/hdf5_seal.hpp"
#include "traces/output_file.hpp"

namespace orrery {
namespace {

template <class Rows, class Access>
void write_member(Hdf5Builder& builder, const std::string& path, const Rows& rows, const Access& access,
                  ColumnLabel label) {
  using Cell = decltype(to_cell(access(rows.front())));
  std::vector<Cell> cells;
  cells.reserve(rows.size());
  for (const auto& row : rows) cells.push_back(to_cell(access(row)));
  builder.column(path, cells, label);
}

template <class T>
std::vector<std::string> names_of(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(to_text(static_cast<T>(i)));
  return names;
}

void write_run(Hdf5Builder& builder, const Trace& trace) {
  builder.group("/run", "");  // its attributes are the trace's own
  builder.attribute("/run", "format_version", kTraceFormatVersion);
  for (const RunAttribute& attribute : trace.run) builder.attribute("/run", attribute.name, attribute.value);
  builder.scalar(kIteration, trace.iteration.value(), {"s", "one iteration in the steady state"});
  builder.scalar("/run/makespan", trace.timeline.makespan, {"s", "of all iterations played"});
  builder.scalar("/run/bubble_fraction", trace.accounting.bubble_fraction,
                 {"1", "sum of bubbles over ranks / (ranks x makespan), of all iterations played"});
  visit_utilisation(trace, [&](const char* name, const auto& member, ColumnLabel label) {
    builder.scalar(name, to_cell(member), label);
  });
}

void write_spans(Hdf5Builder& builder, const Spans& spans) {
  builder.group("/ops", "Spans of time, one a row");
  visit_spans(spans, [&](const char* path, const auto& cells, ColumnLabel label) {
    if constexpr (std::is_enum_v<typename std::decay_t<decltype(cells)>::value_type>) {
      std::vector<std::uint8_t> numbers;
      numbers.reserve(cells.size());
      for (const auto cell : cells) numbers.push_back(static_cast<std::uint8_t>(cell));
      builder.column(path, numbers, label);
    } else {
      builder.column(path, cells, label);
    }
  });
  builder.column("/ops/kinds", names_of<SpanKind>(kSpanKinds), {"", "names of /ops/kind"});
  builder.column("/ops/streams", names_of<Stream>(kStreams), {"", "names of /ops/stream"});
}

void write_links(Hdf5Builder& builder, const Timeline& timeline) {
  std::vector<double> usage;
  const std::size_t bins = timeline.links.empty() ? 0 : timeline.links.front().bin_bytes.size();
  for (const LinkUse& link : timeline.links) {
    ORRERY_ENSURE(link.bin_bytes.size() == bins);
    usage.insert(usage.end(), link.bin_bytes.begin(), link.bin_bytes.end());
  }
  builder.matrix("/link_usage", usage, bins,
                 {"B", "carried by each link (row of /links) in each bin of time"});
  builder.attribute("/link_usage", "bin_width_s", timeline.link_bin);
}

}  // namespace

void write_trace(const std::string& path, const Trace& trace) {
  ORRERY_ENSURE(trace.accounting.ranks.size() == trace.timeline.ranks.size());
  Hdf5Builder builder;
  const auto column = [&](const std::string& name, const auto& rows, const auto& access, ColumnLabel label) {
    write_member(builder, name, rows, access, label);
  };
  write_run(builder, trace);
  builder.group("/ranks", "One stage of one replica a row, with its accounting");
  visit_ranks(trace.timeline.ranks, column);
  visit_rank_accounting(trace.accounting.ranks, column);
  write_spans(builder, trace.timeline.spans);
  builder.group("/links", "Links that carried something");
  visit_links(trace.timeline.links, column);
  write_links(builder, trace.timeline);
  builder.group(
      "/stages",
      "Accounting of each stage over its ranks, of all iterations played; the mean_ columns add up to "
      "the makespan");
  visit_stages(trace.accounting.stages, column);
  builder.group("/memory", "Bytes one GPU of a stage holds");
  visit_memory(trace.memory, column);
  visit_memory_verdicts(trace.memory, column);
  builder.group("/memory/curve", "Live activations over time");
  visit_curve(trace.activations, [&](const char* name, const auto& cells, ColumnLabel label) {
    builder.column(name, cells, label);
  });
  builder.group("/cost", "Money and GPU-hours");
  visit_cost(trace.cost, [&](const char* name, const auto& member, ColumnLabel label) {
    builder.scalar(name, to_cell(member), label);
  });
  std::string file = builder.finish();
  seal(file);
  write_file(path, file);
}

}  // namespace orrery
