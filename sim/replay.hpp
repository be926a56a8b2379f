// Plays a priced plan event by event on the model of the cluster.
#pragma once

#include "costmodels/priced_plan.hpp"
#include "platforms/topology.hpp"
#include "traces/timeline.hpp"

namespace orrery {

struct ReplayOptions {
  int link_bins = 0;  // time bins of link use over `expected`; 0: link use is not recorded
  Seconds expected;   // the estimate, which sets the width of the bins
};

// One iteration, on SimGrid. Uses up the process's network: call it in a child process (in_child), once.
// Throws Defect where the schedule cannot finish; names the first rank that is stuck and what it waits for.
Timeline replay(const PricedPlan&, const Schedule&, const Topology&, const ReplayOptions&);

}  // namespace orrery
