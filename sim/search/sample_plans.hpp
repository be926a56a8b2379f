// Feasible plans drawn at random from the space of a search.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/search/search.hpp"

namespace orrery {

struct PlanSample {
  std::size_t count = 0;  // at most
  std::uint64_t seed = 1;
};

// Plans with a shape, past the rules, that fit in memory and whose links are up: `count` of them without
// repetition, each as likely as any other, or all where there are fewer. Fills the book. The same seed draws
// the same plans.
std::vector<ParallelStrategy> sample_plans(const SearchJob&, std::vector<Rule>&, const CostModels&,
                                           PriceBook&, const PlanSample&);

}  // namespace orrery
