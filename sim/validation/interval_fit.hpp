// The table of intervals from a validation, and whether it holds for groups that it was made without.
#pragma once

#include <string>
#include <vector>

#include "costmodels/trust/residuals.hpp"
#include "sim/validation/validation.hpp"

namespace orrery {

// One group for each source, GPU and kind of its runs with a measured time, or memory; for time sources in
// `without` are left out. What tells of running out of memory are the sources that publish such runs; where
// they are too few it is as in the table that comes with Orrery.
Residuals residuals_of(const Validation&, const std::vector<std::string>& without = {});

// Of 90 % intervals for ln(predicted / measured) of some runs.
struct IntervalQuality {
  double inside = 0;  // share of the runs
  double width = 0;   // mean, in logarithms
  double score = 0;   // mean width + 20 x distance of a run outside (Gneiting and Raftery 2007, equation 43)
};

std::string coverage_name(const ValidatedRun&);  // of the group that it is counted in: source and kind
struct Coverage {
  std::string name;
  std::size_t runs = 0;
  bool used = true;            // the intervals of others are made with it
  IntervalQuality group_out;   // of intervals made without this group
  IntervalQuality source_out;  // without any group of its source
  ErrorBand band;              // of its first run, without this group
};
// Of every group of the validation whose runs have it measured. The intervals come from its other groups, and
// from those of the table that comes with Orrery whose sources it does not have.
std::vector<Coverage> coverage_of(const Validation&, Predicted, const std::vector<std::string>& without = {},
                                  int threads = 1);

// Runs that were given a chance from `low` to below `high` to run out of memory, by the other sources.
struct ForeseenChances {
  double low = 0, high = 1;
  std::size_t runs = 0, ran_out = 0;
  double mean = 0;  // of the chances
};
// Of sources that publish runs that ran out; none where there is no such source.
std::vector<ForeseenChances> foreseen_chances(const Validation&);

}  // namespace orrery
