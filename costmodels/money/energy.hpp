// The electricity a run takes.
#pragma once

#include "costmodels/plans/price_book.hpp"
#include "platforms/units.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// A GPU that waits in a run, its memory full and its kernels polling: this share of its design power, where
// GpuSpec::idle_power says nothing (assumption).
inline constexpr double kIdleShareOfPower = 0.2;

Watts busy_power(const GpuSpec&);  // the design power, or the limit that its owner set
Watts idle_power(const GpuSpec&);

// kWh of one iteration of this length, of all GPUs of the nodes that are paid for, times ClusterSpec::pue. A
// GPU draws busy_power while it computes (forward, backward and recomputation, without exposed
// tensor-parallel communication) and idle_power for the rest of the iteration; hosts and switches are in the
// PUE alone.
double energy_kwh(const PriceBook&, const ParallelStrategy&, Seconds iteration);

}  // namespace orrery
