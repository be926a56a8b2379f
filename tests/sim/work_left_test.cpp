// Plans that are given up as soon as they are known to take too long.
#include "costmodels/work_left.hpp"

#include "costmodels/estimate.hpp"
#include "tests/catch.hpp"
#include "tests/sim/random_plan.hpp"

namespace orrery {
namespace {

RandomPlan drawn(std::uint32_t seed) {
  const Contention contention = seed % 4 == 0 ? Contention::ideal : Contention::shared;
  RandomPlan plan = seed % 2 == 0 ? random_plan(seed, contention) : random_symmetric_plan(seed, contention);
  if (seed % 3 > 0) plan = with_overlaps(std::move(plan), seed);
  if (seed % 5 > 1) plan = with_group_calls(std::move(plan), seed);
  if (seed % 7 == 0) plan = with_unequal_replicas(std::move(plan), seed);
  return plan;
}

}  // namespace

TEST_CASE("a plan is given up only where it takes longer than asked about") {
  int within = 0, given_up_early = 0;
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    const RandomPlan one = drawn(seed);
    INFO("seed " << seed << "\n" << one.text);
    const PlanPrograms programs = make_programs(one.plan);
    const Seconds time = estimate_iteration(one.plan, programs, one.topology);
    for (const double share : {1 + 1e-12, 1.01, 2.0}) {
      const auto found = estimate_within(time * share, one.plan, programs, one.topology);
      REQUIRE(found == time);

      ++within;
    }
    for (const double share : {0.0, 0.5, 0.99, 1 - 1e-9})
      REQUIRE(!estimate_within(time * share, one.plan, programs, one.topology));
    if (one.plan.iterations > 2) continue;
    const TrafficFlows flows(one.plan, programs, one.topology, Folding::on);
    PlanTransfers transfers(one.plan, programs, one.topology, flows);
    given_up_early +=
        WorkLeft(one.plan, programs, flows, transfers, time.value() * 0.5).is_beyond_limit() ? 1 : 0;
  }
  CHECK(within > 1800);
  CHECK(given_up_early > 200);
}

}  // namespace orrery
