// The flows behind messages and collectives, the same for the estimator and the replay, and who must be
// played.
#pragma once

#include <optional>
#include <vector>

#include "costmodels/collectives/collective_flows.hpp"
#include "costmodels/plans/group_calls.hpp"
#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

// A collective as phases of flows, played one after another.
struct PlayedCollective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::vector<FlowPhase> phases;
};

// `of_paths`: for what takes every transfer to be alone on its links, so that it need be told of no more than
// how long each takes. `of_estimates`: for shared_links.hpp, to which a transfer is what it asks of each
// link.
enum class Folding { on, off, of_paths, of_estimates };

// Which replicas and lanes are played, and the flows of everything they do.
//
// Folding plays the first p of D replicas when shifting every replica by p maps the cluster onto itself: GPU
// links and NICs of one block of p replicas are shared with no other block, and every message and ring hop
// has the same path p replicas on. A hop of a ring that leaves the block then ends on the link where, by the
// same symmetry, a hop enters it. Only rings have this symmetry: with another algorithm for the gradients all
// replicas are played. Replicas that share experts are folded together or not at all. Lanes: those of tensor
// rank 0 alone when the other tensor ranks have links of their own that are alike, and when no collective
// between tensor ranks is played; of its context ranks the first few where the others provably do the same
// (context_period). Of paths it also plays the first p replicas (period_of_paths) where gradients do not go
// round rings that fold, and collectives over replicas are then whole; where no transfers meet, those that
// take as long have the same flows. Of estimates it plays, where p is 1, one replica of each sort
// (replica_sorts.hpp).
class TrafficFlows {
 public:
  TrafficFlows(const PricedPlan&, const PlanPrograms&, const Topology&, Folding);

  [[nodiscard]] int replicas() const { return replicas_; }  // played
  [[nodiscard]] int ranks() const { return replicas_ * plan_.stages(); }
  [[nodiscard]] const std::vector<int>& lanes() const { return lanes_; }
  [[nodiscard]] int replicas_each() const {
    return plan_.replicas / replicas_;
  }                                         // that a played one stands for
  [[nodiscard]] double lanes_each() const;  // likewise

  // The flows, one a played lane, of a message over a boundary.
  [[nodiscard]] const std::vector<Flow>& message(int replica, int boundary, bool gradient) const;

  // What parts play inside their forwards and backwards.
  [[nodiscard]] const GroupCalls& calls() const { return *calls_; }

  // Whether collectives over replicas are whole, whichever replicas are played.
  [[nodiscard]] bool has_whole_rings() const { return has_whole_rings_; }
  // By index into the links of the topology, whether any of the flows crosses it.
  [[nodiscard]] std::vector<bool> links_crossed() const;

  // Collectives are numbered slot * replicas() + replica; those over replicas have replica 0 only.
  [[nodiscard]] int instances() const;
  [[nodiscard]] int instance(int slot, int replica) const;
  // Played ranks (replica * P + stage) that take part, and the flows of all played lanes.
  [[nodiscard]] std::vector<int> members(int instance) const;
  [[nodiscard]] const PlayedCollective& collective(int instance) const;

 private:
  enum class Rings { all, in_sets, across_sets };  // of the copies of a part, by the optimizer's sets

  [[nodiscard]] bool may_sort_replicas() const;
  void sort_replicas();
  void build_messages();
  void build_reductions();
  void build_collectives_of_replicas();
  const PartReduction& part_reduction(int part, bool of_experts) const;
  bool fills(const CollectiveSlot&, bool of_experts) const;  // a bucket of what all have, or of the experts
  PlayedCollective reduction(const CollectiveSlot&) const;
  void add_rings(PlayedCollective&, const CollectiveCall&, const CollectiveSlot&, bool of_experts,
                 Rings) const;
  std::vector<std::vector<int>> rings(int stage, int lane, bool of_experts, Rings) const;
  PlayedCollective embedding(int replica) const;
  PlayedCollective gradient_norm(int replica) const;
  std::vector<int> end_stages() const;
  std::vector<int> all_stages() const;
  void add_phases(PlayedCollective&, std::vector<FlowPhase>) const;
  const CollectiveSlot& slot_of(int instance) const;
  std::size_t flows_index(const CollectiveSlot&, int replica) const;
  std::optional<std::size_t> built_alike(const CollectiveSlot&, const std::vector<CollectiveSlot>&) const;

  const PricedPlan& plan_;
  const Schedule& schedule_;
  const Topology& topology_;
  int replicas_ = 1;
  std::vector<int> played_replicas_;  // by number among the played, that in the plan
  bool folds_rings_ = false;          // of collectives over replicas, the hops from played replicas
  bool has_whole_rings_ = false;
  std::vector<int> lanes_;
  std::vector<int> images_;                    // by GPU (played_images)
  std::vector<std::vector<Flow>> messages_;    // [(replica * boundaries + boundary) * 2 + gradient]
  std::vector<PlayedCollective> collectives_;  // by flows_index
  std::vector<std::size_t> played_as_;         // by flows_index: the one with its flows
  std::vector<int> stage_like_;  // stages_alike; empty unless folded of paths on which nothing meets
  std::optional<GroupCalls> calls_;
};

}  // namespace orrery
