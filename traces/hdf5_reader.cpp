#include <algorithm>
#include <cmath>
#include <map>

#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"
#include "traces/hdf5_schema.hpp"
#include "traces/hdf5_seal.hpp"
#include "traces/trial.hpp"

namespace orrery {
namespace {

// Columns of one table have one length: the first one decides.
template <class Rows, class Access>
void read_member(Hdf5Reader& reader, const std::string& path, Rows& rows, const Access& access) {
  using Cell = decltype(to_cell(access(rows.front())));
  const std::vector<Cell> cells = reader.column<Cell>(path);
  if (rows.empty()) rows.resize(cells.size());
  if (rows.size() != cells.size()) {
    reader.fail(path, std::to_string(cells.size()) + " rows", std::to_string(rows.size()) + " rows");
  }
  for (std::size_t i = 0; i < cells.size(); ++i) from_cell(cells[i], access(rows[i]));
}

// For each number of the file what it is here, by name: another version may number its kinds differently.
template <class Enum>
std::vector<Enum> meanings(Hdf5Reader& reader, const std::string& path, int count) {
  std::vector<Enum> result;
  for (const std::string& name : reader.column<std::string>(path)) {
    int value = 0;
    while (value < count && to_text(static_cast<Enum>(value)) != name) ++value;
    if (value == count) reader.fail(path, "'" + name + "'", "a name of format version 1");
    result.push_back(static_cast<Enum>(value));
  }
  return result;
}

template <class Enum>
std::vector<Enum> read_enum(Hdf5Reader& reader, const std::string& path, const std::vector<Enum>& meaning) {
  std::vector<Enum> result;
  const std::vector<std::uint8_t> numbers = reader.column<std::uint8_t>(path);
  result.reserve(numbers.size());
  for (const std::uint8_t number : numbers) {
    if (number >= meaning.size())
      reader.fail(path, std::to_string(number), "an index into the names beside it");
    result.push_back(meaning[number]);
  }
  return result;
}

void check_spans(const Hdf5Reader& reader, const Timeline& timeline) {
  const Spans& spans = timeline.spans;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const std::string row = ", row " + std::to_string(i);
    if (spans.rank[i] < 0 || static_cast<std::size_t>(spans.rank[i]) >= timeline.ranks.size()) {
      reader.fail("/ops/rank" + row, std::to_string(spans.rank[i]), "an index into /ranks");
    }
    const bool ordered =
        std::isfinite(spans.start[i]) && std::isfinite(spans.end[i]) && spans.end[i] >= spans.start[i];
    if (!ordered) reader.fail("/ops/end" + row, "no time at or after /ops/start", "a span of time");
  }
}

Spans read_spans(Hdf5Reader& reader) {
  Spans spans;
  spans.kind = read_enum(reader, "/ops/kind", meanings<SpanKind>(reader, "/ops/kinds", kSpanKinds));
  spans.stream = read_enum(reader, "/ops/stream", meanings<Stream>(reader, "/ops/streams", kStreams));
  visit_spans(spans, [&](const char* path, auto& cells, ColumnLabel) {
    using Cell = typename std::decay_t<decltype(cells)>::value_type;
    if constexpr (!std::is_enum_v<Cell>) cells = reader.column<Cell>(path);
    if (cells.size() != spans.kind.size()) {
      reader.fail(path, std::to_string(cells.size()) + " rows", std::to_string(spans.kind.size()) + " rows");
    }
  });
  return spans;
}

void read_link_usage(Hdf5Reader& reader, Timeline& timeline) {
  timeline.link_bin = reader.number_attribute("/link_usage", "bin_width_s");
  const Hdf5Matrix usage = reader.matrix("/link_usage");
  // A trace without links has a matrix without columns, and its rows cannot be counted.
  if (usage.rows != timeline.links.size() && usage.columns != 0) {
    reader.fail("/link_usage", std::to_string(usage.rows) + " rows", "one row for each link");
  }
  for (std::size_t i = 0; i < usage.rows && usage.columns != 0; ++i) {
    const auto begin = usage.values.begin() + static_cast<std::ptrdiff_t>(i * usage.columns);
    timeline.links[i].bin_bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(usage.columns));
  }
}

std::vector<RunAttribute> read_run(Hdf5Reader& reader) {
  std::vector<RunAttribute> run;
  std::string version = "no format version";
  for (auto& [name, value] : reader.text_attributes("/run")) {
    if (name == "format_version") {
      version = value;
    } else {
      run.push_back({std::move(name), std::move(value)});
    }
  }
  if (version != kTraceFormatVersion) {
    reader.fail("/run attribute format_version", version, "1; a newer orrery reads other versions");
  }
  return run;
}

MemoryCurve read_curve(Hdf5Reader& reader) {
  MemoryCurve curve;
  visit_curve(curve, [&](const char* path, auto& cells, ColumnLabel) {
    cells = reader.column<typename std::decay_t<decltype(cells)>::value_type>(path);
    if (cells.size() != curve.stage.size())
      reader.fail(path, "another number of rows", "that of the stage column");
  });
  return curve;
}

Seconds read_iteration(Hdf5Reader& reader, const Trace& trace) {
  if (reader.has(kIteration)) return Seconds(reader.scalar(kIteration));
  const std::string text = run_attribute(trace, "iteration");
  return text.empty() ? Seconds(trace.timeline.makespan) : parse_quantity<Seconds>(text, kIteration);
}

// Of a file in memory, without its seal.
Trace trace_of(const std::string& file, const std::string& path) {
  Hdf5Reader reader(file, path);
  const auto column = [&](const std::string& name, auto& rows, const auto& access, ColumnLabel) {
    read_member(reader, name, rows, access);
  };
  Trace trace;
  trace.run = read_run(reader);
  trace.timeline.makespan = reader.scalar("/run/makespan");
  trace.iteration = read_iteration(reader, trace);
  trace.accounting.makespan = Seconds(trace.timeline.makespan);
  trace.accounting.bubble_fraction = reader.scalar("/run/bubble_fraction");
  visit_utilisation(trace, [&](const char* name, auto& member, ColumnLabel) {
    if (reader.has(name)) from_cell(reader.scalar(name), member);
  });
  visit_ranks(trace.timeline.ranks, column);
  trace.accounting.ranks.resize(trace.timeline.ranks.size());
  visit_rank_accounting(trace.accounting.ranks, column);
  if (trace.accounting.ranks.size() != trace.timeline.ranks.size()) {
    reader.fail("/ranks", "columns of different lengths", "one row a rank in each");
  }
  trace.timeline.spans = read_spans(reader);
  check_spans(reader, trace.timeline);
  visit_links(trace.timeline.links, column);
  read_link_usage(reader, trace.timeline);
  visit_stages(trace.accounting.stages, column);
  visit_memory(trace.memory, column);
  if (reader.has(kMemoryKind)) visit_memory_verdicts(trace.memory, column);
  trace.activations = read_curve(reader);
  visit_cost(trace.cost,
             [&](const char* name, auto& member, ColumnLabel) { from_cell(reader.scalar(name), member); });
  return trace;
}

}  // namespace

// HDF5 follows whatever pointers a damaged file holds, in circles too, and only a seal tells damage before it
// does.
Trace read_trace(const std::string& path) {
  constexpr std::size_t kSeconds = 2, kBytesASecond = 1'000'000;  // ten times what a whole file takes
  std::string file = read_text_file(path);
  const bool sealed = unseal(file, path);
  const auto seconds = static_cast<unsigned>(kSeconds + file.size() / kBytesASecond);
  if (!sealed && !ends_within(seconds, [&] { trace_of(file, path); }))
    throw InputError(path, "a damaged file, which the HDF5 library cannot get through", "an undamaged trace");
  return trace_of(file, path);
}

}  // namespace orrery
