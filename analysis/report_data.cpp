#include "analysis/report_data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <tuple>

#include "analysis/json_builder.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

template <class Values>
void add_numbers(JsonBuilder& json, std::string_view key, const Values& values) {
  json.key(key).begin('[');
  for (const auto& value : values) json.value(static_cast<double>(value));
  json.end(']');
}

void add_pair(JsonBuilder& json, std::string_view name, std::string_view value) {
  json.begin('[').value(name).value(value).end(']');
}

void add_points(JsonBuilder& json, const std::vector<ReportPoint>& points) {
  std::vector<ParetoPoint> places;
  for (const ReportPoint& point : points) places.push_back(point.point);
  json.key("points").begin('[');
  for (const ReportPoint& point : points) {
    json.begin('{').key("label").value(point.label);
    json.key("hours").value(point.point.hours).key("dollars").value(point.point.dollars).end('}');
  }
  json.end(']');
  add_numbers(json, "front", pareto_front(places));
}

std::string four_digits(double number, const char* unit) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.4g%s", number, unit);
  return text.data();
}

void add_facts(JsonBuilder& json, const Trace& trace) {
  json.key("facts").begin('[');
  // Several iterations may have been played, of which one in the steady state counts.
  const Seconds played(trace.timeline.makespan);
  add_pair(json, "Iteration", to_text(trace.iteration));
  const std::string low = run_attribute(trace, "interval_low"), high = run_attribute(trace, "interval_high");
  if (!low.empty() && !high.empty()) {
    add_pair(json, "In nine runs of ten",
             to_text(parse_quantity<Seconds>(low, "interval_low")) + " to " +
                 to_text(parse_quantity<Seconds>(high, "interval_high")));
  }
  if (trace.iteration < 0.999 * played) add_pair(json, "Played below", to_text(played));
  add_pair(json, "Bubbles below", four_digits(100 * trace.accounting.bubble_fraction, " %"));
  if (trace.mfu) add_pair(json, "MFU", four_digits(100 * *trace.mfu, " %"));
  add_pair(json, "Ranks", std::to_string(trace.timeline.ranks.size()));
  if (const std::string chance = run_attribute(trace, "out_of_memory_chance"); !chance.empty())
    add_pair(json, "Out-of-memory chance", chance);
  if (trace.cost.gpu_hours) add_pair(json, "GPU-hours an iteration", four_digits(*trace.cost.gpu_hours, ""));
  const auto dollars = [&json](const char* name, const std::optional<Dollars>& amount) {
    if (amount) add_pair(json, name, to_text(*amount));
  };
  dollars("Cost of an iteration", trace.cost.per_iteration);
  dollars("Cost of a million tokens", trace.cost.per_million_tokens);
  dollars("Cost of the training", trace.cost.whole_run);
  json.end(']');
}

// Replicas may have unlike ones.
std::string gpus_of_stage(const Timeline& timeline, int stage) {
  std::vector<std::string> gpus;
  for (const RankInfo& rank : timeline.ranks) {
    if (rank.stage == stage && std::find(gpus.begin(), gpus.end(), rank.gpu) == gpus.end())
      gpus.push_back(rank.gpu);
  }
  return comma_list(gpus);
}

void add_stages(JsonBuilder& json, const Trace& trace) {
  json.key("stages").begin('[');
  for (const StageAccounting& stage : trace.accounting.stages) {
    const Accounting& mean = stage.mean;
    json.begin('{').key("stage").value(static_cast<double>(stage.stage));
    json.key("gpu").value(gpus_of_stage(trace.timeline, stage.stage));
    const std::array parts = {mean.compute,   mean.exposed_tp,    mean.exposed_p2p,   mean.exposed_dp,
                              mean.optimizer, mean.bubble_warmup, mean.bubble_steady, mean.bubble_drain};
    json.key("seconds").begin('[');
    for (const Seconds part : parts) json.value(part.value());
    json.end(']').end('}');
  }
  json.end(']');
}

void add_memory(JsonBuilder& json, const Trace& trace) {
  json.key("memory").begin('[');
  for (const MemoryRow& memory : trace.memory) {
    json.begin('{').key("stage").value(static_cast<double>(memory.stage));
    json.key("gpu").value(memory.gpu.empty() ? gpus_of_stage(trace.timeline, memory.stage) : memory.gpu);
    json.key("verdict").value(memory.verdict);
    json.key("capacity").value(memory.capacity ? to_gibibytes(*memory.capacity) : std::nan(""));
    const std::array parts = {memory.weights, memory.gradients,     memory.optimizer, memory.activations_peak,
                              memory.logits,  memory.communication, memory.reserve};
    json.key("gibibytes").begin('[');
    for (const Bytes part : parts) json.value(to_gibibytes(part));
    json.end(']').end('}');
  }
  json.end(']');
}

// Every rank of the first replica, for bubbles show between its stages; more replicas by whole ranks, as long
// as all spans fit under the cap.
std::vector<std::size_t> drawn_ranks(const Timeline& timeline) {
  std::vector<std::size_t> spans_of_rank(timeline.ranks.size());
  for (const std::int32_t rank : timeline.spans.rank) ++spans_of_rank[static_cast<std::size_t>(rank)];
  std::vector<std::size_t> order(timeline.ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const RankInfo &first = timeline.ranks[a], &second = timeline.ranks[b];
    return std::tie(first.replica, first.stage, a) < std::tie(second.replica, second.stage, b);
  });
  const auto is_of_first = [&](std::size_t rank) {
    return timeline.ranks[rank].replica == timeline.ranks[order.front()].replica;
  };
  std::size_t total = 0, count = 0;
  while (count < order.size() &&
         (is_of_first(order[count]) || total + spans_of_rank[order[count]] <= kMostDrawnSpans)) {
    total += spans_of_rank[order[count++]];
  }
  order.resize(count);
  return order;
}

void add_rank_names(JsonBuilder& json, const Timeline& timeline, const std::vector<std::size_t>& ranks) {
  json.key("rows").begin('[');
  for (const std::size_t rank : ranks) {
    const RankInfo& info = timeline.ranks[rank];
    json.value("stage " + std::to_string(info.stage) + " · replica " + std::to_string(info.replica));
  }
  json.end(']');
}

// Until when, in seconds, as many of these spans start as fit under the cap.
double fits_until(const Spans& spans, const std::vector<std::size_t>& wanted) {
  std::vector<double> starts;
  for (const std::size_t i : wanted) starts.push_back(spans.start[i]);
  const auto first_left_out = starts.begin() + static_cast<std::ptrdiff_t>(kMostDrawnSpans);
  std::nth_element(starts.begin(), first_left_out, starts.end());
  return *first_left_out;
}

// Columns of the drawn spans: row, kind, stream, microbatch, start and end in whole nanoseconds.
void add_spans(JsonBuilder& json, const Timeline& timeline) {
  const std::vector<std::size_t> ranks = drawn_ranks(timeline);
  std::vector<std::size_t> row_of_rank(timeline.ranks.size(), ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) row_of_rank[ranks[i]] = i;
  std::vector<std::size_t> drawn;
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    if (row_of_rank[static_cast<std::size_t>(timeline.spans.rank[i])] < ranks.size()) drawn.push_back(i);
  }
  add_rank_names(json, timeline, ranks);
  double until = timeline.makespan;
  if (drawn.size() > kMostDrawnSpans) {
    until = fits_until(timeline.spans, drawn);
    std::erase_if(drawn, [&](std::size_t i) { return timeline.spans.start[i] >= until; });
  }
  json.key("drawn_until").value(until);
  json.key("total_ranks").value(static_cast<double>(timeline.ranks.size()));
  json.key("total_spans").value(static_cast<double>(timeline.spans.size()));
  json.key("spans").begin('{');
  const auto column = [&](std::string_view name, const auto& cell) {
    json.key(name).begin('[');
    for (const std::size_t i : drawn) json.value(static_cast<double>(cell(i)));
    json.end(']');
  };
  const Spans& spans = timeline.spans;
  column("row", [&](std::size_t i) { return row_of_rank[static_cast<std::size_t>(spans.rank[i])]; });
  column("kind", [&](std::size_t i) { return static_cast<int>(spans.kind[i]); });
  column("stream", [&](std::size_t i) { return static_cast<int>(spans.stream[i]); });
  column("microbatch", [&](std::size_t i) { return spans.microbatch[i]; });
  column("start", [&](std::size_t i) { return std::llround(spans.start[i] * 1e9); });
  column("end", [&](std::size_t i) { return std::llround(spans.end[i] * 1e9); });
  json.end('}');
}

void add_links(JsonBuilder& json, const Timeline& timeline) {
  std::vector<std::pair<double, std::size_t>> order;  // busiest first
  for (std::size_t i = 0; i < timeline.links.size(); ++i) {
    const auto& bins = timeline.links[i].bin_bytes;
    const double carried = std::accumulate(bins.begin(), bins.end(), 0.0);
    order.emplace_back(-carried / timeline.links[i].bandwidth, i);
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), kMostDrawnLinks));
  json.key("total_links").value(static_cast<double>(timeline.links.size()));
  json.key("link_bin").value(timeline.link_bin);
  json.key("links").begin('[');
  for (const auto& entry : order) {
    const LinkUse& link = timeline.links[entry.second];
    json.begin('{').key("name").value(link.name).key("bandwidth").value(link.bandwidth);
    add_numbers(json, "bytes", link.bin_bytes);
    json.end('}');
  }
  json.end(']');
}

void add_trace(JsonBuilder& json, const ReportTrace& entry) {
  const Trace& trace = entry.trace;
  json.begin('{').key("title").value(entry.title).key("makespan").value(trace.timeline.makespan);
  add_facts(json, trace);
  json.key("attributes").begin('[');
  for (const RunAttribute& attribute : trace.run) add_pair(json, attribute.name, attribute.value);
  json.end(']');
  add_stages(json, trace);
  add_memory(json, trace);
  add_spans(json, trace.timeline);
  add_links(json, trace.timeline);
  json.end('}');
}

}  // namespace

std::string report_json(const ReportInput& input) {
  JsonBuilder json;
  json.begin('{');
  add_points(json, input.points);
  json.key("kinds").begin('[');
  for (int kind = 0; kind < kSpanKinds; ++kind) json.value(to_text(static_cast<SpanKind>(kind)));
  json.end(']').key("traces").begin('[');
  for (const ReportTrace& trace : input.traces) add_trace(json, trace);
  json.end(']').end('}');
  return json.finish();
}

}  // namespace orrery
