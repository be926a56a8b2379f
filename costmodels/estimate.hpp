// The time of iterations by the exact recurrence of the schedule. Messages share links with those of replicas
// in step, and with those of other boundaries as an earlier pass of the recurrence found them there; every
// other flow is taken for alone on its links.
#pragma once

#include <vector>

#include "costmodels/priced_plan.hpp"
#include "costmodels/traffic.hpp"
#include "platforms/topology.hpp"

namespace orrery {

struct Estimate {
  Seconds makespan;   // of all iterations
  Seconds iteration;  // of one in the steady state: the mean of those after the first; the makespan when
                      // there is one
};

// Equal to the replay to rounding when nothing contends. Throws Defect when the programs cannot finish (a
// cycle).
Estimate estimate(const PricedPlan&, const PlanPrograms&, const Topology&, const TrafficFlows&);
// With folding, and programs made for the plan.
Seconds estimate_iteration(const PricedPlan&, const PlanPrograms&, const Topology&);

// Whether an iteration lasts until such a collective is over. Parameters gathered under the next iteration
// are that one's: the last gather of a run, with nothing to hide under, is not part of the steady state.
bool ends_iteration(const PricedPlan&, CollectiveRole);

// Mean of the iterations after the first; `ends[i]`: end of iteration i.
Seconds steady_iteration(const std::vector<double>& ends);

}  // namespace orrery
