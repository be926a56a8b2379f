// The intervals of a plan, and how its time and its memory answer to what a calibration fits.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "costmodels/memory/memory.hpp"
#include "costmodels/models/cost_models.hpp"
#include "costmodels/plans/price_book.hpp"
#include "costmodels/trust/intervals.hpp"

namespace orrery {

// What runs of one's own may tell of N facts, as factors on what a stack says, or their logarithms, or
// deviations of these.
template <std::size_t N>
using Factors = std::array<double, N>;

// The time of all kernels, the host's time, the bandwidth reached inside nodes and between them.
inline constexpr std::size_t kMachineFacts = 4;
using MachineFactors = Factors<kMachineFacts>;
SoftwareStack with_factors(SoftwareStack, const MachineFactors&);

// What a forward leaves, the share of freed blocks that stay, what the process has beside PyTorch's blocks.
inline constexpr std::size_t kMemoryFacts = 3;
using MemoryFactors = Factors<kMemoryFacts>;
SoftwareStack with_memory_factors(SoftwareStack, const MemoryFactors&);

// Seconds of an iteration by the estimate, under another stack than the book's.
double seconds_under(const PriceBook&, const ParallelStrategy&, const CostModels&, const SoftwareStack&);
// GiB of the fullest GPU at its peak, likewise.
double peak_under(const PriceBook&, const ParallelStrategy&, MemoryFigure, const SoftwareStack&);

// Differences over 5 % to both sides, or to the one where less changes: nothing where a link is full, or work
// hidden, just there, so that a time tells a bound on the factor but no value.
enum class Slope { central, flatter };
// d ln(time) / d ln(factor) around `at`; of the peak likewise.
MachineFactors sensitivities(const PriceBook&, const ParallelStrategy&, const CostModels&,
                             const MachineFactors& at = {1, 1, 1, 1}, Slope = Slope::central);
MemoryFactors memory_sensitivities(const PriceBook&, const ParallelStrategy&, MemoryFigure,
                                   const MemoryFactors& at = {1, 1, 1}, Slope = Slope::central);

// Names of the GPUs that stages of a plan stand on, in order, each once; nodes left idle are not among them.
std::vector<std::string> gpus_of(const ClusterSpec&, const ParallelStrategy&);

// By published runs of its kind; for a calibrated stack by what the calibration left open, as far as this
// plan's time depends on it, and the scatter of its runs. Not where the plan has GPUs, or is priced by cost
// models, that it was not calibrated on: its basis says so.
ErrorBand plan_band(const PriceBook&, const ParallelStrategy&, const CostModels&);
ErrorBand memory_band(const PriceBook&, const ParallelStrategy&);  // of the card, likewise

}  // namespace orrery
