#include "costmodels/traffic.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace orrery {
namespace {

double efficiency_of(const Topology& topology, const TransferEfficiency& efficiency, int from, int to) {
  return topology.same_node(from, to) ? efficiency.inside : efficiency.between;
}

// Members of the ring node by node, in ring order.
std::vector<std::vector<int>> by_node(const Topology& topology, const std::vector<int>& gpus) {
  std::vector<std::vector<int>> nodes;
  for (const int gpu : gpus) {
    if (nodes.empty() || !topology.same_node(nodes.back().front(), gpu)) nodes.emplace_back();
    nodes.back().push_back(gpu);
  }
  if (nodes.size() > 1 && topology.same_node(nodes.front().front(), nodes.back().front())) {
    nodes.front().insert(nodes.front().end(), nodes.back().begin(), nodes.back().end());
    nodes.pop_back();
  }
  return nodes;
}

// Shares of the vector that cross every hop of the ring.
double ring_rounds(CollectiveKind kind) { return kind == CollectiveKind::all_reduce ? 2.0 : 1.0; }

}  // namespace

Bytes wire_bytes(Bytes payload, double efficiency) {
  return Bytes(std::max(1.0, std::round(payload.value() / efficiency)));
}

Flow message_flow(const Topology& topology, const BoundaryMessage& message, int from_gpu, int to_gpu) {
  const double efficiency = efficiency_of(topology, message.efficiency, from_gpu, to_gpu);
  return {from_gpu, to_gpu, wire_bytes(message.bytes, efficiency), message.bytes};
}

CollectiveFlows ring_flows(const Topology& topology, CollectiveKind kind, Bytes bytes,
                           const TransferEfficiency& efficiency, const std::vector<int>& gpus) {
  CollectiveFlows collective;
  collective.kind = kind;
  const auto members = static_cast<double>(gpus.size());
  if (gpus.size() < 2) return collective;
  const Bytes hop = bytes * (ring_rounds(kind) * (members - 1) / members);
  Seconds hop_latency;
  const auto add = [&](int from, int to, double share) {
    const double reached = efficiency_of(topology, efficiency, from, to);
    collective.flows.push_back({from, to, wire_bytes(hop * share, reached), hop * share});
    hop_latency = std::max(hop_latency, topology.path(from, to).latency);
  };
  const auto nodes = by_node(topology, gpus);
  std::size_t channels = gpus.size();
  for (const auto& local : nodes) channels = std::min(channels, local.size());
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const std::vector<int>& local = nodes[node];
    const bool closed = nodes.size() == 1;  // the ring stays in the node: every hop carries everything
    const double inside_share = closed ? 1.0 : static_cast<double>(local.size() - 1) / static_cast<double>(local.size());
    for (std::size_t i = 0; local.size() > 1 && i < local.size(); ++i) {
      add(local[i], local[(i + 1) % local.size()], inside_share);
    }
    if (closed) break;
    const std::vector<int>& next = nodes[(node + 1) % nodes.size()];
    for (std::size_t i = 0; i < channels; ++i) add(local[i], next[i], 1.0 / static_cast<double>(channels));
  }
  const double steps = ring_rounds(kind) * (members - 1);
  collective.tail = (steps - 1) * hop_latency;
  return collective;
}

Flow lane_flow(const PricedPlan& plan, const Topology& topology, int replica, const Message& message, int lane) {
  const auto at = static_cast<std::size_t>(lane);
  return message_flow(topology, plan.boundaries[static_cast<std::size_t>(message.boundary)],
                      plan.lanes(replica, message.from_rank)[at], plan.lanes(replica, message.to_rank)[at]);
}

namespace {

std::size_t lane_count(const PricedPlan& plan) {
  std::size_t lanes = plan.gpus.front().size();
  for (const auto& gpus : plan.gpus) lanes = std::min(lanes, gpus.size());
  return lanes;
}

int tensor_ways(const PricedPlan& plan) { return static_cast<int>(lane_count(plan)) / plan.context; }

// Who reduces gradients with lane `lane` of a stage, in rank order: equal tensor rank, every replica and context rank.
std::vector<int> reduction_members(const PricedPlan& plan, int stage, int lane) {
  const int tensor = tensor_ways(plan);
  std::vector<int> gpus;
  for (int replica = 0; replica < plan.replicas; ++replica) {
    for (int context = 0; context < plan.context; ++context) {
      gpus.push_back(plan.lanes(replica, stage)[static_cast<std::size_t>(context * tensor + lane % tensor)]);
    }
  }
  return gpus;
}

class TailBuilder {
 public:
  TailBuilder(const PricedPlan& plan, const Topology& topology, const std::vector<int>& lanes)
      : plan_(plan), topology_(topology), lanes_(lanes) {
    tail_.programs.resize(plan.gpus.size());
  }

  // One ring for each tensor rank played, over the replicas and context ranks of every stage.
  void over_replicas(CollectiveKind kind, Bytes StageReduction::*bytes) {
    if (plan_.replicas * plan_.context < 2) return;
    for (int stage = 0; stage < plan_.stages() && !plan_.reductions.empty(); ++stage) {
      const StageReduction& reduction = plan_.reductions[static_cast<std::size_t>(stage)];
      TailCollective collective;
      for (const int lane : lanes_) {
        if (lane >= tensor_ways(plan_)) continue;
        collective.lanes.push_back(ring_flows(topology_, kind, reduction.*bytes, reduction.efficiency,
                                              reduction_members(plan_, stage, lane)));
      }
      for (int replica = 0; replica < plan_.replicas; ++replica) {
        collective.ranks.push_back(replica * plan_.stages() + stage);
      }
      add(std::move(collective), reduction.*bytes);
    }
  }

  // One ring for each of `lanes` over the named stages of every replica.
  void over_stages(Bytes bytes, const std::vector<int>& stages, const std::vector<int>& lanes) {
    if (stages.size() < 2) return;
    for (int replica = 0; replica < plan_.replicas; ++replica) {
      TailCollective collective;
      for (const int lane : lanes) {
        std::vector<int> gpus;
        for (const int stage : stages) gpus.push_back(plan_.lanes(replica, stage)[static_cast<std::size_t>(lane)]);
        collective.lanes.push_back(ring_flows(topology_, CollectiveKind::all_reduce, bytes, {}, gpus));
      }
      for (const int stage : stages) collective.ranks.push_back(replica * plan_.stages() + stage);
      add(std::move(collective), bytes);
    }
  }

  void optimizer() {
    for (auto& program : tail_.programs) program.push_back({true, 0});
  }

  Tail take() { return std::move(tail_); }

 private:
  void add(TailCollective collective, Bytes bytes) {
    if (bytes.value() <= 0) return;
    for (const int rank : collective.ranks) {
      tail_.programs[static_cast<std::size_t>(rank)].push_back({false, static_cast<int>(tail_.collectives.size())});
    }
    tail_.collectives.push_back(std::move(collective));
  }

  const PricedPlan& plan_;
  const Topology& topology_;
  const std::vector<int>& lanes_;
  Tail tail_;
};

// The routes of all that one tensor rank sends, in an order that is the same for all: its messages, which stand for the
// embedding gradient too, and its rings of gradients.
std::vector<Route> tensor_rank_routes(const PricedPlan& plan, const Topology& topology, int tensor_rank) {
  std::vector<Route> routes;
  const int tensor = tensor_ways(plan);
  for (int stage = 0; stage < plan.stages(); ++stage) {
    const auto ring = ring_flows(topology, CollectiveKind::all_reduce, Bytes(1), {},
                                 reduction_members(plan, stage, tensor_rank));
    for (const Flow& flow : ring.flows) routes.push_back(topology.route(flow.from, flow.to));
    for (int replica = 0; replica < plan.replicas; ++replica) {
      for (int context = 0; context < plan.context; ++context) {
        const auto lane = static_cast<std::size_t>(context * tensor + tensor_rank);
        const int here = plan.lanes(replica, stage)[lane];
        const int next = plan.lanes(replica, (stage + 1) % plan.stages())[lane];
        routes.push_back(topology.route(here, next));
        routes.push_back(topology.route(next, here));
      }
    }
  }
  return routes;
}

// Pairs every link of tensor rank 0 with one link of each other tensor rank: equal to it, in its place on every route,
// and used by nobody else.
class LinkPairs {
 public:
  LinkPairs(const Topology& topology, const std::vector<Route>& first) : topology_(topology), first_(first) {
    owner_.resize(topology.links().size());
  }

  bool add(int tensor_rank, const std::vector<Route>& routes) {
    partner_.assign(topology_.links().size(), std::nullopt);
    if (routes.size() != first_.size()) return false;
    for (std::size_t i = 0; i < routes.size(); ++i) {
      if (routes[i].count != first_[i].count) return false;
      for (std::size_t link = 0; link < static_cast<std::size_t>(routes[i].count); ++link) {
        if (!pair(tensor_rank, first_[i].links[link], routes[i].links[link])) return false;
      }
    }
    return true;
  }

 private:
  bool pair(int tensor_rank, int first, int link) {
    const auto a = static_cast<std::size_t>(first);
    const auto b = static_cast<std::size_t>(link);
    if (!owner_[b]) owner_[b] = {tensor_rank, first};
    if (!partner_[a]) partner_[a] = link;
    return owner_[b] == std::pair(tensor_rank, first) && partner_[a] == link &&
           topology_.links()[a].spec == topology_.links()[b].spec;
  }

  const Topology& topology_;
  const std::vector<Route>& first_;
  std::vector<std::optional<std::pair<int, int>>> owner_;  // [link]: tensor rank, and the link of rank 0 it pairs with
  std::vector<std::optional<int>> partner_;                // [link of rank 0]: of the tensor rank being added
};

std::vector<int> count_up(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

bool tensor_ranks_alike(const PricedPlan& plan, const Topology& topology) {
  const std::vector<Route> first = tensor_rank_routes(plan, topology, 0);
  LinkPairs pairs(topology, first);
  for (int tensor_rank = 0; tensor_rank < tensor_ways(plan); ++tensor_rank) {
    if (!pairs.add(tensor_rank, tensor_rank_routes(plan, topology, tensor_rank))) return false;
  }
  return true;
}

}  // namespace

Tail make_tail(const PricedPlan& plan, const Topology& topology, const std::vector<int>& lanes) {
  TailBuilder builder(plan, topology, lanes);
  builder.over_replicas(plan.reduction == GradientReduction::all_reduce ? CollectiveKind::all_reduce
                                                                         : CollectiveKind::reduce_scatter,
                        &StageReduction::gradients);
  if (plan.embedding_gradient && plan.stages() > 1) {
    builder.over_stages(*plan.embedding_gradient, {0, plan.stages() - 1}, lanes);
  }
  if (plan.gradient_norm) builder.over_stages(Bytes(4), count_up(plan.stages()), {0});
  if (!plan.optimizer.empty()) builder.optimizer();
  builder.over_replicas(CollectiveKind::all_gather, &StageReduction::gathered);
  return builder.take();
}

std::vector<int> lanes_to_play(const PricedPlan& plan, const Topology& topology) {
  const int tensor = tensor_ways(plan);
  if (tensor > 1 && !tensor_ranks_alike(plan, topology)) return count_up(static_cast<int>(lane_count(plan)));
  std::vector<int> lanes;
  for (int context = 0; context < plan.context; ++context) lanes.push_back(context * tensor);
  return lanes;
}

Seconds together(const Topology& topology, const std::vector<Flow>& flows) {
  struct Load {
    Seconds busy;
    Seconds latency;  // the least of its flows': until then it is idle
  };
  std::map<int, Load> loads;  // of every link crossed
  Seconds longest;
  const bool shared = topology.cluster().contention == Contention::shared;
  for (const Flow& flow : flows) {
    const LinkSpec path = topology.path(flow.from, flow.to);
    longest = std::max(longest, path.latency + flow.wire / path.bandwidth);
    if (!shared) continue;
    const Route route = topology.route(flow.from, flow.to);
    for (int i = 0; i < route.count; ++i) {
      const int link = route.links[static_cast<std::size_t>(i)];
      Load& load = loads.try_emplace(link, Load{Seconds(0), path.latency}).first->second;
      load.busy += flow.wire / topology.links()[static_cast<std::size_t>(link)].spec.bandwidth;
      load.latency = std::min(load.latency, path.latency);
    }
  }
  for (const auto& [link, load] : loads) longest = std::max(longest, load.latency + load.busy);
  return longest;
}

}  // namespace orrery
