#include "costmodels/money/money.hpp"

#include "tests/catch.hpp"

namespace orrery {
namespace {

ClusterSpec two_groups() {
  ClusterSpec cluster;
  cluster.groups.resize(2);
  cluster.groups[0].gpus_per_node = 8;
  cluster.groups[0].price = DollarsPerHour(36.0);
  cluster.groups[1].gpus_per_node = 4;
  cluster.groups[1].price = DollarsPerHour(14.4);
  return cluster;
}

}  // namespace

TEST_CASE("the price of a run is nodes times hours, for an iteration, a million tokens and the whole job") {
  const auto cost = run_cost(two_groups(), {2, 5}, Seconds(10), 4e6, 4e9);
  REQUIRE(cost);
  // 2 x 36 + 5 x 14.4 = 144 USD/h: 10 s are 0.40 USD, for 4 million tokens. 1000 iterations last 10000 s.
  CHECK(cost->price.value() == Approx(144));
  CHECK(cost->per_iteration.value() == Approx(0.4));
  CHECK(cost->per_million_tokens.value() == Approx(0.1));
  CHECK(cost->total_time.value() == Approx(10000));
  CHECK(cost->total.value() == Approx(400));
  CHECK(cost->gpu_hours == Approx((2 * 8 + 5 * 4) * 10.0 / 3600));
}

TEST_CASE("the last iteration is paid in full") {
  const auto cost = run_cost(two_groups(), {1, 0}, Seconds(100), 4e6, 9e6);
  REQUIRE(cost);
  // 2.25 iterations are three: 300 s at 36 USD/h.
  CHECK(cost->total_time.value() == Approx(300));
  CHECK(cost->total.value() == Approx(3));
}

TEST_CASE("a group without a price has no cost to report, unless none of its nodes is rented") {
  ClusterSpec cluster = two_groups();
  cluster.groups[1].price.reset();
  CHECK_FALSE(run_cost(cluster, {1, 1}, Seconds(1), 1e6, 1e9));
  CHECK(run_cost(cluster, {1, 0}, Seconds(1), 1e6, 1e9));
}

}  // namespace orrery
