// Where the true time of a plan lies, from how far predictions of published runs of its kind were off.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "costmodels/run_kind.hpp"

namespace orrery {

// Runs of one kind by one source on one GPU. They share a bias: seven runs of a group say little more of the
// next group than one does.
struct ResidualGroup {
  std::string name;  // "torchtitan H100"
  std::string source;
  RunKind kind;
  int runs = 0;
  double mean = 0;      // of ln(predicted / measured): the bias of the group
  double variance = 0;  // of the same around the mean, n - 1 in the denominator; 0 for a single run
  bool operator==(const ResidualGroup&) const = default;
};

// The true time over the predicted one.
struct TimeBand {
  double low = 1, high = 1;
  // Standard deviations of ln(predicted / measured): of the bias of a new group, and of a run around it.
  double bias = 0, scatter = 0;
  std::string basis;  // "measured GPU, dense; megatron-core seen in 3 groups: -12 % +9 %"
};

// Holds nine runs in ten of a group that is none of these, if groups and the runs in one scatter normally: a
// one-way random-effects model, Student's t with Satterthwaite's degrees of freedom. Groups are those of the
// same kind; where there are fewer than three, host-bound and other groups count together, then GPUs measured
// and extrapolated, then kernels measured and not, then dense models and experts. Of these, groups of the same stack family give the centre
// and, with a robust scale of all as a prior of two degrees of freedom, the spread; without any, all groups
// do.
TimeBand band_of(const std::vector<ResidualGroup>&, const RunKind&);

// Quantile 0.95 of Student's t with `freedom` (> 0) degrees of freedom.
double student_95(double freedom);

// The groups that `orrery validate --write-intervals` wrote. Throws InputError.
std::vector<ResidualGroup> parse_residual_groups(std::string_view yaml, const std::string& file);
// `facts`: lines of provenance. Ends with a line break.
std::string to_yaml(const std::vector<ResidualGroup>&, const std::vector<std::string>& facts);
const std::vector<ResidualGroup>& built_in_residuals();

}  // namespace orrery
