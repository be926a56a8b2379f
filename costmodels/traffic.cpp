#include "costmodels/traffic.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "costmodels/folding.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

// Members of the ring node by node, in ring order.
std::vector<std::vector<int>> by_node(const Topology& topology, const std::vector<int>& gpus) {
  std::vector<std::vector<int>> nodes;
  for (const int gpu : gpus) {
    if (nodes.empty() || !topology.same_node(nodes.back().front(), gpu)) nodes.emplace_back();
    nodes.back().push_back(gpu);
  }
  if (nodes.size() > 1 && topology.same_node(nodes.front().front(), nodes.back().front())) {
    nodes.front().insert(nodes.front().begin(), nodes.back().begin(), nodes.back().end());
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

Flow make_flow(const Topology& topology, int from, int to, Bytes payload, const TransferEfficiency& efficiency) {
  const double reached = topology.same_node(from, to) ? efficiency.inside : efficiency.between;
  return {from, to, wire_bytes(payload, reached), payload, topology.route(from, to), topology.path(from, to)};
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
    collective.flows.push_back(make_flow(topology, from, to, hop * share, efficiency));
    hop_latency = std::max(hop_latency, collective.flows.back().path.latency);
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

Seconds together(const Topology& topology, const std::vector<Flow>& flows) {
  struct Load {
    Seconds busy;
    Seconds latency;  // the least of its flows': until then it is idle
  };
  Seconds longest;
  std::map<int, Load> loads;  // of every link crossed
  const bool shared = flows.size() > 1 && topology.cluster().contention == Contention::shared;
  for (const Flow& flow : flows) {
    if (flow.route.count > 0) longest = std::max(longest, flow.path.latency + flow.wire / flow.path.bandwidth);
    for (int i = 0; shared && i < flow.route.count; ++i) {
      const int link = flow.route.links[static_cast<std::size_t>(i)];
      Load& load = loads.try_emplace(link, Load{Seconds(0), flow.path.latency}).first->second;
      load.busy += flow.wire / topology.links()[static_cast<std::size_t>(link)].spec.bandwidth;
      load.latency = std::min(load.latency, flow.path.latency);
    }
  }
  for (const auto& [link, load] : loads) longest = std::max(longest, load.latency + load.busy);
  return longest;
}

TrafficFlows::TrafficFlows(const PricedPlan& plan, const PlanPrograms& programs, const Topology& topology,
                           Folding folding)
    : plan_(plan),
      schedule_(programs.programs.front()),
      topology_(topology),
      rank_of_gpu_(static_cast<std::size_t>(topology.gpus()), -1),
      image_(static_cast<std::size_t>(topology.gpus()), -1) {
  replicas_ = folding == Folding::on ? folding_period(plan, topology) : plan.replicas;
  lanes_.resize(static_cast<std::size_t>(tensor_ways(plan) * plan.context));
  std::iota(lanes_.begin(), lanes_.end(), 0);
  if (folding == Folding::on) lanes_ = lanes_to_play(plan, topology);
  for (std::size_t rank = 0; rank < plan.gpus.size(); ++rank) {
    const std::size_t image = rank % static_cast<std::size_t>(ranks());
    for (std::size_t lane = 0; lane < plan.gpus[rank].size(); ++lane) {
      const auto gpu = static_cast<std::size_t>(plan.gpus[rank][lane]);
      rank_of_gpu_[gpu] = static_cast<int>(rank);
      image_[gpu] = plan.gpus[image][lane];
    }
  }
  build_messages();
  build_collectives();
}

double TrafficFlows::lanes_each() const {
  return static_cast<double>(tensor_ways(plan_) * plan_.context) / static_cast<double>(lanes_.size());
}

void TrafficFlows::build_messages() {
  for (int replica = 0; replica < replicas_; ++replica) {
    for (int boundary = 0; boundary < schedule_.boundaries(); ++boundary) {
      const auto at = static_cast<std::size_t>(boundary);
      const BoundaryMessage& message = plan_.boundaries[at];
      const std::vector<int>& before = plan_.lanes(replica, schedule_.rank_of_part[at]);
      const std::vector<int>& after = plan_.lanes(replica, schedule_.rank_of_part[at + 1]);
      std::vector<Flow> forward, backward;
      for (const int lane : lanes_) {
        const auto l = static_cast<std::size_t>(lane);
        forward.push_back(make_flow(topology_, before[l], after[l], message.bytes, message.efficiency));
        backward.push_back(make_flow(topology_, after[l], before[l], message.bytes, message.efficiency));
      }
      messages_.push_back(std::move(forward));
      messages_.push_back(std::move(backward));
    }
  }
}

const std::vector<Flow>& TrafficFlows::message(int replica, int boundary, bool gradient) const {
  return messages_[static_cast<std::size_t>((replica * schedule_.boundaries() + boundary) * 2 + (gradient ? 1 : 0))];
}

// Where a ring's hop leaves the played replicas, its far end becomes the image of that end. Both links of such a route
// belong to its two GPUs alone: folding_period has made sure.
Flow TrafficFlows::folded(Flow flow) const {
  const int image = image_[static_cast<std::size_t>(flow.to)];
  if (image == flow.to) return flow;
  const bool inside = topology_.same_node(flow.from, flow.to);
  flow.route.links[1] = (inside ? topology_.gpu_link_up(image) : topology_.nic_up(image)) + 1;
  flow.to = image;
  return flow;
}

CollectiveFlows TrafficFlows::over_replicas(CollectiveKind kind, Bytes bytes, const TransferEfficiency& efficiency,
                                            int stage) const {
  CollectiveFlows all;
  all.kind = kind;
  for (const int lane : lanes_) {
    if (lane >= tensor_ways(plan_)) continue;  // a ring holds all context ranks of its tensor rank
    const CollectiveFlows ring =
        ring_flows(topology_, kind, bytes, efficiency, reduction_members(plan_, stage, lane));
    for (const Flow& flow : ring.flows) {
      if (rank_of_gpu_[static_cast<std::size_t>(flow.from)] < ranks()) all.flows.push_back(folded(flow));
    }
    all.tail = std::max(all.tail, ring.tail);
  }
  return all;
}

CollectiveFlows TrafficFlows::over_stages(Bytes bytes, const std::vector<int>& stages, int replica,
                                          const std::vector<int>& lanes) const {
  CollectiveFlows all;
  for (const int lane : lanes) {
    std::vector<int> gpus;
    for (const int stage : stages) gpus.push_back(plan_.lanes(replica, stage)[static_cast<std::size_t>(lane)]);
    const CollectiveFlows ring = ring_flows(topology_, CollectiveKind::all_reduce, bytes, {}, gpus);
    all.flows.insert(all.flows.end(), ring.flows.begin(), ring.flows.end());
    all.tail = std::max(all.tail, ring.tail);
  }
  return all;
}

std::vector<int> TrafficFlows::end_stages() const {
  return {schedule_.rank_of_part.front(), schedule_.rank_of_part.back()};
}

std::vector<int> TrafficFlows::all_stages() const {
  std::vector<int> stages(static_cast<std::size_t>(plan_.stages()));
  std::iota(stages.begin(), stages.end(), 0);
  return stages;
}

// Flows are the same in every iteration: gradients by part, parameters by part, embedding and norm by replica.
std::size_t TrafficFlows::flows_index(const CollectiveSlot& slot, int replica) const {
  const std::size_t parts = plan_.parts.size();
  const auto part = static_cast<std::size_t>(slot.part);
  const auto of_replica = static_cast<std::size_t>(replica);
  switch (slot.role) {
    case CollectiveRole::gradients: return part;
    case CollectiveRole::parameters: return parts + part;
    case CollectiveRole::embedding: return 2 * parts + of_replica;
    case CollectiveRole::gradient_norm: return 2 * parts + static_cast<std::size_t>(replicas_) + of_replica;
  }
  return 0;
}

void TrafficFlows::build_collectives() {
  collectives_.resize(2 * plan_.parts.size() + 2 * static_cast<std::size_t>(replicas_));
  const CollectiveKind reduce =
      plan_.distributed_optimizer ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
  for (const CollectiveSlot& slot : schedule_.collectives) {
    const auto part = static_cast<std::size_t>(slot.part);
    for (int replica = 0; replica < replicas_; ++replica) {
      CollectiveFlows& flows = collectives_[flows_index(slot, replica)];
      if (!flows.flows.empty()) continue;
      switch (slot.role) {
        case CollectiveRole::gradients:
        case CollectiveRole::parameters: {
          const PartReduction& reduction = plan_.reductions[part];
          const bool gradients = slot.role == CollectiveRole::gradients;
          flows = over_replicas(gradients ? reduce : CollectiveKind::all_gather,
                                (gradients ? reduction.gradients : reduction.gathered) / slot.buckets,
                                gradients ? reduction.efficiency : reduction.gather_efficiency,
                                schedule_.rank_of_part[part]);
          break;
        }
        case CollectiveRole::embedding:
          if (end_stages().front() != end_stages().back()) {
            flows = over_stages(*plan_.embedding_gradient, end_stages(), replica, lanes_);
          }
          break;
        case CollectiveRole::gradient_norm: flows = over_stages(Bytes(4), all_stages(), replica, {0}); break;
      }
    }
  }
}

int TrafficFlows::instances() const { return static_cast<int>(schedule_.collectives.size()) * replicas_; }

const CollectiveSlot& TrafficFlows::slot_of(int instance) const {
  return schedule_.collectives[static_cast<std::size_t>(instance / replicas_)];
}

int TrafficFlows::instance(int slot, int replica) const {
  const CollectiveRole role = schedule_.collectives[static_cast<std::size_t>(slot)].role;
  const bool over_replicas = role == CollectiveRole::gradients || role == CollectiveRole::parameters;
  return slot * replicas_ + (over_replicas ? 0 : replica);
}

std::vector<int> TrafficFlows::members(int instance) const {
  const CollectiveSlot& slot = slot_of(instance);
  const int replica = instance % replicas_;
  const auto of_replica = [&](std::vector<int> stages) {
    for (int& stage : stages) stage += replica * plan_.stages();
    return stages;
  };
  switch (slot.role) {
    case CollectiveRole::gradients:
    case CollectiveRole::parameters: break;
    case CollectiveRole::embedding: return of_replica(end_stages());
    case CollectiveRole::gradient_norm: return of_replica(all_stages());
  }
  std::vector<int> ranks;
  const int stage = schedule_.rank_of_part[static_cast<std::size_t>(slot.part)];
  for (int each = 0; each < replicas_; ++each) ranks.push_back(each * plan_.stages() + stage);
  return ranks;
}

const CollectiveFlows& TrafficFlows::collective(int instance) const {
  return collectives_[flows_index(slot_of(instance), instance % replicas_)];
}

}  // namespace orrery
