// Which GPU plays which part: Megatron-LM's default rank order tp-cp-ep-dp-pp, tensor fastest.
#pragma once

#include <vector>

#include "platforms/topology.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// [replica * P + stage][lane] -> GPU number; lane = context rank * T + tensor rank. The stages of a cluster
// group fill the GPUs of that group in order: all replicas of its first stage, then of its second, and so on.
// Where replicas are unlike, each kind fills those of its own groups.
// The strategy must fit the topology (check_shape).
std::vector<std::vector<int>> place(const ParallelStrategy&, const Topology&);

// The node group whose GPUs play a stage (in replicas of the first kind: see ParallelStrategy::of_kind).
const NodeGroup& group_of_stage(const ClusterSpec&, const ParallelStrategy&, int stage);

}  // namespace orrery
