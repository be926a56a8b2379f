#include "costmodels/plans/fabric_delay.hpp"

#include <algorithm>

#include "costmodels/collectives/collective_flows.hpp"

namespace orrery {
namespace {

// GPUs of the copies of each tensor rank's weights, in the sets that shard them (of experts too, which are
// gathered among every few of them).
std::vector<std::vector<int>> copies_of_weights(const PricedPlan& plan, const ParallelStrategy& strategy) {
  const auto set = static_cast<std::size_t>(strategy.copies_of_instance());
  std::vector<std::vector<int>> sets;
  for (int tensor = 0; tensor < strategy.tensor(0); ++tensor) {
    std::vector<int> copies;
    for (int replica = 0; replica < strategy.data; ++replica) {
      const std::vector<int>& lanes = plan.lanes(replica, 0);
      for (std::size_t lane = static_cast<std::size_t>(tensor); lane < lanes.size();
           lane += static_cast<std::size_t>(strategy.tensor(0)))
        copies.push_back(lanes[lane]);
    }
    for (auto first = copies.begin(); first != copies.end(); first += static_cast<std::ptrdiff_t>(set))
      sets.emplace_back(first, first + static_cast<std::ptrdiff_t>(set));
  }
  return sets;
}

Seconds gather_time(const Topology& topology, const std::vector<std::vector<int>>& sets, Bytes bytes) {
  std::vector<FlowPhase> phases;
  for (const std::vector<int>& gpus : sets)
    add_side_by_side(phases, collective_flows(topology, {.kind = CollectiveKind::all_gather,
                                                         .algorithm = CollectiveAlgorithm::ring,
                                                         .bytes = bytes,
                                                         .efficiency = {},
                                                         .gpus = gpus}));
  Seconds sum;
  for (const FlowPhase& phase : phases) sum += together(topology, phase.flows) + phase.tail;
  return sum;
}

// Whether it is so already; asked of every plan, so without a copy.
bool is_on_one_switch(const ClusterSpec& cluster) {
  return cluster.fabric == Fabric{} && !cluster.network && cluster.links.empty() &&
         std::all_of(cluster.groups.begin(), cluster.groups.end(),
                     [](const NodeGroup& group) { return group.leaves.empty(); });
}

ClusterSpec on_one_switch(ClusterSpec cluster) {
  cluster.fabric = {};
  cluster.network.reset();
  cluster.links.clear();
  for (NodeGroup& group : cluster.groups) {
    group.region = "default";
    group.leaves.clear();
  }
  return cluster;
}

}  // namespace

double fabric_delay(const PricedPlan& plan, const ParallelStrategy& strategy, const Topology& topology,
                    Bytes bytes) {
  if (is_on_one_switch(topology.cluster()) || strategy.copies_of_instance() < 2) return 1.0;
  const ClusterSpec plain = on_one_switch(topology.cluster());
  const auto sets = copies_of_weights(plan, strategy);
  const Seconds priced = gather_time(Topology(plain, strategy.nodes), sets, bytes);
  if (priced <= Seconds(0)) return 1.0;
  return std::max(1.0, gather_time(topology, sets, bytes) / priced);
}

}  // namespace orrery
