// A cluster of H100 and A100 nodes, for tests of prices.
#pragma once

#include "costmodels/plans/price_book.hpp"
#include "platforms/gpu.hpp"
#include "tests/costmodels/built_in_costs.hpp"

namespace orrery::test {

inline NodeGroup node_group_of(const char* gpu, int nics_per_node) {
  NodeGroup group;
  group.name = gpu;
  group.gpu = find_gpu(gpu, "test");
  group.count = {0, 64};
  group.gpu_link = {group.gpu.link_bandwidth, microseconds(0.3)};
  group.nics_per_node = nics_per_node;
  group.nic = {gigabits_per_second(400), microseconds(1.35)};
  return group;
}

// Group 0: H100, group 1: A100; 8 GPUs a node.
inline ClusterSpec two_priced_kinds(int nics_per_node = 8) {
  ClusterSpec cluster;
  cluster.groups = {node_group_of("H100", nics_per_node), node_group_of("A100", nics_per_node)};
  return cluster;
}

inline PriceBook book_for(const ModelSpec& model, const ClusterSpec& cluster,
                          const ParallelStrategy& strategy, const SoftwareStack& stack = {}) {
  PriceBook book(model, cluster, {strategy.type, true, strategy.sequence, stack});
  book.need(strategy);
  book.predict(cost_models());
  return book;
}

}  // namespace orrery::test
