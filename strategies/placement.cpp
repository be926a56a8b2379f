#include "strategies/placement.hpp"

#include "platforms/errors.hpp"

namespace orrery {

namespace {

int group_number(const ParallelStrategy& strategy, int stage, int kind) {
  const auto at = static_cast<std::size_t>(stage);
  return strategy.replicas.empty() ? strategy.stages[at].group
                                   : strategy.replicas[static_cast<std::size_t>(kind)].groups[at];
}

}  // namespace

std::vector<std::vector<int>> place(const ParallelStrategy& strategy, const Topology& topology) {
  std::vector<std::vector<int>> gpus(static_cast<std::size_t>(strategy.data * strategy.pipeline));
  std::vector<int> next;  // free GPU of each group
  const int groups = static_cast<int>(topology.cluster().groups.size());
  for (int group = 0; group < groups; ++group) next.push_back(topology.first_gpu(group));
  const std::vector<int> kinds = strategy.kind_of_replica();
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    for (int replica = 0; replica < strategy.data; ++replica) {
      int& gpu = next[static_cast<std::size_t>(
          group_number(strategy, stage, kinds[static_cast<std::size_t>(replica)]))];
      std::vector<int>& lanes = gpus[static_cast<std::size_t>(replica * strategy.pipeline + stage)];
      for (int lane = 0; lane < strategy.gpus_of_stage(stage); ++lane) lanes.push_back(gpu++);
    }
  }
  for (int group = 0; group < groups; ++group) {
    const int end = group + 1 < groups ? topology.first_gpu(group + 1) : topology.gpus();
    ORRERY_ENSURE(next[static_cast<std::size_t>(group)] <= end);
  }
  return gpus;
}

const NodeGroup& group_of_stage(const ClusterSpec& cluster, const ParallelStrategy& strategy, int stage) {
  const int group = strategy.stages[static_cast<std::size_t>(stage)].group;
  return cluster.groups[static_cast<std::size_t>(group)];
}

}  // namespace orrery
