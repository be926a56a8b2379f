// Plans whose data-parallel replicas live on unlike GPUs, each replica on one node group.
#pragma once

#include <vector>

#include "strategies/obstacles.hpp"

namespace orrery {

// Replicas of equal tensor and context ways and stages, so many on each group.
struct ReplicaMix {
  Ways ways;  // of all; `data`: replicas in all
  int stages = 1;
  std::vector<int> replicas;  // [group]
  std::vector<int> nodes;     // of each group, used or paid for
};

// On two groups at least; replicas fill nodes, and there are no more than the batch has sequences. Of a group
// that could hold more than eight different numbers of replicas only the most are tried, and where a group
// has more than 64 GPUs only powers of two of stages. None in homogeneous mode, in clusters of more than 128
// GPUs, or where the space says `mix_replicas: false`. Without mirror
// images (groups_alike). In a fixed order.
std::vector<ReplicaMix> replica_mixes(const ClusterSpec&, const SearchSpace&, SearchMode,
                                      std::int64_t global_batch);

// Why a mix has no shape with such a setting, in words. Without virtual stages, and with schedules whose
// backward is not split: the order of others is built for one kind of GPU.
Obstacle mix_obstacle(const ModelSpec&, const ClusterSpec&, const ReplicaMix&, const Setting&,
                      std::int64_t global_batch, std::int64_t sequence);

// The strategy without its parts, its shares still to be chosen.
ParallelStrategy strategy_of(const ReplicaMix&, const Setting&, std::int64_t global_batch,
                             std::int64_t sequence, DataType);

}  // namespace orrery
