// Which plans are worth a look: none other is both faster and cheaper.
#pragma once

#include <cstddef>
#include <vector>

namespace orrery {

struct ParetoPoint {
  double hours = 0;    // to finish the whole training
  double dollars = 0;  // it costs
  bool operator==(const ParetoPoint&) const = default;
};

// Indices of the points that no other point dominates, fastest first. A point dominates another when it is no
// worse in both and better in one; equal points stay together, in the order given. A point with a NaN is
// never listed.
std::vector<std::size_t> pareto_front(const std::vector<ParetoPoint>&);

}  // namespace orrery
