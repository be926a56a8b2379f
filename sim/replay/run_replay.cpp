#include "sim/replay/run_replay.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "costmodels/estimate/estimate.hpp"
#include "platforms/errors.hpp"
#include "sim/replay/children.hpp"
#include "sim/replay/replay.hpp"
#include "traces/span_family.hpp"

namespace orrery {
namespace {

bool is_idle(SpanKind kind) {
  const SpanFamily family = family_of(kind);
  return family == SpanFamily::exposed || family == SpanFamily::bubble;
}

// What a pass computes, without the collectives that are played.
Seconds work_of(Seconds whole, const std::vector<PlayedPiece>& pieces) {
  if (pieces.empty()) return whole;
  Seconds work;
  for (const PlayedPiece& piece : pieces) work += piece.compute + piece.beside;
  return work;
}

void compute_in_all(std::vector<PlayedPiece>& pieces, Seconds work) {
  const Seconds before = work_of(Seconds(0), pieces);
  if (before.value() <= 0) return;
  const double factor = work / before;
  for (PlayedPiece& piece : pieces) {
    piece.compute *= factor;
    piece.tensor *= factor;
    piece.beside *= factor;
  }
}

bool is_balanced(const std::vector<PartTimes>& parts) {
  const PartTimes& first = parts.front();
  return std::all_of(parts.begin(), parts.end(), [&](const PartTimes& part) {
    return work_of(part.forward, part.forward_pieces) == work_of(first.forward, first.forward_pieces) &&
           work_of(part.backward, part.backward_pieces) == work_of(first.backward, first.backward_pieces) &&
           part.weight_gradient == first.weight_gradient;
  });
}

bool is_balanced(const PricedPlan& plan) {
  return is_balanced(plan.parts) && std::all_of(plan.other_kinds.begin(), plan.other_kinds.end(),
                                                [](const auto& kind) { return is_balanced(kind.parts); });
}

void balance(std::vector<PartTimes>& parts) {
  PartTimes mean;
  const auto count = static_cast<double>(parts.size());
  for (const PartTimes& part : parts) {
    mean.forward += work_of(part.forward, part.forward_pieces) / count;
    mean.backward += work_of(part.backward, part.backward_pieces) / count;
    mean.weight_gradient += part.weight_gradient / count;
  }
  for (PartTimes& part : parts) {
    PartTimes even = mean;
    even.forward_pieces = std::move(part.forward_pieces);
    even.backward_pieces = std::move(part.backward_pieces);
    compute_in_all(even.forward_pieces, mean.forward);
    compute_in_all(even.backward_pieces, mean.backward);
    part = std::move(even);
  }
}

double iteration_in_child(const PricedPlan& plan, const PlanPrograms& programs, const Topology& topology,
                          const TrafficFlows& flows) {
  const auto task = [&] {
    const double time = steady_iteration(replay(plan, programs, topology, flows, {}).iteration_ends).value();
    return std::string(reinterpret_cast<const char*>(&time), sizeof time);
  };
  const std::string bytes = run_in_children({task}, 1).front();
  double time = 0;
  ORRERY_ENSURE(bytes.size() == sizeof time);
  std::memcpy(&time, bytes.data(), sizeof time);
  return time;
}

}  // namespace

PricedPlan balanced(PricedPlan plan) {
  balance(plan.parts);
  for (KindPrices& kind : plan.other_kinds) balance(kind.parts);
  return plan;
}

ReplayResult run_replay(const PricedPlan& plan, const Topology& topology, const ReplayChoices& choices) {
  const PlanPrograms programs = make_programs(plan);
  const TrafficFlows flows(plan, programs, topology, choices.folding);
  ReplayResult result;
  const Estimate estimated = estimate(plan, programs, topology, flows);
  result.estimate = estimated.iteration;
  std::optional<double> balanced_time;
  if (!is_balanced(plan)) balanced_time = iteration_in_child(balanced(plan), programs, topology, flows);
  Replay played = replay(plan, programs, topology, flows, {choices.link_bins, estimated.makespan});
  result.timeline = std::move(played.timeline);
  result.accounting = account(result.timeline);
  result.steady = played.iteration_ends.size() < 2
                      ? result.accounting
                      : account_steady(result.timeline, played.iteration_ends, played.second_starts);
  result.iteration = steady_iteration(played.iteration_ends);
  if (balanced_time) result.imbalance = result.iteration - Seconds(*balanced_time);
  for (const SpanKind kind : result.timeline.spans.kind) result.activities += is_idle(kind) ? 0 : 1;
  return result;
}

}  // namespace orrery
