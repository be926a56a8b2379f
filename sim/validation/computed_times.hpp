// Published times that no machine took.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/measured/measured_run.hpp"

namespace orrery {

// A group (source_key) whose `iter_time_s` are sums of a program: runs that differ in nothing but their batch
// lie on a straight line more closely than two runs of one plan do. Those scatter by 0.1 % and more.
struct ComputedTimes {
  std::string group;
  std::size_t between = 0;  // times that lie between those of a smaller and of a larger batch
  double deviation = 0;     // from the line through these two, over the time, in the median
};

// Groups with eight such times or more whose deviation is below 2e-5, in alphabetical order.
std::vector<ComputedTimes> computed_times(const std::vector<MeasuredRun>&);

}  // namespace orrery
