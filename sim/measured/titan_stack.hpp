// What pytorch/torchtitan was when a published run of it was made.
#pragma once

#include "costmodels/stacks/software_stack.hpp"
#include "sim/measured/measured_run.hpp"

namespace orrery {

// Its preset of that date (a year, 2025.5 in the middle of 2025; 0: unknown), with what changed between the
// presets: loss, dispatch, attention, policies.
SoftwareStack titan_stack(const MeasuredRun&, double date);

}  // namespace orrery
