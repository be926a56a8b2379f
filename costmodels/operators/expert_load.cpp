#include "costmodels/operators/expert_load.hpp"

#include <algorithm>
#include <boost/math/distributions/hypergeometric.hpp>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>
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

double busiest_load(const ExpertSpread& spread, const ExpertLoad& load) {
  if (load.capacity) return *load.capacity;
  if (load.cv <= 0.0 || spread.ways < 2) return 1.0;
  const auto experts = static_cast<double>(spread.experts);
  const double held = std::max(1.0, experts / spread.ways);
  const double most = experts / std::max(static_cast<double>(spread.per_token), held);
  return std::clamp(1.0 + load.cv / std::sqrt(held) * known_largest(spread.ways), 1.0, std::max(1.0, most));
}

double multiplied_load(const ExpertSpread& spread, const ExpertLoad& load) {
  ExpertSpread each = spread;
  if (load.one_length) each.ways = static_cast<int>(spread.experts);
  return busiest_load(each, load);
}

OneHotMatrices one_hot_matrices(const ExpertSpread& spread, const ExpertLoad& load, std::int64_t tokens,
                                std::int64_t sequences) {
  if (!load.capacity || load.one_hot == OneHotGroup::none) return {};
  OneHotMatrices matrices{.count = load.one_hot == OneHotGroup::sequence ? sequences : 1};
  matrices.tokens = (tokens + matrices.count - 1) / matrices.count;
  const std::int64_t even = (matrices.tokens * spread.per_token + spread.experts - 1) / spread.experts;
  const auto rows = static_cast<std::int64_t>(std::ceil(*load.capacity * static_cast<double>(even)));
  matrices.places = spread.experts * rows;
  return matrices;
}

namespace {

// Chance that none of `drawn` different ones of `all` is among `marked`. Real numbers where parts are uneven.
double none_drawn(double all, double marked, std::int64_t drawn) {
  double chance = 1.0;
  for (std::int64_t i = 0; i < drawn; ++i) {
    const auto before = static_cast<double>(i);
    chance *= std::max(0.0, all - marked - before) / std::max(1.0, all - before);
  }
  return chance;
}

}  // namespace

double places_reached(const ExpertChoice& choice, double places) {
  const auto experts = static_cast<double>(choice.experts), groups = static_cast<double>(choice.groups);
  const double share = static_cast<double>(choice.chosen_groups) / groups;
  const double open = experts * share;  // that the token may choose from
  if (places >= groups) return places * share * (1 - none_drawn(open, experts / places, choice.per_token));
  const auto held = std::lround(groups / places);
  // How many of a place's groups are among the chosen ones.
  const boost::math::hypergeometric among(static_cast<unsigned>(choice.chosen_groups),
                                          static_cast<unsigned>(held), static_cast<unsigned>(choice.groups));
  const auto [fewest, most] = boost::math::range(among);
  double missed = 0.0;
  for (auto hits = fewest; hits <= most; ++hits)
    missed += boost::math::pdf(among, hits) *
              none_drawn(open, static_cast<double>(hits) * experts / groups, choice.per_token);
  return places * (1 - missed);
}

double places_reached_in_turn(const ExpertChoice& choice, std::int64_t places) {
  const std::int64_t tokens = choice.experts / std::gcd(choice.experts, choice.per_token);  // then as before
  std::int64_t reached = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    std::set<std::int64_t> of_token;
    for (std::int64_t k = 0; k < choice.per_token; ++k)
      of_token.insert((token * choice.per_token + k) % choice.experts * places / choice.experts);
    reached += std::ssize(of_token);
  }
  return static_cast<double>(reached) / static_cast<double>(tokens);
}

}  // namespace orrery
