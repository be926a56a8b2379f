#include "costmodels/collectives/collective_bound.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

namespace orrery {
namespace {

enum class Level { gpu, node, leaf, region };

// Whether a flow leaves the block of this level that it starts in.
bool crosses(Level level, const Topology& topology, int from, int to) {
  switch (level) {
    case Level::gpu:
      return from != to;
    case Level::node:
      return !topology.same_node(from, to);
    case Level::leaf:
      return !topology.same_leaf(from, to);
    case Level::region:
      break;
  }
  return !topology.same_region(from, to);
}

// A link by which flows leave their block and one by which they enter another.
using Gates = std::function<Topology::Gate(int from, int to)>;

// The link `depth` links after the first of the route, and the one as far before its last; the middle of a
// route that is too short.
Topology::Gate gate_at(int depth, const Route& route) {
  const auto from_end = static_cast<std::size_t>(std::min(depth, (route.count - 1) / 2));
  return {route.links[from_end], route.links[static_cast<std::size_t>(route.count - 1) - from_end]};
}

// Gates at every depth, which stand for GPUs, PCIe switches and NICs, and those of leaves and regions, which
// lie at depths that differ from flow to flow.
std::vector<Gates> gates_of(Level level, const Topology& topology) {
  std::vector<Gates> all;
  for (int depth = 0; depth <= kMostLinksOfRoute / 2; ++depth) {
    all.emplace_back(
        [depth, &topology](int from, int to) { return gate_at(depth, topology.route(from, to)); });
  }
  if (level == Level::leaf)
    all.emplace_back([&topology](int from, int to) { return topology.leaf_gate(from, to); });
  if (level == Level::region) {
    all.emplace_back([&topology](int from, int to) { return topology.region_gate(from, to); });
  }
  return all;
}

// Members that cross nothing between each other at this level, in order of first mention.
std::vector<std::vector<int>> blocks_of(Level level, const Topology& topology, const std::vector<int>& gpus) {
  std::vector<std::vector<int>> blocks;
  for (const int gpu : gpus) {
    const auto home = std::find_if(blocks.begin(), blocks.end(), [&](const std::vector<int>& block) {
      return !crosses(level, topology, block.front(), gpu);
    });
    if (home == blocks.end()) {
      blocks.push_back({gpu});
    } else {
      home->push_back(gpu);
    }
  }
  return blocks;
}

// Links, each counted once; where contention is ideal every pair has its own.
class Capacity {
 public:
  explicit Capacity(const Topology& topology) : topology_(topology) {}
  void add(int link, int pair) {
    const BytesPerSecond bandwidth = topology_.links()[static_cast<std::size_t>(link)].spec.bandwidth;
    const bool shared = topology_.cluster().contention == Contention::shared;
    if (seen_.try_emplace({link, shared ? 0 : pair}, true).second) total_ += bandwidth.value();
  }
  [[nodiscard]] BytesPerSecond total() const { return BytesPerSecond(total_); }

 private:
  const Topology& topology_;
  std::map<std::pair<int, int>, bool> seen_;
  double total_ = 0;
};

// Shares of the vector that must move: into and out of a block of so many members (the first block or
// another), and between so many blocks.
struct Demand {
  std::function<double(double members, std::size_t block)> in, out;
  std::function<double(double blocks)> between;
};

// The bound of one level. Whichever link of its route is the gate of a flow, what enters or leaves a block
// crosses the gates of its members: any choice gives a bound.
Seconds least_at(Level level, const Gates& gates, const Topology& topology, const CollectiveCall& call,
                 const Demand& demand) {
  const auto blocks = blocks_of(level, topology, call.gpus);
  if (blocks.size() < 2) return Seconds(0);
  Capacity everywhere(topology);
  Seconds least, hop(INFINITY);
  double moved = 0;
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    Capacity in(topology), out(topology);
    for (const int here : blocks[block]) {
      for (const int other : call.gpus) {
        if (!crosses(level, topology, here, other)) continue;
        const int pair = here * topology.gpus() + other;
        out.add(gates(here, other).out, pair);
        in.add(gates(other, here).in, pair);
        everywhere.add(gates(other, here).in, pair);
        hop = std::min(hop, topology.path(here, other).latency);
      }
    }
    const auto members = static_cast<double>(blocks[block].size());
    least = std::max({least, call.bytes * demand.in(members, block) / in.total(),
                      call.bytes * demand.out(members, block) / out.total()});
    moved += demand.in(members, block);
  }
  moved = std::max(moved, demand.between(static_cast<double>(blocks.size())));
  return hop + std::max(least, call.bytes * moved / everywhere.total());
}

Seconds least_of(const Topology& topology, const CollectiveCall& call, const Demand& demand) {
  Seconds least;
  if (call.gpus.size() < 2) return least;
  for (const Level level : {Level::gpu, Level::node, Level::leaf, Level::region}) {
    for (const Gates& gates : gates_of(level, topology)) {
      least = std::max(least, least_at(level, gates, topology, call, demand));
    }
  }
  return least;
}

}  // namespace

Seconds least_time(const Topology& topology, const CollectiveCall& call) {
  const auto n = static_cast<double>(call.gpus.size());
  const auto whole = [](double, std::size_t) { return 1.0; };
  const auto mine = [n](double k, std::size_t) { return k / n; };
  const auto of_others = [n](double k, std::size_t) { return (n - k) / n; };
  const auto pairs = [n](double k, std::size_t) { return k * (n - k) / n; };
  const auto once = [](double blocks) { return blocks - 1; };
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      return least_of(topology, call, {whole, whole, [](double blocks) { return 2 * (blocks - 1); }});
    case CollectiveKind::reduce_scatter:
      return least_of(topology, call, {mine, of_others, once});
    case CollectiveKind::all_gather:
      return least_of(topology, call, {of_others, mine, once});
    case CollectiveKind::all_to_all:
      break;
  }
  return least_of(topology, call, {pairs, pairs, [](double) { return 0.0; }});
}

// The root is in the first block, since blocks are in order of first mention.
Seconds least_time(const Topology& topology, const BroadcastCall& call) {
  const auto from_root = [](double, std::size_t block) { return block == 0 ? 1.0 : 0.0; };
  const auto to_others = [](double, std::size_t block) { return block == 0 ? 0.0 : 1.0; };
  const CollectiveCall as_call{{}, {}, call.bytes, call.efficiency, call.gpus};
  return least_of(topology, as_call, {to_others, from_root, [](double blocks) { return blocks - 1; }});
}

}  // namespace orrery
