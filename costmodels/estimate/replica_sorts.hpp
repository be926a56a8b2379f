// Which replicas do the same beside collectives that are played whole.
#pragma once

#include <vector>

#include "costmodels/collectives/collective_flows.hpp"
#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

// The first replica of each sort, in order: those on the links of whose lanes every phase of the collectives
// asks for as much (LinkDemand). Where every GPU has links of its own, replicas differ in nothing else
// (period_of_paths is 1) and a transfer is no more than what it asks of each link (shared_links.hpp), any two
// of a sort can be swapped: so they do the same, at the same times.
std::vector<int> one_of_each_sort(const PricedPlan&, const Topology&, const std::vector<int>& lanes,
                                  const std::vector<const std::vector<FlowPhase>*>& collectives);

}  // namespace orrery
