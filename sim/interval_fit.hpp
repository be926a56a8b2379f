// The table of intervals from a validation, and whether it holds for groups that it was made without.
#pragma once

#include <string>
#include <vector>

#include "costmodels/intervals.hpp"
#include "sim/validation.hpp"

namespace orrery {

// One for each source, GPU and kind of its runs with a measured time; sources in `without` are left out.
std::vector<ResidualGroup> residual_groups(const Validation&, const std::vector<std::string>& without = {});

struct Coverage {
  std::string name;  // source and GPU
  std::size_t runs = 0;
  bool used = true;       // the intervals of others are made with it
  double inside = 0;      // share of its runs in the interval made without this group
  double source_out = 0;  // without any group of its source
  TimeBand band;          // of its first run, without this group
};
// Of every group of the validation. The intervals come from the other groups; where those are fewer than
// three, from the table that comes with Orrery.
std::vector<Coverage> coverage_of(const Validation&, const std::vector<std::string>& without = {});

}  // namespace orrery
