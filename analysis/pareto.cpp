#include "analysis/pareto.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace orrery {

std::vector<std::size_t> pareto_front(const std::vector<ParetoPoint>& points) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!std::isnan(points[i].hours) && !std::isnan(points[i].dollars)) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::tie(points[a].hours, points[a].dollars, a) < std::tie(points[b].hours, points[b].dollars, b);
  });
  // In this order only an earlier point can dominate; the last one listed is the cheapest of them.
  std::vector<std::size_t> front;
  for (const std::size_t i : order) {
    const bool equal_to_last = !front.empty() && points[front.back()] == points[i];
    if (front.empty() || points[i].dollars < points[front.back()].dollars || equal_to_last)
      front.push_back(i);
  }
  return front;
}

}  // namespace orrery
