// Which lanes of a rank must be played: of tensor ranks that provably do the same, the first.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "costmodels/plans/folding.hpp"
#include "costmodels/plans/group_calls.hpp"

namespace orrery {
namespace {

std::vector<int> count_up(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Of all that one tensor rank sends: where it goes, and how much of it in the collectives of its parts.
struct TensorRankTraffic {
  std::vector<Route> routes;
  std::vector<Bytes> wires;

  void add(const std::vector<FlowPhase>& phases) {
    for (const FlowPhase& phase : phases) {
      for (const Flow& flow : phase.flows) routes.push_back(flow.route);
    }
  }
};

// What the context and expert groups of a tensor rank play in the parts of a stage.
void add_calls(TensorRankTraffic& traffic, const PricedPlan& plan, const Topology& topology, int stage,
               int tensor_rank) {
  const int tensor = tensor_ways(plan, stage);
  std::vector<int> lanes;
  for (int context = 0; context < plan.context; ++context) lanes.push_back(context * tensor + tensor_rank);
  for (int replica = 0; replica < plan.replicas; ++replica) {
    for (const int index : calls_of_stage(plan, replica, stage)) {
      const GroupCall& call = plan.calls[static_cast<std::size_t>(index)];
      const bool is_leader = call.group != RankGroup::expert || replica % plan.expert == 0;
      if (!is_leader) continue;
      const std::vector<FlowPhase> phases = call_flows(plan, topology, call, replica, stage, lanes);
      traffic.add(phases);
      for (const FlowPhase& phase : phases) {
        for (const Flow& flow : phase.flows) traffic.wires.push_back(flow.wire);
      }
    }
  }
}

// What copies of the same parameters reduce: within each set that shares an optimizer, and across the sets.
void add_reduction(TensorRankTraffic& traffic, const PricedPlan& plan, const Topology& topology,
                   const std::vector<int>& copies) {
  for (const auto& rings : {optimizer_sets(plan, copies), across_optimizer_sets(plan, copies)}) {
    for (const std::vector<int>& members : rings)
      traffic.add(collective_flows(
          topology, {CollectiveKind::all_reduce, CollectiveAlgorithm::ring, Bytes(1), {}, members}));
  }
}

// Messages of a stage to the next one and back; of the last to the first, which stand for the embedding
// gradient too.
void add_messages(TensorRankTraffic& traffic, const PricedPlan& plan, const Topology& topology, int stage,
                  int tensor_rank) {
  for (int replica = 0; replica < plan.replicas; ++replica) {
    for (int context = 0; context < plan.context; ++context) {
      const auto lane = static_cast<std::size_t>(context * tensor_ways(plan, 0) + tensor_rank);
      const int here = plan.lanes(replica, stage)[lane];
      const int next = plan.lanes(replica, (stage + 1) % plan.stages())[lane];
      traffic.routes.push_back(topology.route(here, next));
      traffic.routes.push_back(topology.route(next, here));
    }
  }
}

// Of a plan whose stages have equal tensor ways. In an order that is the same for all tensor ranks: rings of
// gradients, what parts play, messages.
TensorRankTraffic tensor_rank_traffic(const PricedPlan& plan, const Topology& topology, int tensor_rank) {
  TensorRankTraffic traffic;
  for (int stage = 0; stage < plan.stages(); ++stage) {
    add_reduction(traffic, plan, topology, reduction_members(plan, stage, tensor_rank));
    if (!plan.expert_reductions.empty()) {
      for (const std::vector<int>& copies : expert_reduction_rings(plan, stage, tensor_rank))
        add_reduction(traffic, plan, topology, copies);
    }
    add_calls(traffic, plan, topology, stage, tensor_rank);
    add_messages(traffic, plan, topology, stage, tensor_rank);
  }
  return traffic;
}

// Pairs every link of tensor rank 0 with one link of each other tensor rank: equal to it, in its place on
// every route, and used by nobody else.
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
  std::vector<std::optional<std::pair<int, int>>>
      owner_;                                // [link]: tensor rank, and the link of rank 0 it pairs with
  std::vector<std::optional<int>> partner_;  // [link of rank 0]: of the tensor rank being added
};

// Whether tensor rank t of every group is the GPU t places after that of tensor rank 0, in its node.
bool side_by_side(const PricedPlan& plan, const Topology& topology) {
  const auto tensor = static_cast<std::size_t>(tensor_ways(plan, 0));
  for (const std::vector<int>& lanes : plan.gpus) {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      const int first = lanes[lane - lane % tensor];
      if (lanes[lane] != first + static_cast<int>(lane % tensor) || !topology.same_node(first, lanes[lane]))
        return false;
    }
  }
  return true;
}

bool tensor_ranks_alike(const PricedPlan& plan, const Topology& topology) {
  if (topology.gpus_have_own_links() && side_by_side(plan, topology)) return true;
  const TensorRankTraffic first = tensor_rank_traffic(plan, topology, 0);
  LinkPairs pairs(topology, first.routes);
  for (int tensor_rank = 0; tensor_rank < tensor_ways(plan, 0); ++tensor_rank) {
    const TensorRankTraffic traffic = tensor_rank_traffic(plan, topology, tensor_rank);
    if (traffic.wires != first.wires || !pairs.add(tensor_rank, traffic.routes)) return false;
  }
  return true;
}

bool all_stages_alike(const PricedPlan& plan) {
  return std::all_of(plan.gpus.begin(), plan.gpus.end(),
                     [&](const auto& lanes) { return lanes.size() == plan.gpus.front().size(); });
}

}  // namespace

std::vector<int> lanes_to_play(const PricedPlan& plan, const Topology& topology) {
  const int tensor = tensor_ways(plan, 0);
  const bool exchange_tokens = plan.expert_tensor > 1 && plays_calls(plan, RankGroup::expert);
  const auto first_stands_for_all = [&] {
    return tensor == 1 ||
           (!plays_calls(plan, RankGroup::tensor) && !exchange_tokens && tensor_ranks_alike(plan, topology));
  };
  if (!all_stages_alike(plan) || !first_stands_for_all()) {
    return count_up(static_cast<int>(most_lanes(plan)));
  }
  std::vector<int> lanes;
  for (int context = 0; context < plan.context; ++context) lanes.push_back(context * tensor);
  return lanes;
}

}  // namespace orrery
