// The stretch of a run by interruptions against a run played loss by loss, and by hand.
#include "costmodels/money/interruptions.hpp"

#include <cmath>
#include <random>

#include "costmodels/money/money.hpp"
#include "tests/catch.hpp"

namespace orrery {
namespace {

ClusterSpec spot_cluster() {
  ClusterSpec cluster;
  cluster.groups.resize(2);
  cluster.groups[0].price = DollarsPerHour(2);
  cluster.groups[0].interrupted_every = hours(10);
  cluster.groups[1].price = DollarsPerHour(10);
  cluster.checkpoint = {Seconds(50), Seconds(200), {}};
  return cluster;
}

// Time over work of a long run: a segment of work and its checkpoint is done when no loss falls into it, and
// a restart is itself lost when the next loss comes before its end.
double played_stretch(double every, double interval, double write, double restart) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> life(1 / every);
  const int segments = 200'000;
  double time = 0;
  for (int done = 0; done < segments; ++done) {
    double needed = interval + write;  // the first attempt needs no restart
    for (double lost = life(random); lost < needed; lost = life(random)) {
      time += lost;
      needed = restart + interval + write;
    }
    time += needed;
  }
  return time / (segments * interval);
}

}  // namespace

TEST_CASE("rates of nodes add up, and groups that stay do not count") {
  // 20 nodes, each once in 10 h: once in half an hour.
  const Interruptions lost = interruptions(spot_cluster(), {20, 8});
  REQUIRE(lost.every);
  CHECK(lost.every->value() == Approx(1800));
  // Daly's 37 with d / 2M = 50 / 3600: sqrt(2 x 50 x 1800) (1 + 0.11785 / 3 + 0.013889 / 9) - 50.
  CHECK(lost.interval.value() == Approx(424.264 * (1 + 0.117851 / 3 + 0.0138889 / 9) - 50).epsilon(1e-4));
  const Interruptions none = interruptions(spot_cluster(), {0, 8});
  CHECK_FALSE(none.every);
  CHECK(none.stretch == 1);
}

TEST_CASE("the expected stretch is close to that of a run played loss by loss") {
  ClusterSpec cluster = spot_cluster();
  cluster.checkpoint.interval = Seconds(GENERATE(60.0, 400.0, 1500.0));
  const double expected = interruptions(cluster, {20, 8}).stretch;
  const double played = played_stretch(1800, cluster.checkpoint.interval->value(), 50, 200);
  // Daly has each retry pay the restart once, whether or not that is cut short; the play cuts restarts off.
  CAPTURE(expected, played);
  CHECK(expected == Approx(played).epsilon(0.02));
}

TEST_CASE("no interval is better than Daly's by more than a thousandth, and often it is worse") {
  ClusterSpec cluster = spot_cluster();
  const int nodes = GENERATE(1, 20, 200);
  const double best = interruptions(cluster, {nodes, 0}).stretch;
  double longest = 0;
  for (double interval = 5; interval < 40'000; interval *= 1.05) {
    cluster.checkpoint.interval = Seconds(interval);
    const double stretch = interruptions(cluster, {nodes, 0}).stretch;
    CHECK(stretch > best * (1 - 1e-3));
    longest = std::max(longest, stretch);
  }
  CHECK(longest > 1.1 * best);
}

TEST_CASE("where losses are rare Young's first order holds") {
  ClusterSpec cluster = spot_cluster();
  cluster.groups[0].interrupted_every = hours(100'000);
  // Of each sqrt(2 d M) of work d is written, half of it is lost every M, and a restart: sqrt(2 d / M) + R /
  // M.
  const double every = 3.6e8;
  CHECK(interruptions(cluster, {1, 0}).stretch - 1 ==
        Approx(std::sqrt(2 * 50 / every) + 200 / every).epsilon(0.01));
}

TEST_CASE("losses too frequent to get on are a huge number, not an infinite one") {
  const double stretch = interruptions(spot_cluster(), {100'000'000, 0}).stretch;
  CHECK(std::isfinite(stretch));
  CHECK(stretch >= 1e9);
}

TEST_CASE("egress is paid once an iteration, whatever interrupts it") {
  const auto cost = run_cost(spot_cluster(), {20, 1}, Seconds(36), 1e6, 100e6, Dollars(0.25));
  REQUIRE(cost);
  // 20 x 2 + 10 = 50 USD/h for 100 iterations of 36 s, an hour, and 100 x 0.25 USD.
  CHECK(cost->total_time.value() == Approx(3600));
  CHECK(cost->egress.value() == Approx(25));
  CHECK(cost->total.value() == Approx(50 + 25));
  CHECK(cost->per_iteration.value() == Approx(0.5 + 0.25));
  CHECK(cost->per_million_tokens.value() == Approx(0.5 + 0.25));
}

}  // namespace orrery
