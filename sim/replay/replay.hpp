// Plays a priced plan event by event on the model of the cluster.
#pragma once

#include <vector>

#include "costmodels/estimate/traffic.hpp"
#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"
#include "traces/timeline.hpp"

namespace orrery {

struct ReplayOptions {
  int link_bins = 0;  // time bins of link use over `expected`; 0: link use is not recorded
  Seconds expected;   // the estimate, which sets the width of the bins
};

struct Replay {
  Timeline timeline;
  std::vector<double> iteration_ends;  // s
  std::vector<double> second_starts;   // s, of the second iteration on each rank; 0 where there is none
};

// All iterations, on SimGrid. Uses up the process's network: call it in a child process (run_in_children),
// once. Throws Defect where the programs cannot finish; names the first rank that is stuck and what it waits
// for.
Replay replay(const PricedPlan&, const PlanPrograms&, const Topology&, const TrafficFlows&,
              const ReplayOptions&);

}  // namespace orrery
