#include "sim/bounds/plan_band.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "costmodels/estimate/estimate.hpp"
#include "costmodels/plans/plan_kind.hpp"
#include "costmodels/trust/residuals.hpp"
#include "platforms/errors.hpp"
#include "platforms/topology.hpp"
#include "sim/bounds/feasibility.hpp"

namespace orrery {
namespace {

// Runs of one's own do not make a plan less certain than published ones leave it, unless they scatter more.
template <std::size_t N>
ErrorBand calibrated_band(const Calibrated<N>& known, const Factors<N>& slopes, const ErrorBand& published) {
  double variance = known.scatter * known.scatter;
  for (std::size_t i = 0; i < N; ++i) {
    for (std::size_t j = 0; j < N; ++j) variance += slopes[i] * slopes[j] * known.covariance[i][j];
  }
  constexpr double kNormal95 = 1.6449;
  const double most = std::max(std::log(published.high / published.low) / 2, kNormal95 * known.scatter);
  const double half = std::min(kNormal95 * std::sqrt(std::max(0.0, variance)), most);
  char text[96];
  std::snprintf(text, sizeof text, "calibrated on %d of your runs: %+.0f %% %+.0f %%", known.runs,
                100 * (std::exp(-half) - 1), 100 * (std::exp(half) - 1));
  return {std::exp(-half), std::exp(half), 0, known.scatter, text};
}

// Why a calibration says nothing of the interval of a plan on these GPUs; empty: it does.
std::string silence_on(const std::vector<std::string>& gpus, const std::vector<std::string>& calibrated) {
  const auto has_run = [&](const std::string& gpu) {
    return std::find(calibrated.begin(), calibrated.end(), gpu) != calibrated.end();
  };
  if (std::all_of(gpus.begin(), gpus.end(), has_run)) return {};
  return calibrated.empty()
             ? "calibrated on GPUs that its file does not name"
             : "calibrated on " + comma_list(calibrated) + ", not on all of " + comma_list(gpus);
}

ErrorBand not_narrowed(ErrorBand published, const std::string& why) {
  published.basis += "; not narrowed: " + why;
  return published;
}

// `value`: of the factors.
template <std::size_t N, class Value>
Factors<N> slopes_around(const Factors<N>& around, Slope slope, const Value& value) {
  constexpr double kStep = 0.05;
  Factors<N> slopes{};
  const double here = slope == Slope::flatter ? std::log(value(around)) : 0;
  for (std::size_t i = 0; i < N; ++i) {
    const auto at = [&](double step) {
      Factors<N> factors = around;
      factors[i] *= std::exp(step);
      return std::log(value(factors));
    };
    const double up = at(kStep), down = at(-kStep);
    if (slope == Slope::central) {
      slopes[i] = (up - down) / (2 * kStep);
      continue;
    }
    const double above = (up - here) / kStep, below = (here - down) / kStep;
    if (above * below > 0) slopes[i] = std::copysign(std::min(std::abs(above), std::abs(below)), above);
  }
  return slopes;
}

PriceBook book_under(const PriceBook& book, const SoftwareStack& stack) {
  JobPrecision precision = book.precision();
  precision.stack = stack;
  return {book.model(), book.cluster(), precision};
}

}  // namespace

SoftwareStack with_factors(SoftwareStack stack, const MachineFactors& factors) {
  stack.compute_time *= factors[0];
  stack.host = at_pace(stack.host, factors[1]);
  stack.network.inside *= factors[2];
  stack.network.between *= factors[3];
  return stack;
}

SoftwareStack with_memory_factors(SoftwareStack stack, const MemoryFactors& factors) {
  stack.activation_memory *= factors[0];
  stack.cached_share *= factors[1];
  stack.memory_reserve = stack.memory_reserve * factors[2];
  return stack;
}

double seconds_under(const PriceBook& book, const ParallelStrategy& strategy, const CostModels& costs,
                     const SoftwareStack& stack) {
  PriceBook other = book_under(book, stack);
  other.need(strategy);
  static_cast<void>(other.predict(costs));
  const Topology topology(book.cluster(), strategy.nodes);
  const PricedPlan priced = other.price(strategy, topology);
  return estimate_iteration(priced, make_programs(priced), topology).value();
}

double peak_under(const PriceBook& book, const ParallelStrategy& strategy, MemoryFigure figure,
                  const SoftwareStack& stack) {
  const PriceBook other = book_under(book, stack);
  Bytes most;
  for (const StageMemory& memory : StageFitter(other).memory_of(strategy))
    most = std::max(most, counted(memory, figure));
  return to_gibibytes(most);
}

MachineFactors sensitivities(const PriceBook& book, const ParallelStrategy& strategy, const CostModels& costs,
                             const MachineFactors& around, Slope slope) {
  return slopes_around(around, slope, [&](const MachineFactors& factors) {
    return seconds_under(book, strategy, costs, with_factors(book.stack(), factors));
  });
}

MemoryFactors memory_sensitivities(const PriceBook& book, const ParallelStrategy& strategy,
                                   MemoryFigure figure, const MemoryFactors& around, Slope slope) {
  return slopes_around(around, slope, [&](const MemoryFactors& factors) {
    return peak_under(book, strategy, figure, with_memory_factors(book.stack(), factors));
  });
}

std::vector<std::string> gpus_of(const ClusterSpec& cluster, const ParallelStrategy& strategy) {
  std::set<std::string> names;
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    for (const StageDevices& stage : strategy.of_kind(kind).stages)
      names.insert(cluster.groups[static_cast<std::size_t>(stage.group)].gpu.name);
  }
  return {names.begin(), names.end()};
}

ErrorBand plan_band(const PriceBook& book, const ParallelStrategy& strategy, const CostModels& costs) {
  const ErrorBand published = band_of(kind_of(book, strategy), Predicted::time);
  const auto& known = book.stack().calibrated;
  if (!known) return published;
  const std::string silence = silence_on(gpus_of(book.cluster(), strategy), known->gpus);
  if (!silence.empty()) return not_narrowed(published, silence);
  if (known->cost_models != costs.digest())
    return not_narrowed(published, "calibrated with other cost models");
  return calibrated_band(*known, sensitivities(book, strategy, costs), published);
}

ErrorBand memory_band(const PriceBook& book, const ParallelStrategy& strategy) {
  const ErrorBand published = band_of(kind_of(book, strategy), Predicted::memory);
  const auto& known = book.stack().calibrated_memory;
  if (!known) return published;
  const std::string silence = silence_on(gpus_of(book.cluster(), strategy), known->gpus);
  if (!silence.empty()) return not_narrowed(published, silence);
  return calibrated_band(*known, memory_sensitivities(book, strategy, MemoryFigure::card), published);
}

}  // namespace orrery
