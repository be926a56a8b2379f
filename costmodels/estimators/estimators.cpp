#include "costmodels/estimators/estimators.hpp"

#include "costmodels/estimate/estimate.hpp"

namespace orrery {

Seconds recurrence_estimate(const FormulaInput& input) {
  return estimate(input.plan, input.programs, input.topology, input.flows).iteration;
}

const std::vector<Estimator>& estimators() {
  static const std::vector<Estimator> all{
      {"recurrence", "the schedule played exactly, links shared evenly", recurrence_estimate},
      {"homogeneous", "(M + (P-1)/v) mean(t): Megatron-LM, arXiv 2104.04473", homogeneous_estimate},
      {"no-transfers", "sum(t) + (M-1) max(t)", no_transfer_estimate},
      {"astra", "sum(t+h) + (M-1) max(t+h): arXiv 2502.13480", astra_estimate},
      {"amp", "sum(t) + sum(e) + (M-1) max(t) + max(d): arXiv 2210.07297", amp_estimate},
  };
  return all;
}

}  // namespace orrery
