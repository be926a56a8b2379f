#include "tests/costmodels/collective_fixture.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/costmodels/random_cluster.hpp"

namespace orrery {
namespace {

using test::Draw;

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
  Topology topology(test::random_cluster(draw, contention), {draw.whole(1, 5), draw.whole(1, 4)});
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
