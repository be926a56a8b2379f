// The time of one iteration by the exact recurrence of the schedule, as if every flow were alone on its links.
#pragma once

#include <vector>

#include "costmodels/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

// Equal to the replay to rounding when nothing contends. Throws Defect when the schedule cannot finish (a cycle).
Seconds estimate_iteration(const PricedPlan&, const Schedule&, const Topology&);

// The recurrence alone: the end of the last step of every pipeline rank. `transfers[b]` is the time of a message over
// boundary b in either direction.
std::vector<Seconds> pipeline_ends(const Schedule&, const std::vector<PartTimes>& parts,
                                   const std::vector<Seconds>& transfers);

}  // namespace orrery
