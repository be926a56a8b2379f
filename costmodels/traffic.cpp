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

std::vector<int> lane_members(const PricedPlan& plan, const std::vector<int>& ranks, int lane) {
  std::vector<int> gpus;
  gpus.reserve(ranks.size());
  for (const int rank : ranks) gpus.push_back(plan.gpus[static_cast<std::size_t>(rank)][static_cast<std::size_t>(lane)]);
  return gpus;
}

class TailBuilder {
 public:
  TailBuilder(const PricedPlan& plan, const Topology& topology, int lanes)
      : plan_(plan), topology_(topology), lanes_(lanes) {
    tail_.programs.resize(plan.gpus.size());
  }

  void collective(CollectiveKind kind, Bytes bytes, const TransferEfficiency& efficiency, std::vector<int> ranks,
                  int lanes) {
    if (ranks.size() < 2 || bytes.value() <= 0) return;
    TailCollective collective;
    for (int lane = 0; lane < lanes; ++lane) {
      collective.lanes.push_back(ring_flows(topology_, kind, bytes, efficiency, lane_members(plan_, ranks, lane)));
    }
    for (const int rank : ranks) {
      tail_.programs[static_cast<std::size_t>(rank)].push_back({false, static_cast<int>(tail_.collectives.size())});
    }
    collective.ranks = std::move(ranks);
    tail_.collectives.push_back(std::move(collective));
  }

  // One collective over the replicas of every stage.
  void over_replicas(CollectiveKind kind, Bytes StageReduction::*bytes) {
    for (int stage = 0; stage < plan_.stages() && !plan_.reductions.empty(); ++stage) {
      const StageReduction& reduction = plan_.reductions[static_cast<std::size_t>(stage)];
      std::vector<int> ranks;
      for (int replica = 0; replica < plan_.replicas; ++replica) ranks.push_back(replica * plan_.stages() + stage);
      collective(kind, reduction.*bytes, reduction.efficiency, std::move(ranks), lanes_);
    }
  }

  // One collective over the named stages of every replica.
  void over_stages(Bytes bytes, const std::vector<int>& stages, int lanes) {
    for (int replica = 0; replica < plan_.replicas; ++replica) {
      std::vector<int> ranks;
      for (const int stage : stages) ranks.push_back(replica * plan_.stages() + stage);
      collective(CollectiveKind::all_reduce, bytes, {}, std::move(ranks), lanes);
    }
  }

  void optimizer() {
    for (auto& program : tail_.programs) program.push_back({true, 0});
  }

  Tail take() { return std::move(tail_); }

 private:
  const PricedPlan& plan_;
  const Topology& topology_;
  int lanes_;
  Tail tail_;
};

// A signature of where a flow goes: lanes that do the same have equal signatures and disjoint links.
struct LaneUse {
  std::vector<LinkSpec> paths;
  std::vector<int> links;
};

void use(const Topology& topology, LaneUse& lane, int from, int to) {
  lane.paths.push_back(topology.path(from, to));
  const Route route = topology.route(from, to);
  for (int i = 0; i < route.count; ++i) lane.links.push_back(route.links[static_cast<std::size_t>(i)]);
}

// The pairs of neighbours of a lane: stages that exchange messages, and replicas that are neighbours in a ring.
LaneUse lane_use(const PricedPlan& plan, const Topology& topology, int lane) {
  LaneUse result;
  const auto gpu = [&](int replica, int stage) { return plan.lanes(replica, stage)[static_cast<std::size_t>(lane)]; };
  for (int replica = 0; replica < plan.replicas; ++replica) {
    for (int stage = 0; stage < plan.stages(); ++stage) {
      const int next_stage = (stage + 1) % plan.stages();
      const int next_replica = (replica + 1) % plan.replicas;
      use(topology, result, gpu(replica, stage), gpu(replica, next_stage));
      use(topology, result, gpu(replica, next_stage), gpu(replica, stage));
      use(topology, result, gpu(replica, stage), gpu(next_replica, stage));
    }
  }
  return result;
}

}  // namespace

Tail make_tail(const PricedPlan& plan, const Topology& topology, int lanes) {
  TailBuilder builder(plan, topology, lanes);
  std::vector<int> all_stages(static_cast<std::size_t>(plan.stages()));
  std::iota(all_stages.begin(), all_stages.end(), 0);
  builder.over_replicas(plan.reduction == GradientReduction::all_reduce ? CollectiveKind::all_reduce
                                                                         : CollectiveKind::reduce_scatter,
                        &StageReduction::gradients);
  if (plan.embedding_gradient && plan.stages() > 1) {
    builder.over_stages(*plan.embedding_gradient, {0, plan.stages() - 1}, lanes);
  }
  if (plan.gradient_norm) builder.over_stages(Bytes(4), all_stages, 1);
  if (!plan.optimizer.empty()) builder.optimizer();
  builder.over_replicas(CollectiveKind::all_gather, &StageReduction::gathered);
  return builder.take();
}

int lanes_to_play(const PricedPlan& plan, const Topology& topology) {
  std::size_t lanes = plan.gpus.front().size();
  for (const auto& gpus : plan.gpus) lanes = std::min(lanes, gpus.size());
  if (lanes == 1) return 1;
  std::vector<int> owner(topology.links().size(), -1);
  const LaneUse first = lane_use(plan, topology, 0);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const LaneUse used = lane_use(plan, topology, static_cast<int>(lane));
    if (used.paths != first.paths) return static_cast<int>(lanes);
    for (const int link : used.links) {
      int& lane_of_link = owner[static_cast<std::size_t>(link)];
      if (lane_of_link >= 0 && lane_of_link != static_cast<int>(lane)) return static_cast<int>(lanes);
      lane_of_link = static_cast<int>(lane);
    }
  }
  return 1;
}

Seconds together(const Topology& topology, const std::vector<Flow>& flows) {
  Seconds longest;
  std::map<int, Seconds> busy;  // of every link crossed
  const bool shared = topology.cluster().contention == Contention::shared;
  for (const Flow& flow : flows) {
    const LinkSpec path = topology.path(flow.from, flow.to);
    longest = std::max(longest, path.latency + flow.wire / path.bandwidth);
    if (!shared) continue;
    const Route route = topology.route(flow.from, flow.to);
    for (int i = 0; i < route.count; ++i) {
      const int link = route.links[static_cast<std::size_t>(i)];
      Seconds& time = busy[link];
      time += flow.wire / topology.links()[static_cast<std::size_t>(link)].spec.bandwidth;
      longest = std::max(longest, path.latency + time);
    }
  }
  return longest;
}

}  // namespace orrery
