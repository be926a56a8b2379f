#include "traces/accounting.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr double kRelativeTolerance = 1e-9;

constexpr std::array kColumns = {
    &Accounting::compute,   &Accounting::exposed_tp,    &Accounting::exposed_p2p,   &Accounting::exposed_dp,
    &Accounting::optimizer, &Accounting::bubble_warmup, &Accounting::bubble_steady, &Accounting::bubble_drain,
};

[[noreturn]] void fail(std::size_t rank, const std::string& what, double seconds) {
  char text[160];
  std::snprintf(text, sizeof text, "accounting: rank %zu: %s (%.9g s)", rank, what.c_str(), seconds);
  throw Defect(text);
}

void add(Accounting& sum, const SpanRow& span) {
  const Seconds length(span.end - span.start);
  const Seconds communication(span.tensor_communication);
  switch (span.kind) {
    case SpanKind::forward:
    case SpanKind::backward:
    case SpanKind::weight_gradient:
      sum.compute += length - communication;
      sum.exposed_tp += communication;
      return;
    case SpanKind::optimizer:
      sum.optimizer += length;
      return;
    case SpanKind::exposed_tp:
      sum.exposed_tp += length;
      return;
    case SpanKind::exposed_p2p:
      sum.exposed_p2p += length;
      return;
    case SpanKind::exposed_dp:
      sum.exposed_dp += length;
      return;
    case SpanKind::bubble_warmup:
      sum.bubble_warmup += length;
      return;
    case SpanKind::bubble_steady:
      sum.bubble_steady += length;
      return;
    case SpanKind::bubble_drain:
      sum.bubble_drain += length;
      return;
    case SpanKind::send:
    case SpanKind::all_reduce:
    case SpanKind::reduce_scatter:
    case SpanKind::all_gather:
    case SpanKind::tensor_collective:
    case SpanKind::context_exchange:
    case SpanKind::expert_exchange:
      break;
  }
  throw Defect("accounting: a network span in the compute stream of rank " + std::to_string(span.rank));
}

// A NaN anywhere fails each of these comparisons, hence their negated form.
void check_span(const SpanRow& span, double previous_end, double tolerance) {
  const auto rank = static_cast<std::size_t>(span.rank);
  const double gap = span.start - previous_end;
  if (gap > tolerance) fail(rank, "gap before a " + std::string(to_text(span.kind)) + " span", gap);
  if (!(gap >= -tolerance)) fail(rank, "overlap with a " + std::string(to_text(span.kind)) + " span", -gap);
  const double length = span.end - span.start;
  if (!(length >= 0)) fail(rank, "span of negative length", length);
  const double communication = span.tensor_communication;
  if (!(communication >= 0 && communication <= length + tolerance)) {
    fail(rank, "tensor communication outside its span", communication - length);
  }
}

void check_total(std::size_t rank, const Accounting& sum, const Timeline& timeline) {
  const double difference = sum.total().value() - timeline.makespan;
  if (!(std::abs(difference) <= kRelativeTolerance * timeline.makespan)) {
    fail(rank, "spans differ from the makespan", difference);
  }
}

std::vector<StageAccounting> by_stage(const Timeline& timeline, const std::vector<Accounting>& ranks) {
  std::map<int, StageAccounting> stages;
  std::map<int, int> counts;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const int stage = timeline.ranks[rank].stage;
    StageAccounting& entry = stages[stage];
    entry.stage = stage;
    ++counts[stage];
    for (const auto column : kColumns) {
      entry.mean.*column += ranks[rank].*column;
      entry.maximum.*column = std::max(entry.maximum.*column, ranks[rank].*column);
    }
  }
  std::vector<StageAccounting> result;
  for (auto& [stage, entry] : stages) {
    for (const auto column : kColumns) entry.mean.*column = entry.mean.*column / counts[stage];
    result.push_back(entry);
  }
  return result;
}

// What each rank computed from a time of its own on, for as long as the others; that time is then 0.
Timeline windows(const Timeline& whole, const std::vector<double>& starts, double length_each) {
  Timeline part;
  part.makespan = length_each;
  part.ranks = whole.ranks;
  for (std::size_t i = 0; i < whole.spans.size(); ++i) {
    SpanRow span = row(whole.spans, i);
    const double from = starts[static_cast<std::size_t>(span.rank)], to = from + length_each;
    if (span.stream != Stream::compute || span.end <= from || span.start >= to) continue;
    const double length = span.end - span.start;
    span.start = std::max(span.start, from) - from;
    span.end = std::min(span.end, to) - from;
    if (length > 0) span.tensor_communication *= (span.end - span.start) / length;
    append(part.spans, span);
  }
  return part;
}

void divide(Accounting& accounting, double shares) {
  for (const auto column : kColumns) accounting.*column = accounting.*column / shares;
}

}  // namespace

RunAccounting account(const Timeline& timeline) {
  RunAccounting result;
  result.makespan = Seconds(timeline.makespan);
  result.ranks.resize(timeline.ranks.size());
  std::vector<double> ends(timeline.ranks.size(), 0.0);
  const double tolerance = kRelativeTolerance * timeline.makespan;
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    if (timeline.spans.stream[i] != Stream::compute) continue;
    const SpanRow span = row(timeline.spans, i);
    const auto rank = static_cast<std::size_t>(span.rank);
    ORRERY_ENSURE(rank < ends.size());
    check_span(span, ends[rank], tolerance);
    add(result.ranks[rank], span);
    ends[rank] = span.end;
  }
  Seconds bubbles;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    check_total(rank, result.ranks[rank], timeline);
    bubbles += result.ranks[rank].bubble();
  }
  result.stages = by_stage(timeline, result.ranks);
  const double available = timeline.makespan * static_cast<double>(ends.size());
  if (available > 0) result.bubble_fraction = bubbles.value() / available;
  return result;
}

RunAccounting account_steady(const Timeline& timeline, const std::vector<double>& iteration_ends,
                             std::vector<double> second_starts) {
  if (iteration_ends.size() < 2) return account(timeline);
  const double first_end = iteration_ends.front();
  for (double& start : second_starts) start = std::min(start, first_end);
  RunAccounting result = account(windows(timeline, second_starts, iteration_ends.back() - first_end));
  const auto iterations = static_cast<double>(iteration_ends.size() - 1);
  result.makespan = result.makespan / iterations;
  for (Accounting& rank : result.ranks) divide(rank, iterations);
  for (StageAccounting& stage : result.stages) {
    divide(stage.mean, iterations);
    divide(stage.maximum, iterations);
  }
  return result;
}

}  // namespace orrery
