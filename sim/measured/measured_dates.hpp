// When the program of a published run was written.
#pragma once

#include "sim/measured/measured_run.hpp"

namespace orrery {

// In years, 2025.5 in the middle of 2025: by the name of its framework (a container's month, a year), else by
// its source. 0: neither says.
double date_of_program(const MeasuredRun&);
// Whether its framework says it, and not what was written of it later.
bool names_its_date(const MeasuredRun&);

}  // namespace orrery
