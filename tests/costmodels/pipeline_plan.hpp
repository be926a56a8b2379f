// A schedule alone as a plan: one replica, one GPU a node, messages that take exactly the times given.
#pragma once

#include <algorithm>
#include <cmath>

#include "costmodels/estimate/estimate.hpp"
#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"
#include "tests/strategies/schedule_player.hpp"

namespace orrery::test {

// A power of two so large that transfers in seconds become whole bytes without rounding; at least one byte is
// sent, which takes 2^-100 s.
inline constexpr double kWideLink = 0x1.0p100;  // B/s

inline PricedPlan pipeline_plan(const ScheduleShape& shape, const PlayTimes& times) {
  PricedPlan plan;
  plan.schedule = shape;
  plan.parts.resize(times.forward.size());
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    plan.parts[i].forward = Seconds(times.forward[i]);
    plan.parts[i].backward = Seconds(times.backward[i]);
  }
  for (const double transfer : times.transfer) plan.boundaries.push_back({Bytes(transfer * kWideLink), {}});
  for (int rank = 0; rank < shape.ranks; ++rank) plan.gpus.push_back({rank});
  return plan;
}

inline PricedPlan pipeline_plan(const Schedule& schedule, const PlayTimes& times) {
  PricedPlan plan = pipeline_plan(schedule.shape, times);
  plan.given_schedule = schedule;
  return plan;
}

inline Topology pipeline_topology(int ranks) {
  NodeGroup group;
  group.name = "g";
  group.count = {ranks, ranks};
  group.gpus_per_node = 1;
  group.gpu_link = group.nic = {BytesPerSecond(kWideLink), Seconds(0)};
  ClusterSpec cluster;
  cluster.groups = {group};
  cluster.contention = Contention::ideal;
  return {cluster, {ranks}};
}

inline double pipeline_makespan(const PricedPlan& plan) {
  const Topology topology = pipeline_topology(plan.stages());
  const PlanPrograms programs = make_programs(plan);
  return estimate(plan, programs, topology, TrafficFlows(plan, programs, topology, Folding::on))
      .makespan.value();
}

// When each rank is done: an optimizer step longer than all else makes each in turn the last.
inline std::vector<double> pipeline_ends(PricedPlan plan) {
  const auto ranks = static_cast<std::size_t>(plan.stages());
  const double step = std::exp2(std::ceil(std::log2(pipeline_makespan(plan))) + 1);
  std::vector<double> ends;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    plan.optimizer.assign(ranks, Seconds(0));
    plan.optimizer[rank] = Seconds(step);
    ends.push_back(pipeline_makespan(plan) - step);
  }
  return ends;
}

}  // namespace orrery::test
