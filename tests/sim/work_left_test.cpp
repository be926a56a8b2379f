// Plans that are given up as soon as they are known to take too long.
#include "costmodels/estimate/work_left.hpp"

#include "costmodels/estimate/estimate.hpp"
#include "sim/replay/durations.hpp"
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

// Whether a plan is, before any of it is played, known to take longer than that.
bool is_beyond(const DurationsPlan& given, Seconds limit) {
  const PlanPrograms programs = make_programs(given.plan);
  const TrafficFlows flows(given.plan, programs, given.topology, Folding::on);
  PlanTransfers transfers(given.plan, programs, given.topology, flows);
  return WorkLeft(given.plan, programs, flows, transfers, limit.value()).is_beyond_limit();
}

struct Alone {
  std::string p2p;
  int microbatches;
  std::string traffic;
  double ms;
};

}  // namespace

// Two stages of 1 ms and 2 ms. One microbatch goes there and back: F F B B. Of four, 1f1b takes
// (M + P - 1) x (f + b). A message of 1 MB takes 1 ms, gradients of 1 MB over two replicas 2 x 1/2 x 1 ms
// after the last backward.
TEST_CASE("a plan whose longest path takes too long is given up before it is played") {
  const auto [p2p, microbatches, traffic, ms] = GENERATE(values<Alone>({
      {"eager", 4, "message: 1B\n", 15},
      {"blocking", 4, "message: 1B\n", 15},
      {"eager", 1, "message: 1MB\n", 8},
      {"blocking", 1, "message: 1MB\n", 8},
      {"overlapped", 1, "message: 1MB\n", 8},
      {"eager", 1, "message: 1MB\nreplicas: 2\ngradient: 1MB\n", 9},
  }));
  const std::string yaml =
      "schedule: 1f1b\nmicrobatches: " + std::to_string(microbatches) + "\np2p: " + p2p +
      "\nstages:\n  - {forward: 1ms, backward: 2ms}\n  - {forward: 1ms, backward: 2ms}\n" + traffic +
      "link: {bandwidth: 8Gbps, latency: 0us}\n";
  INFO(yaml);
  const DurationsPlan given = parse_durations(yaml, "test.yaml");
  CHECK(estimate_iteration(given.plan, make_programs(given.plan), given.topology).value() ==
        Approx(ms * 1e-3).epsilon(1e-6));
  CHECK(is_beyond(given, milliseconds(ms * 0.999)));
  CHECK(!is_beyond(given, milliseconds(ms * 1.001)));
}

TEST_CASE("a plan is given up only where it takes longer than asked about", "[slow]") {
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
