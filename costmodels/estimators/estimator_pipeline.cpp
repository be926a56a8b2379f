// Formulas of a pipeline of stages with and without transfers.
#include "costmodels/estimators/estimators.hpp"

namespace orrery {

Seconds homogeneous_estimate(const FormulaInput& input) {
  const FormulaTerms terms = formula_terms(input);
  const double stages = input.plan.stages();
  const double passes = terms.microbatches + (stages - 1) / input.plan.schedule.chunks;
  return sum(terms.compute) / stages * passes + terms.tail;
}

Seconds no_transfer_estimate(const FormulaInput& input) {
  const FormulaTerms terms = formula_terms(input);
  return sum(terms.compute) + largest(terms.compute) * (terms.microbatches - 1) + terms.tail;
}

}  // namespace orrery
