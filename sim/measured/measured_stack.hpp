// The software stack of a published run: the preset that stands for its program, with what the row says of
// it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodels/stacks/software_stack.hpp"
#include "sim/measured/measured_run.hpp"

namespace orrery {

// The preset that stands for a run's program. Megatron-LM's changed with the years: the year is that of the
// source, or that of what the run uses. Of a program that is not known the name is given to the family, so
// that no residuals of others are taken for its own, and said among the assumptions. Absent where the row
// names none.
std::optional<SoftwareStack> stack_of_run(const MeasuredRun&, std::vector<std::string>& assumptions);

}  // namespace orrery
