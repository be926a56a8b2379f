#include "tests/costmodels/collective_fixture.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orrery {
namespace {

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : engine_(seed) {}
  int whole(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<std::uint32_t>(high - low + 1));
  }
  double real(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_()) / static_cast<double>(std::mt19937::max());
  }

 private:
  std::mt19937 engine_;
};

NodeGroup draw_group(Draw& draw, const std::string& name) {
  NodeGroup group;
  group.name = name;
  group.gpus_per_node = 1 << draw.whole(0, 3);
  group.nics_per_node = 1 << draw.whole(0, static_cast<int>(std::log2(group.gpus_per_node)));
  group.count = {0, 64};
  group.gpu_link = {gigabytes_per_second(draw.real(5, 300)), microseconds(draw.real(0, 3))};
  group.nic = {gigabytes_per_second(draw.real(1, 50)), microseconds(draw.real(0, 5))};
  return group;
}

ClusterSpec draw_cluster(Draw& draw, Contention contention) {
  ClusterSpec cluster{"random", {draw_group(draw, "a"), draw_group(draw, "b")}, {}, contention};
  if (draw.whole(0, 1) == 1) {
    cluster.fabric.nodes_per_leaf = draw.whole(1, 3);
    cluster.fabric.oversubscription = draw.real(1, 8);
    cluster.fabric.latency = microseconds(draw.real(0, 2));
    if (draw.whole(0, 1) == 1) cluster.fabric.kind = FabricKind::rail_optimised;
    if (draw.whole(0, 2) == 0) cluster.fabric.leaves_per_pod = draw.whole(1, 2);
  }
  for (NodeGroup& group : cluster.groups) {
    if (draw.whole(0, 2) > 0 || group.gpus_per_node < 2) continue;
    group.pcie_switches = 2;
    group.pcie_uplink = {gigabytes_per_second(draw.real(5, 60)), microseconds(draw.real(0, 1))};
  }
  if (draw.whole(0, 3) == 0) {
    cluster.groups[1].region = "far";
    cluster.fabric.regions = {
        {"default", "far", {gigabytes_per_second(draw.real(0.1, 5)), milliseconds(10)}}};
  }
  return cluster;
}

// Some members of any node, in any order.
std::vector<int> draw_members(Draw& draw, const Topology& topology) {
  std::vector<int> gpus = gpus_from(0, topology.gpus());
  for (int i = topology.gpus() - 1; i > 0; --i) {
    std::swap(gpus[static_cast<std::size_t>(i)], gpus[static_cast<std::size_t>(draw.whole(0, i))]);
  }
  gpus.resize(static_cast<std::size_t>(draw.whole(1, std::min(topology.gpus(), 24))));
  if (draw.whole(0, 1) == 1) std::sort(gpus.begin(), gpus.end());
  return gpus;
}

// The first `k` GPUs of every node.
std::vector<int> draw_even_members(Draw& draw, const Topology& topology) {
  const auto& groups = topology.cluster().groups;
  const int each = draw.whole(1, std::min(groups[0].gpus_per_node, groups[1].gpus_per_node));
  std::vector<int> gpus;
  for (int gpu = 0; gpu < topology.gpus(); ++gpu) {
    if (topology.device(gpu).local < each) gpus.push_back(gpu);
  }
  return gpus;
}

}  // namespace

Topology equal_nodes(const EqualNodes& spec) {
  NodeGroup group;
  group.name = "node";
  group.gpus_per_node = spec.gpus;
  group.nics_per_node = spec.nics;
  group.count = {1, 4096};
  group.gpu_link = spec.gpu_link;
  group.nic = spec.nic;
  return Topology({"equal", {group}, {}, Contention::shared}, {spec.nodes});
}

std::vector<int> gpus_from(int first, int count) {
  std::vector<int> gpus(static_cast<std::size_t>(count));
  std::iota(gpus.begin(), gpus.end(), first);
  return gpus;
}

RandomGroup random_group(std::uint32_t seed, Spread spread, Contention contention) {
  Draw draw(seed);
  Topology topology(draw_cluster(draw, contention), {draw.whole(1, 5), draw.whole(1, 4)});
  std::vector<int> gpus =
      spread == Spread::even ? draw_even_members(draw, topology) : draw_members(draw, topology);
  const Bytes bytes(std::round(std::pow(2.0, draw.real(12, 32))));
  std::string text = "seed " + std::to_string(seed) + ": " + std::to_string(bytes.value()) + " bytes, GPUs";
  for (const int gpu : gpus) {
    text += " " + std::to_string(gpu) + "@" + std::to_string(topology.device(gpu).node);
  }
  text += "\n" + to_yaml(topology.cluster());
  return {std::move(topology), std::move(gpus), bytes, std::move(text)};
}

std::string name_of(const CollectiveCall& call) {
  return std::string(to_text(*call.algorithm)) + " " + std::string(to_text(call.kind));
}

std::vector<CollectiveCall> every_call(const RandomGroup& group) {
  std::vector<CollectiveCall> calls;
  for (const auto kind : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                          CollectiveKind::all_gather, CollectiveKind::all_to_all}) {
    for (const auto algorithm : {CollectiveAlgorithm::ring, CollectiveAlgorithm::double_binary_tree,
                                 CollectiveAlgorithm::hierarchical, CollectiveAlgorithm::direct}) {
      if (can_run(algorithm, kind)) calls.push_back({kind, algorithm, group.bytes, {}, group.gpus});
    }
  }
  return calls;
}

std::vector<BroadcastCall> every_broadcast(const RandomGroup& group) {
  std::vector<BroadcastCall> calls;
  for (const auto algorithm :
       {CollectiveAlgorithm::ring, CollectiveAlgorithm::double_binary_tree, CollectiveAlgorithm::direct}) {
    calls.push_back({algorithm, group.bytes, {}, group.gpus});
  }
  return calls;
}

}  // namespace orrery
