#include "costmodels/collectives/collective_tree.hpp"

#include <algorithm>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

// An odd number of vertices in a row as a binary tree whose leaves are every other one, beginning with the
// first: the root has a full tree on its left, as large as fits, and a tree of the same kind on its right.
void grow(TreeParents& parents, int first, int count, std::optional<int> parent) {
  int left = 1;  // left + 1 is the largest power of two up to count
  while (2 * (left + 1) <= count) left = 2 * left + 1;
  if (count == 1) left = 0;
  const int root = first + left;
  parents[static_cast<std::size_t>(root)] = parent;
  if (left > 0) grow(parents, first, left, root);
  if (count - left > 1) grow(parents, root + 1, count - left - 1, root);
}

// The trees over nodes first_node, first_node + 1, ... of the grid.
struct NodeTrees {
  const NodeGrid& grid;
  std::size_t first_node;
  DoubleBinaryTree trees;

  NodeTrees(const NodeGrid& all, std::size_t first)
      : grid(all), first_node(first), trees(double_binary_tree(static_cast<int>(all.nodes.size() - first))) {}
  [[nodiscard]] const Members& node(std::size_t vertex) const { return grid.nodes[first_node + vertex]; }
  [[nodiscard]] Bytes share(Bytes bytes) const { return bytes / (2.0 * static_cast<double>(grid.heads)); }
};

Seconds chain_latency(const Topology& topology, const Members& local) {
  if (local.size() < 2) return Seconds(0);
  return static_cast<double>(local.size() - 1) * topology.path(local[0], local[1]).latency;
}

// From the root of a tree to the member it reaches last, through the chain in its node.
Seconds depth(const Topology& topology, const NodeTrees& over, const TreeParents& parents) {
  Seconds deepest;
  std::vector<Seconds> from_parent(parents.size());
  for (std::size_t child = 0; child < parents.size(); ++child) {
    if (!parents[child]) continue;
    const auto parent = static_cast<std::size_t>(*parents[child]);
    from_parent[child] = topology.path(over.node(parent).front(), over.node(child).front()).latency;
  }
  for (std::size_t vertex = 0; vertex < parents.size(); ++vertex) {
    Seconds latency = chain_latency(topology, over.node(vertex));
    for (std::size_t child = vertex; parents[child].has_value();) {
      latency += from_parent[child];
      child = static_cast<std::size_t>(*parents[child]);
    }
    deepest = std::max(deepest, latency);
  }
  return deepest;
}

Seconds depth(const Topology& topology, const NodeTrees& over) {
  return std::max(depth(topology, over, over.trees.first), depth(topology, over, over.trees.second));
}

enum class TreeWay { up, down };

// Half the bytes along the edges of each tree, between heads of equal index.
void add_edges(PhaseBuilder& phase, const NodeTrees& over, Bytes bytes, TreeWay way) {
  for (const TreeParents* parents : {&over.trees.first, &over.trees.second}) {
    for (std::size_t vertex = 0; vertex < parents->size(); ++vertex) {
      if (!(*parents)[vertex].has_value()) continue;
      const Members& child = over.node(vertex);
      const Members& parent = over.node(static_cast<std::size_t>(*(*parents)[vertex]));
      for (std::size_t head = 0; head < over.grid.heads; ++head) {
        const bool down = way == TreeWay::down;
        phase.add(down ? parent[head] : child[head], down ? child[head] : parent[head], over.share(bytes));
      }
    }
  }
}

std::size_t root_of(const TreeParents& parents) {
  return static_cast<std::size_t>(std::find(parents.begin(), parents.end(), std::nullopt) - parents.begin());
}

}  // namespace

DoubleBinaryTree double_binary_tree(int count) {
  ORRERY_ENSURE(count > 0);
  DoubleBinaryTree trees{TreeParents(static_cast<std::size_t>(count)),
                         TreeParents(static_cast<std::size_t>(count))};
  const bool odd = count % 2 == 1;
  if (odd) {
    grow(trees.first, 0, count, std::nullopt);
  } else {  // vertex 0 on top of a tree over the others, whose leaves are the odd vertices
    grow(trees.first, 1, count - 1, 0);
  }
  // Shifted by one or mirrored, the leaves of the one tree take the place of the inner nodes of the other.
  const auto other = [&](int vertex) { return odd ? (vertex + 1) % count : count - 1 - vertex; };
  for (int vertex = 0; vertex < count; ++vertex) {
    const std::optional<int> parent = trees.first[static_cast<std::size_t>(vertex)];
    if (parent) trees.second[static_cast<std::size_t>(other(vertex))] = other(*parent);
  }
  return trees;
}

FlowPhase tree_all_reduce(const FlowSetting& setting, const Members& gpus, Bytes bytes) {
  const NodeGrid grid = by_node(setting.topology, gpus);
  const NodeTrees over(grid, 0);
  PhaseBuilder phase(setting);
  for (const Members& local : grid.nodes) chain_to_heads(phase, local, grid.heads, bytes);
  add_edges(phase, over, bytes, TreeWay::up);
  add_edges(phase, over, bytes, TreeWay::down);
  for (const Members& local : grid.nodes) gather_from_heads(phase, local, grid.heads, bytes);
  return phase.finish(2 * depth(setting.topology, over));
}

FlowPhase tree_broadcast(const FlowSetting& setting, const Members& gpus, Bytes bytes) {
  const NodeGrid grid = by_node(setting.topology, gpus);
  const Members& home = grid.nodes.front();
  PhaseBuilder phase(setting);
  gather_from_heads(phase, home, 1, bytes);
  Seconds latency = chain_latency(setting.topology, home);
  if (grid.nodes.size() > 1) {
    const NodeTrees over(grid, 1);
    Seconds first_hop;
    for (const TreeParents* parents : {&over.trees.first, &over.trees.second}) {
      const Members& root = over.node(root_of(*parents));
      first_hop = std::max(first_hop, setting.topology.path(home.front(), root.front()).latency);
      for (std::size_t head = 0; head < grid.heads; ++head)
        phase.add(home[head], root[head], over.share(bytes));
    }
    add_edges(phase, over, bytes, TreeWay::down);
    for (std::size_t node = 1; node < grid.nodes.size(); ++node) {
      gather_from_heads(phase, grid.nodes[node], grid.heads, bytes);
    }
    latency += first_hop + depth(setting.topology, over);
  }
  return phase.finish(latency);
}

}  // namespace orrery
