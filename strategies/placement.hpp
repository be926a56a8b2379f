// Which GPU plays which part: the rank order of Megatron-LM, tensor fastest, and the hosts it is laid on.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platforms/topology.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// One rank of one tensor group: which stage, replica and context rank it belongs to.
struct TensorGroup {
  int stage = 0;
  int replica = 0;
  int context = 0;
};
// All of them as ranks are numbered.
std::vector<TensorGroup> tensor_groups(const ParallelStrategy&);

// [replica * P + stage][lane] -> GPU number; lane = context rank * T + tensor rank. The ranks of a cluster
// group fill the GPUs of that group in rank order: by default all replicas of its first stage, then of its
// second, and so on. Where replicas are unlike, each kind fills those of its own groups. Then each node's
// ranks move to the host that stands for it. The strategy must fit the topology (check_shape).
std::vector<std::vector<int>> place(const ParallelStrategy&, const Topology&);

// Why `hosts` is no numbering of the nodes: not each once, or not within its group; absent when it is one.
std::optional<std::string> hosts_obstacle(const ParallelStrategy&);

// Rings over the replicas and context ranks of a stage that lie side by side in its nodes, of so many GPUs
// each: as many as fill a node with the members that one ring has there. `apart`: copies, over context ranks
// and then replicas, from one member to the next.
int ring_lanes(const ParallelStrategy&, int stage, int apart, int gpus_per_node);

// GPUs of each node group of the cluster that hold a rank, and the nodes that those fill.
std::vector<std::int64_t> gpus_in_use(const ParallelStrategy&, const ClusterSpec&);
std::vector<int> nodes_in_use(const ParallelStrategy&, const ClusterSpec&);

// The node group whose GPUs play a stage (in replicas of the first kind: see ParallelStrategy::of_kind).
const NodeGroup& group_of_stage(const ClusterSpec&, const ParallelStrategy&, int stage);
// The same for stages of every kind of replica: [kind * P + stage], as a plan's memory is kept.
std::vector<const NodeGroup*> groups_of_stages(const ClusterSpec&, const ParallelStrategy&);

}  // namespace orrery
