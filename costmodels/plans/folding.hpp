// Symmetry of a placement: which replicas and tensor ranks provably do the same.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodels/collectives/collective_flows.hpp"
#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

// GPUs that reduce gradients with lane `lane` of a stage, in rank order: equal tensor rank, every context
// rank of every replica.
std::vector<int> reduction_members(const PricedPlan&, int stage, int lane);
// The same of the gradients of experts: a ring for each GPU of that tensor rank that has experts of its own.
std::vector<std::vector<int>> expert_reduction_rings(const PricedPlan&, int stage, int lane);
// Of such copies of a part, in rank order: the sets of neighbours that each shard an optimizer, and the
// copies of equal place in all sets, none where there is one set.
std::vector<std::vector<int>> optimizer_sets(const PricedPlan&, const std::vector<int>& copies);
std::vector<std::vector<int>> across_optimizer_sets(const PricedPlan&, const std::vector<int>& copies);
// Of the stage that has the most.
std::size_t most_lanes(const PricedPlan&);

// Which cut link (Topology::route_obstacle) a message, a gradient ring or a collective of the plan would have
// to cross, played or priced; absent: none.
std::optional<std::string> cut_route(const PricedPlan&, const Topology&);

// The least p such that playing the first p replicas is enough (see TrafficFlows); the number of replicas
// when none is.
int folding_period(const PricedPlan&, const Topology&);

// Whether estimates play any transfer of the plan as meeting another (plan_transfers.hpp). Not where links
// never fill. Where every GPU has its own, calls inside of parts meet there, and of several chunks the
// messages: activations and gradients leave a GPU at once. They show where ranks wait for them, or where they
// are long.
bool may_meet(const PricedPlan&, const Topology&);

// The least p such that replicas p on take the times of the first p where no transfer meets another and
// collectives over replicas are played whole, by whatever algorithm: such a collective takes a time of its
// own from when the last member comes to it. The number of replicas when none is.
int period_of_paths(const PricedPlan&, const Topology&);

// By stage, the first whose lanes lie in the nodes of their group as those of the stage lie in theirs, whole
// nodes on: where every GPU has links of its own like those of its group, the two do the same within
// themselves. Stages are like themselves alone elsewhere.
std::vector<int> stages_alike(const PricedPlan&, const Topology&);

// Whether the gradients of every part go round a ring.
bool in_rings(const PricedPlan&, const Topology&);

// Lanes that must be played, of every context rank.
std::vector<int> lanes_to_play(const PricedPlan&, const Topology&);

// The least p such that context ranks 0 .. p - 1 of the first `replicas` replicas, a folding period, stand
// for all; the number of context ranks when none is. Every GPU has links of its own then, and whenever GPUs
// send or receive, each exchanges with GPUs of the same replica, stage and context rank, both modulo the
// periods, as much over the same path as every other of its place: all flows of such a class go at one rate,
// and a link carries as many of each class as the link of the GPU that is played for it.
int context_period(const PricedPlan&, const Topology&, int replicas, const std::vector<int>& lanes);

// For every GPU the one played for it: of its replica modulo `replicas` and its context rank modulo
// `contexts`; -1: not of the plan.
std::vector<int> played_images(const PricedPlan&, const Topology&, int replicas, int contexts);

// The flows that leave GPUs which are their own image, ended on the image of their far end. Both links of a
// flow that is moved belong to its two GPUs alone: the periods have made sure.
std::vector<FlowPhase> folded(const Topology&, const std::vector<int>& images, std::vector<FlowPhase>);

}  // namespace orrery
