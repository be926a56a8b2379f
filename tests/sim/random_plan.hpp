// Random priced plans on random clusters, for property tests.
#pragma once

#include <cstdint>
#include <string>

#include "costmodels/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

struct RandomPlan {
  PricedPlan plan;
  Topology topology;
  std::string text;  // what was drawn, for the message of a failing test
};

// Two node groups, shared or private NICs, leaves or one switch; 1 to 5 stages, 1 to 3 replicas, tensor and
// context ways, every schedule and transfer mode, with all the traffic that follows the pipeline.
RandomPlan random_plan(std::uint32_t seed, Contention);

}  // namespace orrery
