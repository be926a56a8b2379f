#include "sim/plan_band.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "costmodels/estimate.hpp"
#include "costmodels/residuals.hpp"
#include "platforms/topology.hpp"

namespace orrery {
namespace {

// Runs of one's own do not make a plan less certain than published ones leave it.
ErrorBand calibrated_band(const CalibratedStack& known, const MachineFactors& slopes,
                         const ErrorBand& published) {
  double variance = known.scatter * known.scatter;
  for (std::size_t i = 0; i < kMachineFacts; ++i) {
    for (std::size_t j = 0; j < kMachineFacts; ++j)
      variance += slopes[i] * slopes[j] * known.covariance[i][j];
  }
  constexpr double kNormal95 = 1.6449;
  const double half =
      std::min(kNormal95 * std::sqrt(std::max(0.0, variance)), std::log(published.high / published.low) / 2);
  char text[96];
  std::snprintf(text, sizeof text, "calibrated on %d of your runs: %+.0f %% %+.0f %%", known.runs,
                100 * (std::exp(-half) - 1), 100 * (std::exp(half) - 1));
  return {std::exp(-half), std::exp(half), 0, known.scatter, text};
}

}  // namespace

SoftwareStack with_factors(SoftwareStack stack, const MachineFactors& factors) {
  stack.compute_time *= factors[0];
  for (Seconds HostCost::*part : {&HostCost::forward, &HostCost::backward, &HostCost::collective})
    stack.host.*part = stack.host.*part * factors[1];
  stack.network.inside *= factors[2];
  stack.network.between *= factors[3];
  return stack;
}

double seconds_under(const PriceBook& book, const ParallelStrategy& strategy, const CostModels& costs,
                     const SoftwareStack& stack) {
  JobPrecision precision = book.precision();
  precision.stack = stack;
  PriceBook other(book.model(), book.cluster(), precision);
  other.need(strategy);
  static_cast<void>(other.predict(costs));
  const Topology topology(book.cluster(), strategy.nodes);
  const PricedPlan priced = other.price(strategy, topology);
  return estimate_iteration(priced, make_programs(priced), topology).value();
}

MachineFactors sensitivities(const PriceBook& book, const ParallelStrategy& strategy, const CostModels& costs,
                             const MachineFactors& around) {
  constexpr double kStep = 0.05;
  MachineFactors slopes{};
  for (std::size_t i = 0; i < kMachineFacts; ++i) {
    const auto at = [&](double step) {
      MachineFactors factors = around;
      factors[i] *= std::exp(step);
      return std::log(seconds_under(book, strategy, costs, with_factors(book.stack(), factors)));
    };
    slopes[i] = (at(kStep) - at(-kStep)) / (2 * kStep);
  }
  return slopes;
}

ErrorBand plan_band(const PriceBook& book, const ParallelStrategy& strategy, const CostModels& costs) {
  const ErrorBand published = band_of(kind_of(book, strategy), Predicted::time);
  const auto& known = book.stack().calibrated;
  return known ? calibrated_band(*known, sensitivities(book, strategy, costs), published) : published;
}

}  // namespace orrery
