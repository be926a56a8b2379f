// How likely a plan is to run out of memory, by how full it is counted to make its fullest card.
#pragma once

#include <optional>
#include <vector>

namespace orrery {

// A run whose source publishes failures too: those that publish successes alone tell nothing of the odds.
struct MemoryOutcome {
  double fullness = 0;  // of its fullest card, as counted: costmodels/memory/card_memory.hpp
  bool ran_out = false;
};

// Logistic in the logarithm of the fullness.
struct OutOfMemoryModel {
  double even = 1;       // fullness at which one run of two runs out
  double spread = 0.05;  // odds grow by e for each such step of ln(fullness)
  [[nodiscard]] double chance(double fullness) const;
  [[nodiscard]] double fullness_at(double chance) const;  // of above 0 and below 1
  bool operator==(const OutOfMemoryModel&) const = default;
};

// By maximum likelihood, with a prior on the slope, normal around 0 with a deviation of 30 (a spread of
// 0.033): where counts part the runs without an error, their number says how much that proves. Absent with
// fewer than five runs of either outcome, or where fuller ones run out less.
std::optional<OutOfMemoryModel> fit_out_of_memory(const std::vector<MemoryOutcome>&);

}  // namespace orrery
