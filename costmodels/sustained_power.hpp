// Clocks under load: what was measured kernel by kernel is faster than the same kernels in a training run.
#pragma once

#include "costmodels/operator.hpp"

namespace orrery {

// Time of an operator in a run that keeps the GPU at its power limit, from its time alone. GpuSpec::sustained
// holds for GEMMs whose measured kernels took up to 1 ms and fades out until 4 ms, because a benchmark of
// longer kernels is throttled already (FIDELITY B 3: over 2 ms; the width is an assumption). Above 1 it holds
// for GEMMs of any length. A power limit below the data sheet's scales clocks of GEMMs and attention by
// (limit / power)^0.4 (assumption, FIDELITY B 9.1).
Seconds under_power(const Operator&, const GpuSpec&, Seconds alone);

}  // namespace orrery
