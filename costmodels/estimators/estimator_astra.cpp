#include "costmodels/estimators/estimators.hpp"

namespace orrery {

Seconds astra_estimate(const FormulaInput& input) {
  const FormulaTerms terms = formula_terms(input);
  std::vector<Seconds> busy = terms.compute;
  for (std::size_t stage = 0; stage < busy.size(); ++stage) busy[stage] += terms.transfer[stage];
  return sum(busy) + largest(busy) * (terms.microbatches - 1) + terms.tail;
}

}  // namespace orrery
