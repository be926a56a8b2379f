#include "costmodels/collectives/collective_flows.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "costmodels/collectives/collective_choice.hpp"
#include "costmodels/collectives/collective_phase.hpp"
#include "costmodels/collectives/collective_tree.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr std::array<std::pair<CollectiveAlgorithm, std::string_view>, 4> kNames{
    {{CollectiveAlgorithm::ring, "ring"},
     {CollectiveAlgorithm::double_binary_tree, "double_binary_tree"},
     {CollectiveAlgorithm::hierarchical, "hierarchical"},
     {CollectiveAlgorithm::direct, "direct"}}};

double size_of(const Members& members) {
  return static_cast<double>(members.size());
}

double rounds(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce ? 2.0 : 1.0;
}

std::size_t steps_of(CollectiveKind kind, std::size_t members) {
  return static_cast<std::size_t>(rounds(kind)) * (members - 1);
}

// Runs of neighbours in one node, in ring order; the ring is closed.
std::vector<Members> runs_in_node(const Topology& topology, const Members& gpus) {
  std::vector<Members> runs;
  for (const int gpu : gpus) {
    if (runs.empty() || !topology.same_node(runs.back().front(), gpu)) runs.emplace_back();
    runs.back().push_back(gpu);
  }
  if (runs.size() > 1 && topology.same_node(runs.front().front(), runs.back().front())) {
    runs.front().insert(runs.front().begin(), runs.back().begin(), runs.back().end());
    runs.pop_back();
  }
  return runs;
}

// Every hop carries 2 (n-1)/n of an all-reduce's bytes, (n-1)/n of the others', on one channel or as many as
// the shortest run of neighbours in a node has members (NCCL: a channel a NIC). Channel c enters a run at its
// member c, goes round and leaves from the member before; members that no channel enters at have all of it on
// both sides.
FlowPhase ring(const FlowSetting& setting, const CollectiveCall& call) {
  PhaseBuilder phase(setting);
  std::vector<Seconds> hops;  // of the slowest channel
  const double members = size_of(call.gpus);
  const Bytes hop = call.bytes * (rounds(call.kind) * (members - 1) / members);
  const auto runs = runs_in_node(setting.topology, call.gpus);
  std::size_t channels = call.one_channel ? 1 : call.gpus.size();
  for (const Members& local : runs) channels = std::min(channels, local.size());
  const bool closed = runs.size() == 1;  // the ring stays in the node: every hop carries everything
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const Members& local = runs[run];
    for (std::size_t i = 0; local.size() > 1 && i < local.size(); ++i) {
      const std::size_t next = (i + 1) % local.size();
      const std::size_t passing = closed || next >= channels ? channels : channels - 1;
      const Bytes carried = hop * (static_cast<double>(passing) / static_cast<double>(channels));
      const Seconds latency =
          passing > 0 ? phase.add(local[i], local[next], carried) : phase.latency(local[i], local[next]);
      if (closed || next != 0) hops.push_back(latency);
    }
    if (closed) break;
    const Members& next = runs[(run + 1) % runs.size()];
    Seconds crossing;
    for (std::size_t i = 0; i < channels; ++i) {
      const std::size_t exit = i + 1 < channels ? i : local.size() - 1;
      crossing =
          std::max(crossing, phase.add(local[exit], next[i], hop * (1.0 / static_cast<double>(channels))));
    }
    hops.push_back(crossing);
  }
  return phase.finish(chain_latency(hops, steps_of(call.kind, call.gpus.size())));
}

// Every pair exchanges its share at once. An all-reduce is a reduce-scatter and an all-gather.
std::vector<FlowPhase> direct(const FlowSetting& setting, const CollectiveCall& call) {
  PhaseBuilder phase(setting);
  for (const int from : call.gpus) {
    for (const int to : call.gpus) {
      if (from != to) phase.add(from, to, call.bytes / size_of(call.gpus));
    }
  }
  return std::vector<FlowPhase>(call.kind == CollectiveKind::all_reduce ? 2 : 1, phase.finish(1));
}

// The hierarchical collectives. Nodes of unequal size have as many heads as the smallest has members; the
// parts of the other members go through the heads.
class Hierarchy {
 public:
  Hierarchy(const FlowSetting& setting, const CollectiveCall& call)
      : setting_(setting), call_(call), grid_(by_node(setting.topology, call.gpus)) {}

  std::vector<FlowPhase> phases() {
    const bool gathers = call_.kind != CollectiveKind::reduce_scatter;
    const bool reduces = call_.kind != CollectiveKind::all_gather;
    if (reduces) inside(reduce_to_heads);
    if (!reduces)
      others([](PhaseBuilder& phase, int head, int other, Bytes part) { phase.add(other, head, part); });
    between();
    if (!gathers)
      others([](PhaseBuilder& phase, int head, int other, Bytes part) { phase.add(head, other, part); });
    if (gathers) inside(gather_from_heads);
    return std::move(phases_);
  }

 private:
  template <class Move>
  void inside(Move move) {
    PhaseBuilder phase(setting_);
    for (const Members& local : grid_.nodes) move(phase, local, grid_.heads, call_.bytes);
    push(phase.finish(static_cast<double>(largest_node(grid_) - 1)));
  }

  // Between the heads of a node and its other members, whose part of the vector is spread over all heads.
  template <class Move>
  void others(Move move) {
    PhaseBuilder phase(setting_);
    const Bytes part = call_.bytes / (size_of(call_.gpus) * heads());
    for (const Members& local : grid_.nodes) {
      for (std::size_t other = grid_.heads; other < local.size(); ++other) {
        for (std::size_t head = 0; head < grid_.heads; ++head) move(phase, local[head], local[other], part);
      }
    }
    push(phase.finish(1));
  }

  // One ring for each head over all nodes.
  void between() {
    const std::size_t nodes = grid_.nodes.size();
    if (nodes == 1) return;
    PhaseBuilder phase(setting_);
    std::vector<Seconds> hops;
    for (std::size_t node = 0; node < nodes; ++node) {
      const std::size_t next = (node + 1) % nodes;
      hops.emplace_back();
      for (std::size_t head = 0; head < grid_.heads; ++head) {
        const int from = grid_.nodes[node][head], to = grid_.nodes[next][head];
        phase.add(from, to, call_.bytes * (crossing(node, next) / heads()));
        hops.back() = std::max(hops.back(), phase.latency(from, to));
      }
    }
    push(phase.finish(chain_latency(hops, steps_of(call_.kind, nodes))));
  }

  // What crosses the hop between two nodes: in a reduce-scatter all but the part that ends where the hop
  // begins, in an all-gather all but the part that began where it ends. A node's part is as large as its
  // members' parts together.
  [[nodiscard]] double crossing(std::size_t node, std::size_t next) const {
    switch (call_.kind) {
      case CollectiveKind::reduce_scatter:
        return 1 - size_of(grid_.nodes[node]) / size_of(call_.gpus);
      case CollectiveKind::all_gather:
        return 1 - size_of(grid_.nodes[next]) / size_of(call_.gpus);
      case CollectiveKind::all_reduce:
      case CollectiveKind::all_to_all:
        break;
    }
    return 2 * (1 - 1 / static_cast<double>(grid_.nodes.size()));
  }

  [[nodiscard]] double heads() const { return static_cast<double>(grid_.heads); }
  void push(FlowPhase phase) {
    if (!phase.flows.empty()) phases_.push_back(std::move(phase));
  }

  const FlowSetting& setting_;
  const CollectiveCall& call_;
  NodeGrid grid_;
  std::vector<FlowPhase> phases_;
};

// A chain from the root through its node, then from heads to heads; the other nodes gather inside.
FlowPhase chain_broadcast(const FlowSetting& setting, const BroadcastCall& call) {
  const NodeGrid grid = by_node(setting.topology, call.gpus);
  PhaseBuilder phase(setting);
  gather_from_heads(phase, grid.nodes.front(), 1, call.bytes);
  Seconds latency;
  const auto add_inside = [&](const Members& local) {
    for (std::size_t i = 1; i < local.size(); ++i) latency += phase.latency(local[i - 1], local[i]);
  };
  add_inside(grid.nodes.front());
  for (std::size_t node = 1; node < grid.nodes.size(); ++node) {
    Seconds crossing;
    for (std::size_t head = 0; head < grid.heads; ++head) {
      const int from = grid.nodes[node - 1][head], to = grid.nodes[node][head];
      phase.add(from, to, call.bytes / static_cast<double>(grid.heads));
      crossing = std::max(crossing, phase.latency(from, to));
    }
    latency += crossing;
    gather_from_heads(phase, grid.nodes[node], grid.heads, call.bytes);
    add_inside(grid.nodes[node]);
  }
  return phase.finish(latency);
}

FlowPhase star_broadcast(const FlowSetting& setting, const BroadcastCall& call) {
  PhaseBuilder phase(setting);
  for (std::size_t i = 1; i < call.gpus.size(); ++i) phase.add(call.gpus.front(), call.gpus[i], call.bytes);
  return phase.finish(1);
}

}  // namespace

std::string_view to_text(CollectiveAlgorithm algorithm) {
  for (const auto& [value, name] : kNames) {
    if (value == algorithm) return name;
  }
  return "?";
}

CollectiveAlgorithm parse_collective_algorithm(std::string_view text, const std::string& place) {
  std::vector<std::string> names;
  for (const auto& [value, name] : kNames) {
    if (name == text) return value;
    names.emplace_back(name);
  }
  throw InputError(place, quote_for_message(text),
                   "ring, double_binary_tree, hierarchical or direct" + did_you_mean(text, names));
}

bool can_run(CollectiveAlgorithm algorithm, CollectiveKind kind) {
  switch (algorithm) {
    case CollectiveAlgorithm::ring:
    case CollectiveAlgorithm::hierarchical:
      return kind != CollectiveKind::all_to_all;
    case CollectiveAlgorithm::double_binary_tree:
      return kind == CollectiveKind::all_reduce;
    case CollectiveAlgorithm::direct:
      break;
  }
  return true;
}

bool can_broadcast(CollectiveAlgorithm algorithm) {
  return algorithm != CollectiveAlgorithm::hierarchical;
}

void add_side_by_side(std::vector<FlowPhase>& all, std::vector<FlowPhase> more) {
  if (all.size() < more.size()) all.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) {
    all[i].flows.insert(all[i].flows.end(), more[i].flows.begin(), more[i].flows.end());
    all[i].tail = std::max(all[i].tail, more[i].tail);
  }
}

std::vector<FlowPhase> collective_flows(const Topology& topology, const CollectiveCall& call,
                                        const std::vector<int>* images) {
  const FlowSetting setting{topology, call.efficiency, images};
  if (call.gpus.size() < 2) return {};
  const CollectiveAlgorithm algorithm = call.algorithm ? *call.algorithm : nccl_choice(topology, call);
  ORRERY_ENSURE(can_run(algorithm, call.kind));
  switch (algorithm) {
    case CollectiveAlgorithm::ring:
      return {ring(setting, call)};
    case CollectiveAlgorithm::double_binary_tree:
      return {tree_all_reduce(setting, call.gpus, call.bytes)};
    case CollectiveAlgorithm::hierarchical:
      return Hierarchy(setting, call).phases();
    case CollectiveAlgorithm::direct:
      break;
  }
  return direct(setting, call);
}

std::vector<FlowPhase> broadcast_flows(const Topology& topology, const BroadcastCall& call) {
  const FlowSetting setting{topology, call.efficiency};
  if (call.gpus.size() < 2) return {};
  const CollectiveAlgorithm algorithm = call.algorithm.value_or(CollectiveAlgorithm::ring);
  ORRERY_ENSURE(can_broadcast(algorithm));
  switch (algorithm) {
    case CollectiveAlgorithm::ring:
      return {chain_broadcast(setting, call)};
    case CollectiveAlgorithm::double_binary_tree:
      return {tree_broadcast(setting, call.gpus, call.bytes)};
    case CollectiveAlgorithm::direct:
    case CollectiveAlgorithm::hierarchical:
      break;
  }
  return {star_broadcast(setting, call)};
}

}  // namespace orrery
