// The time of iterations by the exact recurrence of the schedule, with transfers that share links
// (shared_links.hpp).
#pragma once

#include <optional>
#include <vector>

#include "costmodels/estimate/traffic.hpp"
#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

struct Estimate {
  Seconds makespan;   // of all iterations
  Seconds iteration;  // of one in the steady state: the mean of those after the first; the makespan when
                      // there is one
};

// Equal to the replay to rounding when nothing contends, and close to it otherwise: what slows a transfer on
// one link frees nothing on its others here. Throws Defect when the programs cannot finish (a cycle).
Estimate estimate(const PricedPlan&, const PlanPrograms&, const Topology&, const TrafficFlows&);
// With folding, and programs made for the plan.
Seconds estimate_iteration(const PricedPlan&, const PlanPrograms&, const Topology&);
// Absent: it takes longer than `limit`, which is known before its end.
std::optional<Seconds> estimate_within(Seconds limit, const PricedPlan&, const PlanPrograms&,
                                       const Topology&);

// Whether an iteration lasts until such a collective is over. Parameters gathered under the next iteration
// are that one's: the last gather of a run, with nothing to hide under, is not part of the steady state.
bool ends_iteration(const PricedPlan&, CollectiveRole);

// Mean of the iterations after the first; `ends[i]`: end of iteration i.
Seconds steady_iteration(const std::vector<double>& ends);

}  // namespace orrery
