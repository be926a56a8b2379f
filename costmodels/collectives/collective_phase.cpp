#include "costmodels/collectives/collective_phase.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>

namespace orrery {
namespace {

// Members of one node reordered so that the first few use as many NICs as there are; the first stays first.
void spread_over_nics(const Topology& topology, Members& local) {
  if (local.size() < 2) return;
  std::map<int, int> members_of_nic;
  std::map<int, int> turn;
  for (const int gpu : local) turn[gpu] = members_of_nic[nic_of(topology, gpu)]++;
  std::stable_sort(local.begin(), local.end(), [&](int a, int b) { return turn[a] < turn[b]; });
}

// One hop of the ring inside a node, and how much of the vector crosses it.
struct InsideHop {
  int from, to;
  double share;
};

// The pieces of the heads, each of which crosses every hop but one: that into its head (`skipped` 1) or that
// out of it
// (`skipped` 0).
std::vector<InsideHop> inside_hops(const Members& local, std::size_t heads, std::size_t skipped) {
  std::vector<InsideHop> hops;
  for (std::size_t i = 0; local.size() > 1 && i < local.size(); ++i) {
    const std::size_t pieces = heads - ((i + skipped) % local.size() < heads ? 1 : 0);
    if (pieces == 0) continue;
    hops.push_back(
        {local[i], local[(i + 1) % local.size()], static_cast<double>(pieces) / static_cast<double>(heads)});
  }
  return hops;
}

}  // namespace

Seconds PhaseBuilder::add(int from, int to, Bytes payload) {
  if (setting_.images != nullptr && (*setting_.images)[static_cast<std::size_t>(from)] != from) {
    const Seconds hop = latency(from, to);
    slowest_hop_ = std::max(slowest_hop_, hop);
    return hop;
  }
  if (2 * flows_.size() >= places_.size()) grow();
  std::size_t& place = place_of(from, to);
  if (place == 0) {
    flows_.push_back(make_flow(setting_.topology, from, to, Bytes(0), setting_.efficiency));
    slowest_hop_ = std::max(slowest_hop_, flows_.back().path.latency);
    place = flows_.size();
  }
  flows_[place - 1].payload += payload;
  return flows_[place - 1].path.latency;
}

std::size_t& PhaseBuilder::place_of(int from, int to) {
  const std::size_t mask = places_.size() - 1;
  const auto ends = static_cast<std::uint64_t>(from) << 32U | static_cast<std::uint32_t>(to);
  // Fibonacci hashing.
  auto at = static_cast<std::size_t>((ends * 0x9E3779B97F4A7C15U) >> 32U) & mask;
  while (places_[at] != 0 && (flows_[places_[at] - 1].from != from || flows_[places_[at] - 1].to != to))
    at = (at + 1) & mask;
  return places_[at];
}

void PhaseBuilder::grow() {
  places_.assign(std::max<std::size_t>(16, 2 * places_.size()), 0);
  for (std::size_t i = 0; i < flows_.size(); ++i) place_of(flows_[i].from, flows_[i].to) = i + 1;
}

FlowPhase PhaseBuilder::finish(double steps) {
  return finish_after(std::max(0.0, steps - 1) * slowest_hop_);
}

FlowPhase PhaseBuilder::finish(Seconds latency) {
  return finish_after(std::max(Seconds(0), latency - slowest_hop_));
}

Seconds PhaseBuilder::latency(int from, int to) const {
  return setting_.topology.path(from, to).latency;
}

Seconds chain_latency(const std::vector<Seconds>& ring, std::size_t steps) {
  if (ring.empty()) return {};
  const std::size_t hops = ring.size(), rest = steps % hops;
  Seconds round, window;
  for (std::size_t i = 0; i < hops; ++i) {
    round += ring[i];
    if (i < rest) window += ring[i];
  }
  Seconds longest = window;
  for (std::size_t first = 0; first + 1 < hops && rest > 0; ++first) {
    window += ring[(first + rest) % hops] - ring[first];
    longest = std::max(longest, window);
  }
  return round * static_cast<double>(steps / hops) + longest;
}

FlowPhase PhaseBuilder::finish_after(Seconds tail) {
  for (Flow& flow : flows_) {
    const bool inside = setting_.topology.same_node(flow.from, flow.to);
    flow.wire = wire_bytes(flow.payload, inside ? setting_.efficiency.inside : setting_.efficiency.between);
  }
  return {std::move(flows_), tail};
}

NodeGrid by_node(const Topology& topology, const Members& gpus) {
  NodeGrid grid;
  constexpr std::size_t kNew = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> index;  // [node]
  for (const int gpu : gpus) {
    const auto node = static_cast<std::size_t>(topology.device(gpu).node);
    if (node >= index.size()) index.resize(node + 1, kNew);
    if (index[node] == kNew) {
      index[node] = grid.nodes.size();
      grid.nodes.emplace_back();
    }
    grid.nodes[index[node]].push_back(gpu);
  }
  grid.heads = gpus.size();
  for (Members& local : grid.nodes) {
    grid.heads = std::min(grid.heads, local.size());
    spread_over_nics(topology, local);
  }
  return grid;
}

int nic_of(const Topology& topology, int gpu) {
  const NodeGroup& group = topology.group_of(gpu);
  return topology.device(gpu).local / (group.gpus_per_node / group.nics_per_node);
}

std::size_t largest_node(const NodeGrid& grid) {
  std::size_t largest = 0;
  for (const Members& local : grid.nodes) largest = std::max(largest, local.size());
  return largest;
}

void gather_from_heads(PhaseBuilder& phase, const Members& local, std::size_t heads, Bytes bytes) {
  for (const InsideHop& hop : inside_hops(local, heads, 1)) phase.add(hop.from, hop.to, bytes * hop.share);
}

void reduce_to_heads(PhaseBuilder& phase, const Members& local, std::size_t heads, Bytes bytes) {
  for (const InsideHop& hop : inside_hops(local, heads, 0)) phase.add(hop.from, hop.to, bytes * hop.share);
}

void chain_to_heads(PhaseBuilder& phase, const Members& local, std::size_t heads, Bytes bytes) {
  for (const InsideHop& hop : inside_hops(local, heads, 1)) phase.add(hop.to, hop.from, bytes * hop.share);
}

}  // namespace orrery
