// The time that no operator goes below on a GPU, whatever a model says.
#pragma once

#include "costmodels/operators/operator.hpp"

namespace orrery {

// Highest clock over the clock of the data-sheet peak.
double top_clock(const GpuSpec&);

// Multiply-adds at the matrix peak and the highest clock; bytes that are read or written once, as fast as the
// L2 cache moves them (least_kernel_time), since small operands may be there already. Zero for a data type
// that the GPU has no peak for.
Seconds least_time(const Gemm&, const GpuSpec&);
Seconds least_time(const Attention&, const GpuSpec&);
// Of any operator: kernels that stream at the pace of the L2 cache, collectives and transfers at link
// bandwidth.
Seconds least_time(const Operator&, const GpuSpec&);

}  // namespace orrery
