// A two-kind cluster and plans on it, for the tests of plans and launch files.
#pragma once

#include "platforms/cluster.hpp"
#include "strategies/model.hpp"
#include "strategies/strategy.hpp"

namespace orrery::test {

inline NodeGroup node_group(const std::string& name, int nodes) {
  NodeGroup group;
  group.name = name;
  group.gpu.name = name + "-gpu";
  group.gpu.bf16 = teraflops(300);
  group.gpus_per_node = 8;
  group.count = {0, nodes};
  return group;
}

inline ClusterSpec two_kinds() {
  ClusterSpec cluster;
  cluster.groups = {node_group("fast", 4), node_group("slow", 8)};
  return cluster;
}

// Equal parts in model order; `layers` is a multiple of the parts.
inline std::vector<LayerRange> equal_parts(int parts, int layers) {
  std::vector<LayerRange> ranges;
  for (int i = 0; i < parts; ++i) ranges.push_back({i * (layers / parts), layers / parts});
  return ranges;
}

// Llama-2 70B (80 layers, 64 heads, 8 key-value heads): 4 ranks x 2 replicas x 8 ways = 64 GPUs, half of each
// kind.
inline ParallelStrategy llama70b_on_two_kinds() {
  ParallelStrategy strategy;
  strategy.pipeline = 4;
  strategy.data = 2;
  strategy.global_batch = 64;
  strategy.sequence = 4096;
  strategy.sequence_parallel = true;
  strategy.stages = {{0, 8}, {0, 8}, {1, 8}, {1, 8}};
  strategy.parts = {{0, 26}, {26, 26}, {52, 14}, {66, 14}};
  strategy.nodes = {4, 4};
  return strategy;
}

}  // namespace orrery::test
