#include "costmodels/collectives/collective_choice.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "costmodels/collectives/collective_phase.hpp"

namespace orrery {
namespace {

// NCCL's protocols. Latencies in microseconds: of the start, of a step inside the node over NVLink and of a
// step over the network (baseLatencies and hwLatencies); shares of the bandwidth (ncclTopoTuneModel).
struct Protocol {
  double tree_start, ring_start;
  double tree_inside, ring_inside;
  double tree_between, ring_between;
  double tree_share_in_node, tree_share, ring_share;
  bool capped;          // by kFlagBandwidth
  double host_step;     // a ring step over nodes takes no less, wherever it goes: three overheads for Simple
  double ring_plateau;  // factor on a large ring's latency over nodes
};
constexpr std::array<Protocol, 3> kProtocols{{
    {6.8, 6.6, 0.6, 0.6, 5.0, 2.7, 0.92 / 3.8, 0.92 / 3.8, 0.5, true, 1.0, 1.0},               // LL
    {14.0, 14.0, 1.25, 1.9, 8.5, 4.0, 0.92 * 7 / 9, 0.92 * 120 / 128, 0.92, false, 1.0, 1.0},  // LL128
    {8.4, 8.4, 4.0, 3.4, 14.0, 14.0, 0.92, 0.92, 1.0, false, 3.0, 1.4},                        // Simple
}};

// The most LL gets on one node, two, more (llMaxBws; Ampere, AMD host).
constexpr std::array<double, 3> kFlagBandwidth{87.7e9, 22.5e9, 19.0e9};

// NCCL's trees fall short of its model at medium sizes (treeCorrectionFactor, a table of powers of two for
// each protocol; here rounded to steps for all).
double tree_correction(double bytes) {
  if (bytes < 8 * kKibi || bytes >= 512 * kMebi) return 1.0;
  if (bytes < 64 * kKibi) return 0.8;
  return bytes < 4 * kMebi ? 0.55 : 0.8;
}

struct Shape {
  double bytes, ranks, nodes;
  double bandwidth;  // that the busiest link of a ring gives it
};

Shape shape_of(const Collective& op) {
  const double per_node = std::clamp(op.ranks_per_node, 1, op.ranks);
  const double nodes = std::ceil(op.ranks / per_node);
  const double inside = op.gpu_link.bandwidth.value();
  const double between = per_node * op.network.bandwidth.value();
  // One member a node: nothing runs inside.
  const double bandwidth = nodes < 2 ? inside : per_node < 2 ? between : std::min(inside, between);
  return {op.bytes.value(), static_cast<double>(op.ranks), nodes, bandwidth};
}

struct MembersOfNode {
  int first = 0;  // GPU
  int count = 0;
  int nics = 0;  // that they use
};

// Nodes in order of first mention.
std::vector<MembersOfNode> members_of_nodes(const Topology& topology, const std::vector<int>& gpus) {
  std::vector<MembersOfNode> nodes;
  std::unordered_map<int, std::size_t> index;     // by node
  std::vector<std::pair<std::size_t, int>> nics;  // by index
  for (const int gpu : gpus) {
    const int node = topology.device(gpu).node;
    const bool is_same = !nodes.empty() && topology.device(nodes.back().first).node == node;
    const std::size_t at = is_same ? nodes.size() - 1 : index.try_emplace(node, nodes.size()).first->second;
    if (at == nodes.size()) nodes.push_back({gpu, 0, 0});
    ++nodes[at].count;
    nics.emplace_back(at, nic_of(topology, gpu));
  }
  if (!std::is_sorted(nics.begin(), nics.end())) std::sort(nics.begin(), nics.end());
  nics.erase(std::unique(nics.begin(), nics.end()), nics.end());
  for (const auto& [at, nic] : nics) ++nodes[at].nics;
  return nodes;
}

double flag_limit(const Shape& shape, const Protocol& protocol, double bandwidth) {
  const auto row = static_cast<std::size_t>(std::min(shape.nodes, 3.0)) - 1;
  return protocol.capped ? std::min(bandwidth, kFlagBandwidth[row]) : bandwidth;
}

double ring_microseconds(const Shape& shape, const Protocol& protocol) {
  const bool one_each = shape.nodes == shape.ranks;
  const double steps = 2 * (shape.ranks - 1);
  const double between = 2 * (shape.nodes - 1);
  const double inside_step = std::max(protocol.ring_inside, shape.nodes > 1 ? protocol.host_step : 0.0);
  double latency = protocol.ring_start + (steps - between) * inside_step +
                   between * (one_each ? protocol.tree_between : protocol.ring_between);
  if (shape.nodes > 1) latency *= protocol.ring_plateau;
  const double bandwidth =
      flag_limit(shape, protocol, shape.bandwidth * protocol.ring_share) * shape.ranks / steps;
  return latency + 1e6 * shape.bytes / bandwidth;
}

double tree_microseconds(const Shape& shape, const Protocol& protocol) {
  const double latency =
      protocol.tree_start + 2 * ((shape.ranks / shape.nodes - 1) * protocol.tree_inside +
                                 std::floor(std::log2(shape.nodes)) * protocol.tree_between);
  const double share = shape.nodes < 2 ? protocol.tree_share_in_node : protocol.tree_share;
  const double bandwidth = flag_limit(shape, protocol, shape.bandwidth * share) / 2;
  return latency + 1e6 * shape.bytes / (bandwidth * tree_correction(shape.bytes));
}

}  // namespace

CollectiveAlgorithm nccl_choice(const Collective& op) {
  if (op.kind == CollectiveKind::all_to_all) return CollectiveAlgorithm::direct;
  if (op.kind != CollectiveKind::all_reduce || op.ranks < 2) return CollectiveAlgorithm::ring;
  const Shape shape = shape_of(op);
  double ring = ring_microseconds(shape, kProtocols[0]);
  double tree = tree_microseconds(shape, kProtocols[0]);
  for (const Protocol& protocol : kProtocols) {
    ring = std::min(ring, ring_microseconds(shape, protocol));
    tree = std::min(tree, tree_microseconds(shape, protocol));
  }
  return tree < ring ? CollectiveAlgorithm::double_binary_tree : CollectiveAlgorithm::ring;
}

CollectiveAlgorithm nccl_choice(const Topology& topology, const CollectiveCall& call) {
  if (call.gpus.empty()) return CollectiveAlgorithm::ring;
  if (call.kind == CollectiveKind::all_reduce) return nccl_choice(as_operator(topology, call));
  Collective anywhere;  // where its members are does not matter
  anywhere.kind = call.kind;
  return nccl_choice(anywhere);
}

Collective as_operator(const Topology& topology, const CollectiveCall& call) {
  Collective op;
  op.kind = call.kind;
  op.bytes = call.bytes;
  op.ranks = static_cast<int>(call.gpus.size());
  const std::vector<MembersOfNode> members = members_of_nodes(topology, call.gpus);
  const std::size_t nodes = members.size();
  op.ranks_per_node = static_cast<int>((call.gpus.size() + nodes - 1) / nodes);
  const auto narrow = [](LinkSpec& narrowest, const LinkSpec& link) {
    if (narrowest.bandwidth.value() <= 0 || link.bandwidth < narrowest.bandwidth) narrowest = link;
  };
  for (const MembersOfNode& local : members) {
    const NodeGroup& group = topology.group_of(local.first);
    LinkSpec share = group.nic;
    share.bandwidth *= static_cast<double>(local.nics) / static_cast<double>(local.count);
    narrow(op.gpu_link, group.gpu_link);
    narrow(op.network, share);
  }
  return op;
}

std::vector<FlowPhase> repeated(const Topology& topology, std::vector<FlowPhase> phases, int times) {
  if (times == 1) return phases;
  for (FlowPhase& phase : phases) {
    const Seconds whole = (together(topology, phase.flows) + phase.tail) * times;
    for (Flow& flow : phase.flows) {
      flow.wire *= times;
      flow.payload *= times;
    }
    phase.tail = std::max(Seconds(0), whole - together(topology, phase.flows));
  }
  return phases;
}

Seconds time_alone(const Topology& topology, const std::vector<FlowPhase>& phases) {
  Seconds time;
  for (const FlowPhase& phase : phases) time += together(topology, phase.flows) + phase.tail;
  return time;
}

}  // namespace orrery
