// Changes a user asks for on top of a priced plan: slow GPUs, noise, iterations, another collective
// algorithm.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodels/plans/priced_plan.hpp"
#include "sim/commands/command_line.hpp"

namespace orrery {

void declare_what_ifs(CommandLine&);

// Reads the options declared above into the plan. Throws InputError for stages and replicas the plan does not
// have.
void apply_what_ifs(const CommandLine&, PricedPlan&);

// "2=1.5", "2.0=1.5", "2.0=1.5@3": stage [. replica] = factor on its durations [@ first iteration].
struct SlowGpu {
  int stage = 0;
  std::optional<int> replica;  // absent: all
  double factor = 1.0;
  int from_iteration = 0;
};
SlowGpu parse_slow_gpu(const std::string& text, const std::string& place);

}  // namespace orrery
