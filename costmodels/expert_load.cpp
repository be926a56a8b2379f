#include "costmodels/expert_load.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace orrery {

double expected_largest(int count) {
  if (count < 2) return 0.0;
  // The integral over x > 0 of 1 - F(x)^n - F(-x)^n by the trapezoid rule; F differs from 0 and 1 by less
  // than 1e-15 beyond 8.
  constexpr double kEnd = 8.0, kStep = 1.0 / 16;
  const auto n = static_cast<double>(count);
  const auto value = [n](double x) {
    const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    return 1.0 - std::pow(below, n) - std::pow(1.0 - below, n);
  };
  double sum = 0.5 * value(0.0);
  for (double x = kStep; x <= kEnd; x += kStep) sum += value(x);
  return sum * kStep;
}

namespace {

// The integral takes a hundred times as long as the rest of a layer, of which it is asked again and again.
double known_largest(int count) {
  constexpr int kKnown = 256;  // expert ways of the largest mixtures
  static const std::vector<double> known = [] {
    std::vector<double> all;
    for (int ways = 0; ways <= kKnown; ++ways) all.push_back(expected_largest(ways));
    return all;
  }();
  return count <= kKnown ? known[static_cast<std::size_t>(count)] : expected_largest(count);
}

}  // namespace

double busiest_load(const ExpertSpread& spread, double cv) {
  if (cv <= 0.0 || spread.ways < 2) return 1.0;
  const auto experts = static_cast<double>(spread.experts);
  const double held = std::max(1.0, experts / spread.ways);
  const double most = experts / std::max(static_cast<double>(spread.per_token), held);
  return std::clamp(1.0 + cv / std::sqrt(held) * known_largest(spread.ways), 1.0, std::max(1.0, most));
}

}  // namespace orrery
