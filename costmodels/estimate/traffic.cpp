#include "costmodels/estimate/traffic.hpp"

#include <algorithm>
#include <numeric>

#include "costmodels/estimate/replica_sorts.hpp"
#include "costmodels/plans/folding.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

// Beyond an all-gather, which has every hop carry as many bytes: each member of the ring broadcasts only when
// the last of the bytes of the one before it have been round. NCCL's own figure for a hop of LL128's ring
// is 1.9 us inside a node and 4 between (hwLat in its src/graph/tuning.cc of v2.18), that of a link where it
// is more.
Seconds latency_of_turns(const Topology& topology, const std::vector<int>& ring) {
  constexpr Seconds kInside(1.9e-6), kBetween(4e-6);
  Seconds round;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const int from = ring[i], to = ring[(i + 1) % ring.size()];
    round += std::max(topology.path(from, to).latency, topology.same_node(from, to) ? kInside : kBetween);
  }
  return round * static_cast<double>(ring.size() - 1);
}

}  // namespace

TrafficFlows::TrafficFlows(const PricedPlan& plan, const PlanPrograms& programs, const Topology& topology,
                           Folding folding)
    : plan_(plan), schedule_(programs.programs.front()), topology_(topology) {
  if (const auto cut = cut_route(plan, topology)) {
    throw InputError("cluster", *cut, "links that are up between GPUs that must talk");
  }
  replicas_ = folding == Folding::off ? plan.replicas : folding_period(plan, topology);
  folds_rings_ = replicas_ < plan.replicas;
  if (folding == Folding::of_paths && !folds_rings_) replicas_ = period_of_paths(plan, topology);
  const bool sorts = folding == Folding::of_estimates && may_sort_replicas();
  has_whole_rings_ = sorts || (replicas_ < plan.replicas && !folds_rings_);
  lanes_.resize(most_lanes(plan));
  std::iota(lanes_.begin(), lanes_.end(), 0);
  int contexts = plan.context;
  if (folding != Folding::off) {
    lanes_ = lanes_to_play(plan, topology);
    if (!has_whole_rings_) contexts = context_period(plan, topology, replicas_, lanes_);
  }
  if (contexts < plan.context) {  // stages have equal lanes then
    const int played = contexts * tensor_ways(plan, 0);
    std::erase_if(lanes_, [&](int lane) { return lane >= played; });
  }
  images_ = played_images(plan, topology, replicas_, contexts);
  if (folding == Folding::of_paths && !may_meet(plan, topology)) stage_like_ = stages_alike(plan, topology);
  build_reductions();
  played_replicas_.resize(static_cast<std::size_t>(replicas_));
  std::iota(played_replicas_.begin(), played_replicas_.end(), 0);
  if (sorts) sort_replicas();
  build_messages();
  build_collectives_of_replicas();
  calls_.emplace(plan, topology, played_replicas_, lanes_, images_);
}

double TrafficFlows::lanes_each() const {
  return static_cast<double>(most_lanes(plan_)) / static_cast<double>(lanes_.size());
}

// Replicas on links of their own whose every message takes as long as that of any other.
bool TrafficFlows::may_sort_replicas() const {
  return !folds_rings_ && topology_.gpus_have_own_links() && !plays_calls(plan_, RankGroup::expert) &&
         plan_.kind_of_replica.empty() && plan_.replica_microbatches.empty() &&
         period_of_paths(plan_, topology_) == 1;
}

void TrafficFlows::sort_replicas() {
  std::vector<const std::vector<FlowPhase>*> collectives;
  for (const PlayedCollective& collective : collectives_) collectives.push_back(&collective.phases);
  played_replicas_ = one_of_each_sort(plan_, topology_, lanes_, collectives);
  replicas_ = static_cast<int>(played_replicas_.size());
}

void TrafficFlows::build_messages() {
  std::vector<std::vector<LaneMessage>> of_lanes;  // [boundary * 2 + gradient]
  for (int boundary = 0; boundary < schedule_.boundaries(); ++boundary) {
    for (const bool gradient : {false, true}) of_lanes.push_back(lane_messages(plan_, boundary, gradient));
  }
  for (const int replica : played_replicas_) {
    for (std::size_t at = 0; at < of_lanes.size(); ++at) {
      const BoundaryMessage& message = plan_.boundary(replica, static_cast<int>(at / 2));
      const int before = schedule_.rank_of_part[at / 2], after = schedule_.rank_of_part[at / 2 + 1];
      const bool gradient = at % 2 == 1;
      const std::vector<int>& senders = plan_.lanes(replica, gradient ? after : before);
      const std::vector<int>& receivers = plan_.lanes(replica, gradient ? before : after);
      std::vector<Flow> flows;
      for (const LaneMessage& lane : of_lanes[at]) {
        // Only lanes that talk to themselves stand for others.
        if (!std::binary_search(lanes_.begin(), lanes_.end(), lane.from)) continue;
        flows.push_back(make_flow(topology_, senders[static_cast<std::size_t>(lane.from)],
                                  receivers[static_cast<std::size_t>(lane.to)], message.bytes * lane.share,
                                  message.efficiency));
      }
      messages_.push_back(std::move(flows));
    }
  }
}

const std::vector<Flow>& TrafficFlows::message(int replica, int boundary, bool gradient) const {
  return messages_[static_cast<std::size_t>((replica * schedule_.boundaries() + boundary) * 2 +
                                            (gradient ? 1 : 0))];
}

// Phases of collectives that run side by side are played together, one after another; what unplayed GPUs
// send is left out.
void TrafficFlows::add_phases(PlayedCollective& all, std::vector<FlowPhase> phases) const {
  add_side_by_side(all.phases, folded(topology_, images_, std::move(phases)));
}

std::vector<std::vector<int>> TrafficFlows::rings(int stage, int lane, bool of_experts, Rings which) const {
  auto all_copies = of_experts ? expert_reduction_rings(plan_, stage, lane)
                               : std::vector<std::vector<int>>{reduction_members(plan_, stage, lane)};
  if (which == Rings::all) return all_copies;
  std::vector<std::vector<int>> all;
  for (const std::vector<int>& copies : all_copies) {
    for (std::vector<int>& ring :
         which == Rings::in_sets ? optimizer_sets(plan_, copies) : across_optimizer_sets(plan_, copies))
      all.push_back(std::move(ring));
  }
  return all;
}

// Adds the collectives of all played lanes, of experts or of what all replicas have, after the phases that
// are there.
void TrafficFlows::add_rings(PlayedCollective& all, const CollectiveCall& like, const CollectiveSlot& slot,
                             bool of_experts, Rings which) const {
  const int stage = schedule_.rank_of_part[static_cast<std::size_t>(slot.part)];
  const int buckets = bucket_count(plan_, part_reduction(slot.part, of_experts));
  PlayedCollective added;
  for (const int lane : lanes_) {
    if (lane >= tensor_ways(plan_, stage))
      continue;  // a collective holds all context ranks of its tensor rank
    for (const std::vector<int>& ring : rings(stage, lane, of_experts, which)) {
      CollectiveCall call = like;
      call.gpus = ring;
      if (folds_rings_ || (call.algorithm && !can_run(*call.algorithm, call.kind))) {
        call.algorithm = CollectiveAlgorithm::ring;
      }
      std::vector<FlowPhase> phases = collective_flows(topology_, call, folds_rings_ ? &images_ : nullptr);
      if (call.kind == CollectiveKind::all_gather && plan_.broadcasts_parameters && !phases.empty())
        phases.back().tail = latency_of_turns(topology_, ring) / buckets;
      if (has_whole_rings_)
        add_side_by_side(added.phases, std::move(phases));
      else
        add_phases(added, std::move(phases));
    }
  }
  for (FlowPhase& phase : added.phases) all.phases.push_back(std::move(phase));
}

const PartReduction& TrafficFlows::part_reduction(int part, bool of_experts) const {
  return (of_experts ? plan_.expert_reductions : plan_.reductions)[static_cast<std::size_t>(part)];
}

// The n buckets of a sort are full after equal shares of the slots, the last after the last.
bool TrafficFlows::fills(const CollectiveSlot& slot, bool of_experts) const {
  const int n = bucket_count(plan_, part_reduction(slot.part, of_experts));
  return (slot.bucket + 1) * n / slot.buckets > slot.bucket * n / slot.buckets;
}

// Gradients or parameters of a bucket: of what all replicas have, then of the experts.
PlayedCollective TrafficFlows::reduction(const CollectiveSlot& slot) const {
  const bool is_gradients = slot.role == CollectiveRole::gradients;
  const CollectiveKind reduce = gradient_collective(plan_.distributed_optimizer, plan_.all_reduces_gradients);
  PlayedCollective all{is_gradients ? reduce : CollectiveKind::all_gather, {}};
  const auto add = [&](bool of_experts) {
    const PartReduction& part = part_reduction(slot.part, of_experts);
    const Bytes bytes = is_gradients ? part.gradients : part.gathered;
    if (bytes.value() <= 0 || !fills(slot, of_experts)) return;
    CollectiveCall call{all.kind,
                        plan_.algorithm,
                        bytes / bucket_count(plan_, part),
                        is_gradients ? part.efficiency : part.gather_efficiency,
                        {}};
    // Where an all-reduce leaves all copies everything, their sets do not matter.
    const bool has_sets = plan_.optimizer_instances > 1 && all.kind != CollectiveKind::all_reduce;
    add_rings(all, call, slot, of_experts, has_sets ? Rings::in_sets : Rings::all);
    if (!is_gradients || !has_sets) return;
    const int copies =
        plan_.replicas * plan_.context / (of_experts ? plan_.expert * plan_.expert_context : 1);
    call.kind = CollectiveKind::all_reduce;
    call.bytes = call.bytes * plan_.optimizer_instances / copies;  // of a shard
    call.efficiency = part.across_efficiency;
    add_rings(all, call, slot, of_experts, Rings::across_sets);
  };
  add(false);
  if (!plan_.expert_reductions.empty()) add(true);
  return all;
}

// Where the ends have unequal tensor ways, each overlap of their shares of the table.
PlayedCollective TrafficFlows::embedding(int replica) const {
  PlayedCollective all;
  const int first = end_stages().front(), last = end_stages().back();
  if (first == last) return all;
  for (const LaneMessage& lane : overlaps_of_lanes(plan_, first, last)) {
    if (!std::binary_search(lanes_.begin(), lanes_.end(), lane.from)) continue;
    const std::vector<int> gpus{plan_.lanes(replica, first)[static_cast<std::size_t>(lane.from)],
                                plan_.lanes(replica, last)[static_cast<std::size_t>(lane.to)]};
    add_phases(
        all,
        collective_flows(
            topology_,
            {CollectiveKind::all_reduce, plan_.algorithm, *plan_.embedding_gradient * lane.share, {}, gpus}));
  }
  return all;
}

// A number, by the first GPU of each stage.
PlayedCollective TrafficFlows::gradient_norm(int replica) const {
  PlayedCollective all;
  std::vector<int> gpus;
  for (const int stage : all_stages()) gpus.push_back(plan_.lanes(replica, stage).front());
  add_phases(all,
             collective_flows(topology_, {CollectiveKind::all_reduce, plan_.algorithm, Bytes(4), {}, gpus}));
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

// Flows are the same in every iteration: gradients and parameters by part and by whether one sort or both
// fill a bucket, embedding and norm by replica.
std::size_t TrafficFlows::flows_index(const CollectiveSlot& slot, int replica) const {
  const std::size_t parts = plan_.parts.size();
  const auto of_replica = static_cast<std::size_t>(replica);
  const auto of_part = [&] {
    const bool both = plan_.expert_reductions.empty() || (fills(slot, false) && fills(slot, true));
    return 2 * static_cast<std::size_t>(slot.part) + (both ? 1 : 0);
  };
  switch (slot.role) {
    case CollectiveRole::gradients:
      return of_part();
    case CollectiveRole::parameters:
      return 2 * parts + of_part();
    case CollectiveRole::embedding:
      return 4 * parts + of_replica;
    case CollectiveRole::gradient_norm:
      return 4 * parts + static_cast<std::size_t>(replicas_) + of_replica;
  }
  return 0;
}

// What was built for a slot that takes as long; absent where all must have flows of their own.
std::optional<std::size_t> TrafficFlows::built_alike(const CollectiveSlot& slot,
                                                     const std::vector<CollectiveSlot>& built) const {
  const auto stage_like = [&](const CollectiveSlot& of) {
    return stage_like_[static_cast<std::size_t>(schedule_.rank_of_part[static_cast<std::size_t>(of.part)])];
  };
  for (const CollectiveSlot& other : built) {
    if (slot.role != other.role || stage_like(slot) != stage_like(other)) continue;
    bool alike = true;
    for (const bool of_experts : {false, true}) {
      if (of_experts && plan_.expert_reductions.empty()) break;
      alike = alike && fills(slot, of_experts) == fills(other, of_experts) &&
              part_reduction(slot.part, of_experts) == part_reduction(other.part, of_experts);
    }
    if (alike) return flows_index(other, 0);
  }
  return std::nullopt;
}

void TrafficFlows::build_reductions() {
  collectives_.resize(4 * plan_.parts.size());
  played_as_.resize(collectives_.size());
  std::iota(played_as_.begin(), played_as_.end(), std::size_t{0});
  std::vector<bool> is_built(collectives_.size());  // maybe of no flows
  std::vector<CollectiveSlot> built;                // where others may take as long
  for (const CollectiveSlot& slot : schedule_.collectives) {
    if (slot.role != CollectiveRole::gradients && slot.role != CollectiveRole::parameters) continue;
    const std::size_t index = flows_index(slot, 0);
    if (is_built[index]) continue;
    is_built[index] = true;
    if (const auto alike = built_alike(slot, built)) {
      played_as_[index] = *alike;
      continue;
    }
    collectives_[index] = reduction(slot);
    if (!stage_like_.empty()) built.push_back(slot);
  }
}

void TrafficFlows::build_collectives_of_replicas() {
  collectives_.resize(collectives_.size() + 2 * played_replicas_.size());
  std::vector<bool> is_built(collectives_.size());
  for (const CollectiveSlot& slot : schedule_.collectives) {
    for (int number = 0; number < replicas_; ++number) {
      const std::size_t index = flows_index(slot, number);
      if (is_built[index]) continue;
      is_built[index] = true;
      const int replica = played_replicas_[static_cast<std::size_t>(number)];
      if (slot.role == CollectiveRole::embedding) collectives_[index] = embedding(replica);
      if (slot.role == CollectiveRole::gradient_norm) collectives_[index] = gradient_norm(replica);
    }
  }
  while (played_as_.size() < collectives_.size()) played_as_.push_back(played_as_.size());
}

int TrafficFlows::instances() const {
  return static_cast<int>(schedule_.collectives.size()) * replicas_;
}

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
    case CollectiveRole::parameters:
      break;
    case CollectiveRole::embedding:
      return of_replica(end_stages());
    case CollectiveRole::gradient_norm:
      return of_replica(all_stages());
  }
  std::vector<int> ranks;
  const int stage = schedule_.rank_of_part[static_cast<std::size_t>(slot.part)];
  for (int each = 0; each < replicas_; ++each) ranks.push_back(each * plan_.stages() + stage);
  return ranks;
}

std::vector<bool> TrafficFlows::links_crossed() const {
  std::vector<bool> crossed(topology_.links().size());
  const auto add = [&](const std::vector<Flow>& flows) {
    for (const Flow& flow : flows) {
      for (int i = 0; i < flow.route.count; ++i)
        crossed[static_cast<std::size_t>(flow.route.links[static_cast<std::size_t>(i)])] = true;
    }
  };
  const auto add_all = [&](const std::vector<FlowPhase>& phases) {
    for (const FlowPhase& phase : phases) add(phase.flows);
  };
  for (const std::vector<Flow>& flows : messages_) add(flows);
  for (const PlayedCollective& collective : collectives_) add_all(collective.phases);
  for (int rank = 0; rank < ranks(); ++rank) {
    for (int call = 0; call < static_cast<int>(plan_.calls.size()); ++call)
      add_all(calls_->phases(rank, call));
  }
  return crossed;
}

const PlayedCollective& TrafficFlows::collective(int instance) const {
  return collectives_[played_as_[flows_index(slot_of(instance), instance % replicas_)]];
}

}  // namespace orrery
