// Replay of stage durations given by hand (DESIGN 2.5): no model, no cost model, one switch.
#pragma once

#include <string>
#include <string_view>

#include "costmodels/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

struct DurationsPlan {
  PricedPlan plan;
  Topology topology;  // every rank, or every GPU of its tensor group, a node with one NIC to one switch
};

// Throws InputError that names file, line and key.
DurationsPlan parse_durations(std::string_view yaml, const std::string& file);
DurationsPlan read_durations(const std::string& path);

}  // namespace orrery
