// What the data that crosses from region to region costs.
#pragma once

#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"
#include "platforms/units.hpp"

namespace orrery {

// Of one iteration: payload of every message and collective between GPUs of different regions, times
// RegionLink::price.
Dollars egress_of(const PricedPlan&, const Topology&);

// Whether any link between regions has a price.
bool has_egress_price(const ClusterSpec&);

}  // namespace orrery
