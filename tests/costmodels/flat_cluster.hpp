// Nodes on one switch with round numbers, for tests of flows and of the estimator.
#pragma once

#include "platforms/topology.hpp"

namespace orrery::test {

struct FlatNodes {
  int nodes = 1;
  int gpus_per_node = 1;
  int nics_per_node = 1;
};

// GPU links of 400 GiB/s and 0.5 us, NICs of 50 GiB/s and 1 us (SEMANTICS 6).
inline ClusterSpec flat_cluster(const FlatNodes& size) {
  NodeGroup group;
  group.name = "g";
  group.count = {size.nodes, size.nodes};
  group.gpus_per_node = size.gpus_per_node;
  group.nics_per_node = size.nics_per_node;
  group.gpu_link = {BytesPerSecond(400 * kGibi), microseconds(0.5)};
  group.nic = {BytesPerSecond(50 * kGibi), microseconds(1)};
  ClusterSpec cluster;
  cluster.groups = {group};
  return cluster;
}

inline Topology flat_topology(const FlatNodes& size) {
  return {flat_cluster(size), {size.nodes}};
}

}  // namespace orrery::test
