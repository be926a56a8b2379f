// Symmetry of a placement: which replicas and tensor ranks provably do the same.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodels/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

// GPUs that reduce gradients with lane `lane` of a stage, in rank order: equal tensor rank, every context
// rank of every replica, or of every `apart`-th one from `first` on.
std::vector<int> reduction_members(const PricedPlan&, int stage, int lane, int first = 0, int apart = 1);
// Of the stage that has the most.
std::size_t most_lanes(const PricedPlan&);

// Which cut link (Topology::route_obstacle) a message or a gradient ring of the plan would have to cross;
// absent: none.
std::optional<std::string> cut_route(const PricedPlan&, const Topology&);

// The least p such that playing the first p replicas is enough (see TrafficFlows); the number of replicas
// when none is.
int folding_period(const PricedPlan&, const Topology&);

// Lanes that must be played.
std::vector<int> lanes_to_play(const PricedPlan&, const Topology&);

}  // namespace orrery
