#include "costmodels/plans/group_calls.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "costmodels/collectives/collective_choice.hpp"
#include "costmodels/plans/folding.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

std::optional<CollectiveAlgorithm> algorithm_of(const PricedPlan& plan, const GroupCall& call) {
  std::optional<CollectiveAlgorithm> wanted = plan.algorithm;
  if (call.group == RankGroup::context) wanted = CollectiveAlgorithm::ring;
  if (call.group == RankGroup::expert && call.kind == CollectiveKind::all_to_all)
    wanted = CollectiveAlgorithm::direct;
  return wanted && can_run(*wanted, call.kind) ? wanted : std::nullopt;
}

bool any_played(const std::vector<int>& group, const std::vector<int>& of_lanes) {
  return std::any_of(group.begin(), group.end(), [&](int gpu) {
    return std::find(of_lanes.begin(), of_lanes.end(), gpu) != of_lanes.end();
  });
}

// Whether `links:` of the cluster file says something else of the GPU's link than its group does.
bool has_changed_link(const Topology& topology, int gpu) {
  const ClusterSpec& cluster = topology.cluster();
  if (cluster.links.empty() || cluster.network) return false;
  const std::size_t up = index(topology.gpu_link_up(gpu)), down = up + 1;
  const LinkSpec& usual = topology.group_of(gpu).gpu_link;
  return topology.links()[up].spec != usual || topology.links()[down].spec != usual;
}

// Replicas that share experts meet in every exchange.
void check_sharing_replicas(const PricedPlan& plan) {
  const bool meet = std::any_of(plan.calls.begin(), plan.calls.end(),
                                [](const GroupCall& call) { return call.group == RankGroup::expert; });
  if (!meet) return;
  for (int replica = 0; replica < plan.replicas; ++replica) {
    const int leader = replica - replica % plan.expert;
    if (plan.kind_of(replica) == plan.kind_of(leader)) continue;
    throw InputError(
        "plan",
        "replicas " + std::to_string(leader) + " and " + std::to_string(replica) + " of different kinds",
        "replicas of one kind where " + std::to_string(plan.expert) + " share their experts");
  }
  const std::vector<int>& counts = plan.replica_microbatches;
  for (std::size_t replica = 0; replica < counts.size(); ++replica) {
    const std::size_t leader = replica - replica % index(plan.expert);
    if (counts[replica] == counts[leader]) continue;
    throw InputError(
        "plan",
        std::to_string(counts[leader]) + " and " + std::to_string(counts[replica]) +
            " microbatches in replicas " + std::to_string(leader) + " and " + std::to_string(replica),
        "equally many in the " + std::to_string(plan.expert) + " replicas that share their experts");
  }
}

}  // namespace

std::vector<std::vector<int>> group_members(const PricedPlan& plan, int replica, int stage, RankGroup kind) {
  const std::vector<int>& lanes = plan.lanes(replica, stage);
  const int count = static_cast<int>(lanes.size());
  const int tensor = count / plan.context;
  const int first = replica / plan.expert * plan.expert;
  const int sharing = plan.expert_context * plan.expert_tensor;  // of the lanes
  const bool over_tensor = kind == RankGroup::tensor;
  const int groups = over_tensor ? plan.context : kind == RankGroup::context ? tensor : count / sharing;
  std::vector<std::vector<int>> members(index(groups));
  for (int lane = 0; lane < count; ++lane) {
    switch (kind) {
      case RankGroup::tensor:
        members[index(lane / tensor)].push_back(lanes[index(lane)]);
        break;
      case RankGroup::context:
        members[index(lane % tensor)].push_back(lanes[index(lane)]);
        break;
      case RankGroup::expert:
        break;
    }
  }
  if (kind != RankGroup::expert) return members;
  for (int other = first; other < first + plan.expert; ++other) {
    for (int lane = 0; lane < count; ++lane) {
      const int contexts = lane / tensor / plan.expert_context, tensors = lane % tensor / plan.expert_tensor;
      members[index(contexts * (tensor / plan.expert_tensor) + tensors)].push_back(
          plan.lanes(other, stage)[index(lane)]);
    }
  }
  return members;
}

int group_size(const PricedPlan& plan, int stage, RankGroup kind) {
  switch (kind) {
    case RankGroup::tensor:
      return static_cast<int>(plan.lanes(0, stage).size()) / plan.context;
    case RankGroup::context:
      return plan.context;
    case RankGroup::expert:
      break;
  }
  return plan.expert * plan.expert_context * plan.expert_tensor;
}

bool must_play(const Topology& topology, const std::vector<int>& members) {
  return members.size() > 1 && std::any_of(members.begin(), members.end(), [&](int gpu) {
           const bool apart = !topology.same_node(members.front(), gpu);
           const bool over_pcie = gpu != members.front() && topology.group_of(gpu).pcie_switches > 0;
           return apart || over_pcie || has_changed_link(topology, gpu);
         });
}

std::vector<int> calls_of_stage(const PricedPlan& plan, int replica, int stage) {
  std::set<int> calls;
  if (plan.calls.empty()) return {};
  for (int part = 0; part < static_cast<int>(plan.parts.size()); ++part) {
    if (plan.rank_of_part(part) != stage) continue;
    const PartTimes& times = plan.part_times(replica, part);
    for (const auto* pieces : {&times.forward_pieces, &times.backward_pieces}) {
      for (const PlayedPiece& piece : *pieces) {
        if (piece.call) calls.insert(*piece.call);
      }
    }
  }
  return {calls.begin(), calls.end()};
}

bool plays_calls(const PricedPlan& plan, RankGroup group) {
  return std::any_of(plan.calls.begin(), plan.calls.end(),
                     [&](const GroupCall& call) { return call.group == group; });
}

std::vector<RankGroup> played_groups(const PricedPlan& plan, int replica, int stage) {
  std::set<RankGroup> groups;
  for (const int call : calls_of_stage(plan, replica, stage)) groups.insert(plan.calls[index(call)].group);
  return {groups.begin(), groups.end()};
}

std::vector<int> all_lanes(const PricedPlan& plan, int stage) {
  std::vector<int> lanes(plan.lanes(0, stage).size());
  std::iota(lanes.begin(), lanes.end(), 0);
  return lanes;
}

std::vector<FlowPhase> call_flows(const PricedPlan& plan, const Topology& topology, const GroupCall& call,
                                  int replica, int stage, const std::vector<int>& lanes) {
  std::vector<int> played;
  for (const int lane : lanes) played.push_back(plan.lanes(replica, stage)[index(lane)]);
  std::vector<FlowPhase> phases;
  for (const std::vector<int>& group : group_members(plan, replica, stage, call.group)) {
    if (!any_played(group, played)) continue;
    add_side_by_side(phases, collective_flows(topology, {call.kind, algorithm_of(plan, call), call.bytes,
                                                         call.efficiency, group, call.one_channel}));
  }
  if (!phases.empty()) phases.back().tail += call.more;
  return repeated(topology, std::move(phases), call.times);
}

Seconds pass_time(const PartTimes& part, StepKind kind) {
  switch (kind) {
    case StepKind::forward:
      return part.forward;
    case StepKind::backward:
      return part.backward;
    case StepKind::weight_gradient:
      return part.weight_gradient;
    case StepKind::exchange:
    case StepKind::join:
    case StepKind::launch:
    case StepKind::await:
    case StepKind::optimizer:
      break;
  }
  return Seconds(0);
}

const std::vector<PlayedPiece>* pieces_of(const PartTimes& part, StepKind kind) {
  const std::vector<PlayedPiece>& pieces =
      kind == StepKind::forward ? part.forward_pieces : part.backward_pieces;
  return kind == StepKind::weight_gradient || pieces.empty() ? nullptr : &pieces;
}

std::vector<PlayedPiece> cut_pieces(const std::vector<PlayedPiece>& pieces, int index, int count) {
  Seconds whole;
  for (const PlayedPiece& piece : pieces) whole += piece.compute + piece.beside;
  const bool is_last = index == count - 1;
  const Seconds begin = whole * (static_cast<double>(index) / count);
  const Seconds end = whole * (static_cast<double>(index + 1) / count);
  std::vector<PlayedPiece> inside;
  Seconds at;
  for (const PlayedPiece& piece : pieces) {
    const Seconds until = at + piece.compute;
    const Seconds computed =
        std::max(Seconds(0), std::min(until, is_last ? until : end) - std::max(at, begin));
    const bool calls = until >= begin && (is_last || until < end);
    const Seconds work = piece.compute + piece.beside;
    at = until + piece.beside;
    if (!calls && computed.value() <= 0) continue;
    PlayedPiece part = piece;
    part.compute = computed;
    if (piece.compute.value() > 0) part.tensor = piece.tensor * (computed / piece.compute);
    if (!calls) part.beside = Seconds(0);
    if (!calls) part.call.reset();
    if (work.value() > 0) part.flops = piece.flops * ((part.compute + part.beside) / work);
    inside.push_back(part);
  }
  return inside;
}

GroupCalls::GroupCalls(const PricedPlan& plan, const Topology& topology, const std::vector<int>& replicas,
                       const std::vector<int>& lanes, const std::vector<int>& images)
    : plan_(plan) {
  if (plan.calls.empty()) return;
  phases_.resize(replicas.size() * index(plan.stages()));
  for (auto& of_rank : phases_) of_rank.resize(plan.calls.size());
  const bool some_lanes = lanes.size() < plan.gpus.front().size();
  check_sharing_replicas(plan);
  for (int stage = 0; stage < plan.stages(); ++stage) {
    for (std::size_t number = 0; number < replicas.size(); ++number) {
      const int replica = replicas[number];
      for (const int of_stage : calls_of_stage(plan, replica, stage)) {
        const int rank = static_cast<int>(number) * plan.stages() + stage;
        if (leader(rank, of_stage) != rank) continue;
        phases_[index(rank)][index(of_stage)] =
            folded(topology, images,
                   call_flows(plan, topology, call(of_stage), replica, stage,
                              some_lanes ? lanes : all_lanes(plan, stage)));
      }
    }
  }
}

int GroupCalls::leader(int rank, int call_index) const {
  if (!is_over_replicas(call_index)) return rank;
  const int replica = rank / plan_.stages();
  return replica / plan_.expert * plan_.expert * plan_.stages() + rank % plan_.stages();
}

std::vector<int> GroupCalls::members(int leader, int call_index) const {
  if (!is_over_replicas(call_index)) return {leader};
  std::vector<int> ranks;
  for (int other = 0; other < plan_.expert; ++other) ranks.push_back(leader + other * plan_.stages());
  return ranks;
}

std::size_t GroupCalls::member_count(int call_index) const {
  return is_over_replicas(call_index) ? index(plan_.expert) : 1;
}

const std::vector<FlowPhase>& GroupCalls::phases(int leader, int call) const {
  return phases_[index(leader)][index(call)];
}

}  // namespace orrery
