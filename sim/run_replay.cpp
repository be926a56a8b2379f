#include "sim/run_replay.hpp"

#include <cstring>
#include <optional>

#include "costmodels/estimate.hpp"
#include "platforms/errors.hpp"
#include "sim/children.hpp"
#include "sim/replay.hpp"

namespace orrery {
namespace {

bool is_idle(SpanKind kind) {
  switch (kind) {
    case SpanKind::exposed_p2p:
    case SpanKind::exposed_dp:
    case SpanKind::bubble_warmup:
    case SpanKind::bubble_steady:
    case SpanKind::bubble_drain: return true;
    case SpanKind::forward:
    case SpanKind::backward:
    case SpanKind::weight_gradient:
    case SpanKind::optimizer:
    case SpanKind::send:
    case SpanKind::all_reduce:
    case SpanKind::reduce_scatter:
    case SpanKind::all_gather: break;
  }
  return false;
}

bool is_balanced(const PricedPlan& plan) {
  for (const PartTimes& part : plan.parts) {
    if (part.forward != plan.parts.front().forward || part.backward != plan.parts.front().backward) return false;
  }
  return true;
}

double makespan_in_child(const PricedPlan& plan, const Schedule& schedule, const Topology& topology) {
  const auto task = [&] {
    const double makespan = replay(plan, schedule, topology, {}).makespan;
    return std::string(reinterpret_cast<const char*>(&makespan), sizeof makespan);
  };
  const std::string bytes = run_in_children({task}, 1).front();
  double makespan = 0;
  ORRERY_ENSURE(bytes.size() == sizeof makespan);
  std::memcpy(&makespan, bytes.data(), sizeof makespan);
  return makespan;
}

}  // namespace

PricedPlan balanced(PricedPlan plan) {
  PartTimes mean;
  const auto count = static_cast<double>(plan.parts.size());
  for (const PartTimes& part : plan.parts) {
    mean.forward += part.forward / count;
    mean.backward += part.backward / count;
    mean.weight_gradient += part.weight_gradient / count;
  }
  plan.parts.assign(plan.parts.size(), mean);
  return plan;
}

ReplayResult run_replay(const PricedPlan& plan, const Topology& topology, int link_bins) {
  const Schedule schedule = make_schedule(plan.schedule);
  ReplayResult result;
  result.estimate = estimate_iteration(plan, schedule, topology);
  std::optional<double> balanced_makespan;
  if (!is_balanced(plan)) balanced_makespan = makespan_in_child(balanced(plan), schedule, topology);
  result.timeline = replay(plan, schedule, topology, {link_bins, result.estimate});
  result.accounting = account(result.timeline);
  if (balanced_makespan) result.imbalance = Seconds(result.timeline.makespan - *balanced_makespan);
  for (const SpanKind kind : result.timeline.spans.kind) result.activities += is_idle(kind) ? 0 : 1;
  return result;
}

}  // namespace orrery
