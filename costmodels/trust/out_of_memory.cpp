#include "costmodels/trust/out_of_memory.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

// Log-odds are level + slope x ln(fullness).
struct Line {
  double level = 0, slope = 10;
};

// The logarithm of the likelihood with the prior, and what a step of Newton's method needs of it.
struct Likelihood {
  double log = 0;
  double by_level = 0, by_slope = 0;                         // gradient
  double level_level = 0, level_slope = 0, slope_slope = 0;  // of minus the Hessian
};

Likelihood likelihood(const std::vector<MemoryOutcome>& runs, const Line& line) {
  constexpr double kDeviation = 30, kPrecision = 1 / (kDeviation * kDeviation);
  Likelihood sum;
  sum.log = -line.slope * line.slope * kPrecision / 2;
  sum.by_slope = -line.slope * kPrecision;
  sum.slope_slope = kPrecision;
  for (const MemoryOutcome& run : runs) {
    const double x = std::log(run.fullness), odds = line.level + line.slope * x;
    const double chance = logistic(odds), left = run.ran_out - chance, weight = chance * (1 - chance);
    const double against = run.ran_out ? -odds : odds;
    sum.log -= std::max(against, 0.0) + std::log1p(std::exp(-std::abs(against)));
    sum.by_level += left;
    sum.by_slope += left * x;
    sum.level_level += weight;
    sum.level_slope += weight * x;
    sum.slope_slope += weight * x * x;
  }
  return sum;
}

Line newton_step(const Likelihood& at) {
  const double determinant = at.level_level * at.slope_slope - at.level_slope * at.level_slope;
  return {(at.slope_slope * at.by_level - at.level_slope * at.by_slope) / determinant,
          (at.level_level * at.by_slope - at.level_slope * at.by_level) / determinant};
}

}  // namespace

double OutOfMemoryModel::chance(double fullness) const {
  return fullness > 0 ? logistic(std::log(fullness / even) / spread) : 0;
}

double OutOfMemoryModel::fullness_at(double chance) const {
  return even * std::exp(spread * std::log(chance / (1 - chance)));
}

// Steps are halved until the likelihood, which has one maximum, grows.
std::optional<OutOfMemoryModel> fit_out_of_memory(const std::vector<MemoryOutcome>& runs) {
  constexpr int kFewest = 5, kMostSteps = 100, kMostHalvings = 40;
  constexpr double kSettled = 1e-12;
  const auto ran_out =
      std::count_if(runs.begin(), runs.end(), [](const MemoryOutcome& run) { return run.ran_out; });
  if (ran_out < kFewest || static_cast<long>(runs.size()) - ran_out < kFewest) return std::nullopt;
  Line line;
  Likelihood at = likelihood(runs, line);
  for (int step = 0; step < kMostSteps; ++step) {
    const Line move = newton_step(at);
    const auto moved = [&](double share) {
      return Line{line.level + share * move.level, line.slope + share * move.slope};
    };
    double share = 1;
    Likelihood next = likelihood(runs, moved(share));
    for (int halving = 0; halving < kMostHalvings && !(next.log >= at.log); ++halving) {
      share /= 2;
      next = likelihood(runs, moved(share));
    }
    if (!(next.log > at.log + kSettled)) break;
    line = moved(share);
    at = next;
  }
  if (line.slope <= 0) return std::nullopt;
  return OutOfMemoryModel{std::exp(-line.level / line.slope), 1 / line.slope};
}

}  // namespace orrery
