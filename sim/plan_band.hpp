// The interval of a plan, and how its time answers to what a calibration fits.
#pragma once

#include <array>

#include "costmodels/cost_models.hpp"
#include "costmodels/intervals.hpp"

namespace orrery {

// What runs of one's own may tell of a machine, as factors on what a stack says: the time of all kernels, the
// host's time, the bandwidth reached inside nodes and between them.
inline constexpr std::size_t kMachineFacts = 4;
enum class MachineFact { compute_time, host, inside, between };
using MachineFactors = std::array<double, kMachineFacts>;  // or their logarithms, or deviations of these

SoftwareStack with_factors(SoftwareStack, const MachineFactors& factors);

// Seconds of an iteration by the estimate, under another stack than the book's.
double seconds_under(const PriceBook&, const ParallelStrategy&, const CostModels&, const SoftwareStack&);
// d ln(time) / d ln(factor) around `at`, by central differences of 5 %.
MachineFactors sensitivities(const PriceBook&, const ParallelStrategy&, const CostModels&,
                             const MachineFactors& at = {1, 1, 1, 1});

// By published runs of its kind; for a calibrated stack by what the calibration left open, as far as this
// plan's time depends on it, and the scatter of its runs.
ErrorBand plan_band(const PriceBook&, const ParallelStrategy&, const CostModels&);

}  // namespace orrery
