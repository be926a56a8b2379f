#include "costmodels/plans/priced_plan.hpp"

#include <algorithm>
#include <cmath>

#include "strategies/iteration.hpp"

namespace orrery {
namespace {

TrafficShape traffic_shape(const PricedPlan& plan) {
  TrafficShape traffic;
  traffic.iterations = plan.iterations;
  const auto any = [&](Bytes PartReduction::*bytes) {
    return plan.replicas * plan.context > 1 &&
           std::any_of(plan.reductions.begin(), plan.reductions.end(),
                       [&](const PartReduction& part) { return (part.*bytes).value() > 0; });
  };
  traffic.gradients = any(&PartReduction::gradients);
  traffic.parameters = any(&PartReduction::gathered);
  traffic.overlap_grad_reduce = plan.overlap_grad_reduce;
  traffic.overlap_param_gather = plan.overlap_param_gather;
  traffic.embedding = plan.embedding_gradient.has_value();
  traffic.gradient_norm = plan.gradient_norm && plan.stages() > 1;
  traffic.optimizer = !plan.optimizer.empty();
  for (std::size_t part = 0; part < plan.reductions.size(); ++part) {
    int buckets = bucket_count(plan, plan.reductions[part]);
    if (!plan.expert_reductions.empty())
      buckets = std::max(buckets, bucket_count(plan, plan.expert_reductions[part]));
    traffic.buckets.push_back(buckets);
  }
  return traffic;
}

ScheduleTimes schedule_times(const PricedPlan& plan, int replica) {
  ScheduleTimes times;
  for (int p = 0; p < static_cast<int>(plan.parts.size()); ++p) {
    const PartTimes& part = plan.part_times(replica, p);
    times.parts.push_back({part.forward, part.backward, part.weight_gradient});
  }
  times.transfers = plan.transfers;
  times.transfers.resize(plan.parts.size() - 1);
  const bool one_after_another = plan.iterations > 1 && !plan.gradient_norm;
  times.goal = one_after_another ? ScheduleGoal::rank_span : ScheduleGoal::makespan;
  return times;
}

// SplitMix64 (Steele, Lea, Flood 2014): noise that depends on what it is for, not on the order it is asked
// in.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

double uniform(std::uint64_t bits) {
  return (static_cast<double>(bits >> 11U) + 0.5) * 0x1.0p-53;
}

// Box and Muller 1958.
double normal(std::uint64_t seed) {
  constexpr double kTwoPi = 6.283185307179586;
  return std::sqrt(-2 * std::log(uniform(mixed(seed)))) *
         std::cos(kTwoPi * uniform(mixed(seed ^ 0x5555555555555555U)));
}

}  // namespace

PlanPrograms make_programs(const PricedPlan& plan) {
  const TrafficShape traffic = traffic_shape(plan);
  PlanPrograms result;
  std::vector<std::pair<int, int>> made;  // microbatches of each program, and the kind it was built for
  for (int replica = 0; replica < plan.replicas; ++replica) {
    ScheduleShape shape = plan.schedule;
    if (!plan.replica_microbatches.empty()) {
      shape.microbatches = plan.replica_microbatches[static_cast<std::size_t>(replica)];
    }
    const bool timed = splits_backward(shape.kind) && !plan.kind_of_replica.empty();
    const int kind = timed ? plan.kind_of_replica[static_cast<std::size_t>(replica)] : 0;
    const auto known = std::find(made.begin(), made.end(), std::pair(shape.microbatches, kind));
    result.of_replica.push_back(static_cast<int>(known - made.begin()));
    if (known != made.end()) continue;
    made.emplace_back(shape.microbatches, kind);
    result.programs.push_back(with_traffic(
        plan.given_schedule ? *plan.given_schedule : make_schedule(shape, schedule_times(plan, replica)),
        traffic));
  }
  return result;
}

int bucket_count(const PricedPlan& plan, const PartReduction& reduction) {
  const bool in_buckets = plan.bucket.value() > 0 && (plan.overlap_grad_reduce || plan.overlap_param_gather);
  if (!in_buckets) return 1;
  return static_cast<int>(std::clamp(std::ceil(reduction.gradients / plan.bucket), 1.0, 1000.0));
}

int tensor_ways(const PricedPlan& plan, int stage) {
  return static_cast<int>(plan.lanes(0, stage).size()) / plan.context;
}

// Of one whole that is cut into T x T' pieces a lane of the first stage holds T' in a row, of the second T.
std::vector<LaneMessage> overlaps_of_lanes(const PricedPlan& plan, int first_stage, int second_stage) {
  const int first = tensor_ways(plan, first_stage), second = tensor_ways(plan, second_stage);
  std::vector<LaneMessage> overlaps;
  for (int context = 0; context < plan.context; ++context) {
    for (int from = 0; from < first; ++from) {
      for (int to = from * second / first; to < second && to * first < (from + 1) * second; ++to) {
        const int pieces =
            std::min((from + 1) * second, (to + 1) * first) - std::max(from * second, to * first);
        overlaps.push_back(
            {context * first + from, context * second + to, static_cast<double>(pieces) / second});
      }
    }
  }
  return overlaps;
}

std::vector<LaneMessage> lane_messages(const PricedPlan& plan, int boundary, bool gradient) {
  const int before = plan.rank_of_part(boundary), after = plan.rank_of_part(boundary + 1);
  std::vector<LaneMessage> messages;
  const BoundaryMessage& kind = plan.boundaries[static_cast<std::size_t>(boundary)];
  const bool whole_again = kind.in_shards && kind.whole_gradients && gradient;
  if (kind.in_shards && !whole_again) {
    messages = overlaps_of_lanes(plan, before, after);
    for (LaneMessage& message : messages) {
      if (gradient) std::swap(message.from, message.to);
    }
    return messages;
  }
  const int senders = tensor_ways(plan, gradient ? after : before);
  const int receivers = tensor_ways(plan, gradient ? before : after);
  for (int lane = 0; lane < plan.context * receivers; ++lane) {
    const int tensor_rank = lane % receivers * senders / receivers;
    messages.push_back(
        {lane / receivers * senders + tensor_rank, lane, whole_again ? double(receivers) : 1.0});
  }
  return messages;
}

std::vector<Seconds> transfer_times(const PricedPlan& plan, const Topology& topology) {
  std::vector<Seconds> times;
  for (std::size_t boundary = 0; boundary < plan.boundaries.size(); ++boundary) {
    const int from = plan.rank_of_part(static_cast<int>(boundary));
    const int to = plan.rank_of_part(static_cast<int>(boundary) + 1);
    std::vector<Flow> flows;
    const BoundaryMessage& message = plan.boundaries[boundary];
    for (const LaneMessage& lane : lane_messages(plan, static_cast<int>(boundary), false)) {
      if (from == to) break;
      flows.push_back(make_flow(topology, plan.lanes(0, from)[static_cast<std::size_t>(lane.from)],
                                plan.lanes(0, to)[static_cast<std::size_t>(lane.to)],
                                message.bytes * lane.share, message.efficiency));
    }
    times.push_back(flows.empty() ? Seconds(0) : together(topology, flows));
  }
  return times;
}

double duration_factor(const PricedPlan& plan, int rank, int iteration, std::size_t step) {
  double factor = 1.0;
  if (!plan.slowness.empty() && iteration >= plan.slow_from)
    factor = plan.slowness[static_cast<std::size_t>(rank)];
  if (plan.jitter > 0) {
    const std::uint64_t what =
        mixed(mixed(plan.seed) ^ static_cast<std::uint64_t>(rank)) ^ static_cast<std::uint64_t>(step);
    // The mean of the noise is 1.
    factor *= std::exp(plan.jitter * normal(what) - plan.jitter * plan.jitter / 2);
  }
  return factor;
}

}  // namespace orrery
