// On which node groups of its cluster the stages of a published run stood.
#pragma once

#include <optional>
#include <string>

#include "platforms/cluster.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// "rtx3090+titan;titan": the groups of the first stage's replicas, then of the second's; a stage with one
// group has all its replicas there. Gives every stage its group and unlike replicas, in the order of the
// cell, equal shares of the batch. What is wrong with the cell, in words; absent where nothing is.
std::optional<std::string> place_stages(const std::string& cell, const ClusterSpec&, ParallelStrategy&);

}  // namespace orrery
