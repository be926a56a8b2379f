// Chances to run out of memory: against a known world, and a grid that looks everywhere.
#include "costmodels/trust/out_of_memory.hpp"

#include <cmath>
#include <random>

#include "costmodels/trust/residuals.hpp"
#include "tests/catch.hpp"

namespace orrery {
namespace {

std::vector<MemoryOutcome> draw(const OutOfMemoryModel& truth, int count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> logarithm(std::log(0.5), std::log(1.6)), unit(0, 1);
  std::vector<MemoryOutcome> runs;
  for (int run = 0; run < count; ++run) {
    const double fullness = std::exp(logarithm(random));
    runs.push_back({fullness, unit(random) < truth.chance(fullness)});
  }
  return runs;
}

// ln of how likely these outcomes are; of the prior on 1 / spread too.
double log_likelihood(const std::vector<MemoryOutcome>& runs, const OutOfMemoryModel& model) {
  double sum = -0.5 / (30 * 30 * model.spread * model.spread);
  for (const MemoryOutcome& run : runs) {
    const double chance = model.chance(run.fullness);
    sum += std::log(run.ran_out ? chance : 1 - chance);
  }
  return sum;
}

TEST_CASE("half of the runs at even fullness run out, more of fuller ones, and the inverse undoes it") {
  const OutOfMemoryModel model{.even = 0.9, .spread = 0.1};
  CHECK(model.chance(0.9) == Approx(0.5));
  // Odds of e : 1 one spread above.
  CHECK(model.chance(0.9 * std::exp(0.1)) == Approx(std::exp(1) / (1 + std::exp(1))));
  CHECK(model.chance(0) == 0);
  double before = 0;
  for (double fullness = 0.05; fullness < 3; fullness += 0.05) {
    CHECK(model.chance(fullness) > before);
    before = model.chance(fullness);
    if (before < 1 - 1e-9) CHECK(model.fullness_at(before) == Approx(fullness).epsilon(1e-6));
  }
}

TEST_CASE("the chances of a world are found from its runs, and nothing on a grid is likelier") {
  const OutOfMemoryModel truth{.even = 0.93, .spread = 0.08};
  const std::vector<MemoryOutcome> runs = draw(truth, 4000, 11);
  const auto found = fit_out_of_memory(runs);
  REQUIRE(found);
  // Of some 700 runs within two spreads of even: deviations of about 0.006 and 0.004.
  CHECK(found->even == Approx(truth.even).margin(0.02));
  CHECK(found->spread == Approx(truth.spread).margin(0.015));
  const double best = log_likelihood(runs, *found);
  for (double even = 0.8; even < 1.1; even += 0.005) {
    for (double spread = 0.02; spread < 0.3; spread += 0.005)
      CHECK(log_likelihood(runs, {even, spread}) <= best + 1e-9);
  }
}

TEST_CASE("runs that counts part without an error leave a spread, the smaller the more there are") {
  const auto parted = [](int copies) {
    std::vector<MemoryOutcome> runs;
    for (int copy = 0; copy < copies; ++copy) {
      for (const double fullness : {0.6, 0.7, 0.8, 0.9}) runs.push_back({fullness, false});
      for (const double fullness : {1.0, 1.1, 1.2, 1.3}) runs.push_back({fullness, true});
    }
    return fit_out_of_memory(runs);
  };
  REQUIRE(parted(2));
  CHECK(parted(2)->even > 0.9);
  CHECK(parted(2)->even < 1.0);
  CHECK(parted(2)->spread > 0.005);
  CHECK(parted(50)->spread < parted(2)->spread);
}

TEST_CASE("too few runs of either outcome, or fuller ones that run out less, tell nothing") {
  CHECK_FALSE(fit_out_of_memory({}));
  std::vector<MemoryOutcome> runs(100, {0.7, false});
  for (int failure = 0; failure < 4; ++failure) runs.push_back({1.2, true});
  CHECK_FALSE(fit_out_of_memory(runs));
  runs.push_back({1.2, true});
  CHECK(fit_out_of_memory(runs));
  for (MemoryOutcome& run : runs) run.fullness = 1 / run.fullness;
  CHECK_FALSE(fit_out_of_memory(runs));
}

TEST_CASE("what comes with Orrery says little to a card two thirds full and much to one counted too full") {
  const OutOfMemoryModel model = built_in_residuals().out_of_memory;
  CHECK(model.chance(0.67) < 0.05);  // such a plan "fits"
  CHECK(model.chance(1.1) > 0.65);
}

}  // namespace
}  // namespace orrery
