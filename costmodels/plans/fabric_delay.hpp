// How much longer sharded weights are on their way over a cluster's fabric than where every card is as fast
// as on one big switch, which is what they were priced on.
#pragma once

#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// A factor, at least 1, by the flows of one all-gather of `bytes` in every set of copies at once; of plans
// whose weights are gathered in passes, with `gpus` placed.
double fabric_delay(const PricedPlan&, const ParallelStrategy&, const Topology&, Bytes bytes);

}  // namespace orrery
