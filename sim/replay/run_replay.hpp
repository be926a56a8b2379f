// One plan replayed and accounted for.
#pragma once

#include "costmodels/estimate/traffic.hpp"
#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"
#include "traces/accounting.hpp"
#include "traces/timeline.hpp"

namespace orrery {

// The same plan with what every part computes forward and backward replaced by the means over the parts:
// perfect balance. Collectives that parts play are traffic and stay. Unlike replicas keep their speeds: the
// means are those of each kind.
PricedPlan balanced(PricedPlan);

struct ReplayResult {
  Timeline timeline;
  RunAccounting accounting;    // of all that was played
  RunAccounting steady;        // of one iteration in the steady state
  Seconds iteration;           // in the steady state; the makespan where only one iteration is played
  Seconds estimate;            // of the same
  Seconds imbalance;           // iteration less that of the balanced plan, which may be longer
  std::size_t activities = 0;  // compute spans and transfers played
};

struct ReplayChoices {
  int link_bins = 0;  // of link use; 0: not recorded
  Folding folding = Folding::on;
};

// Plays the plan and its balanced twin; the twin in a child. Uses up this process's network.
ReplayResult run_replay(const PricedPlan&, const Topology&, const ReplayChoices&);

}  // namespace orrery
