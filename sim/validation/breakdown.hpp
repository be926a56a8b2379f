// Errors of runs that have something in common, whatever group they are of.
#pragma once

#include <string>
#include <vector>

#include "sim/validation/interval_fit.hpp"
#include "sim/validation/validation.hpp"

namespace orrery {

struct ErrorShare {
  GroupAccuracy time;  // named after what the runs have in common
  MemoryAccuracy memory;
  // Share of the runs inside their interval of time, in the mean over groups used; NaN without any.
  double inside = 0;
};

struct Breakdown {
  std::string by;                // "program", "GPU", "kind of run", "number of GPUs"
  std::vector<ErrorShare> rows;  // of most groups first, numbers of GPUs as they grow
};

// Names that fewer than `few` groups with a time have make one row, the last.
std::vector<Breakdown> breakdowns(const Validation&, const std::vector<Coverage>& of_time = {},
                                  std::size_t few = 5);

}  // namespace orrery
