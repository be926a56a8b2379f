// Clocks under load: what was measured kernel by kernel is faster than the same kernels in a training run.
#pragma once

#include <cstdint>

#include "costmodels/operators/operator.hpp"

namespace orrery {

// Time of the slowest of `gpus` alike that run at their power limit, over that of the median one: chips
// differ in the clock they hold there, and a step waits for the slowest of all. 8 % from slowest to fastest
// but outliers, in the mean over five clusters of V100 and MI60 (Sinha et al. 2022, arXiv 2208.11035): taken
// for the whiskers of a normal distribution, 5.4 standard deviations, and for all GPUs (assumptions; Hopper
// was not among them). Looked for after seeing runs on GPUs at their limit predicted too fast, the more of
// them the more. 1 for one GPU.
double slowest_of(std::int64_t gpus);

// Time of an operator in a run that keeps the GPU at its power limit, from its time alone. GpuSpec::sustained
// holds for GEMMs whose measured kernels took up to 1 ms and fades out until 4 ms to its ratio to H100's,
// because a benchmark of longer kernels is throttled already, on H100, where it was made (FIDELITY B 3: over
// 2 ms; the width is an assumption); GpuSpec::sustained_long says otherwise of a GPU whose own were measured.
// From 1 on it holds for GEMMs of any length, and GpuSpec::sustained_fp32 for those in fp32. A power limit
// below the data sheet's scales clocks of GEMMs and attention by (limit / power)^0.74.
Seconds under_power(const Operator&, const GpuSpec&, Seconds alone);

// Whether the GPU holds its clock down in training runs, and whether the operator is of those that make it:
// then a run waits for the slowest of its GPUs.
bool at_power_limit(const GpuSpec&);
bool draws_full_power(const Operator&);

}  // namespace orrery
