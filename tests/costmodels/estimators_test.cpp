#include "costmodels/estimators/estimators.hpp"

#include "costmodels/estimators/amp.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/flat_cluster.hpp"
#include "tests/costmodels/pipeline_plan.hpp"

namespace orrery {
namespace {

struct Stages {
  std::vector<double> forward;   // s; the backward takes twice as long
  std::vector<double> transfer;  // s, of each boundary
  int microbatches = 1;
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int chunks = 1;
};

double estimate_by(std::string_view name, const PricedPlan& plan, const Topology& topology) {
  const PlanPrograms programs = make_programs(plan);
  const TrafficFlows flows(plan, programs, topology, Folding::on);
  for (const Estimator& estimator : estimators()) {
    if (estimator.name == name) return estimator.iteration({plan, programs, topology, flows}).value();
  }
  FAIL("no estimator " << name);
  return 0;
}

double estimate_by(std::string_view name, const Stages& stages) {
  const int ranks = static_cast<int>(stages.forward.size()) / stages.chunks;
  test::PlayTimes times;
  times.forward = stages.forward;
  for (const double forward : stages.forward) times.backward.push_back(2 * forward);
  times.transfer = stages.transfer;
  const PricedPlan plan = test::pipeline_plan(
      ScheduleShape{stages.kind, TransferMode::eager, ranks, stages.chunks, stages.microbatches}, times);
  return estimate_by(name, plan, test::pipeline_topology(ranks));
}

}  // namespace

TEST_CASE("with equal stages and free transfers every estimator gives (M + P - 1) (F + BW)") {
  const Stages equal{{1, 1, 1, 1}, {0, 0, 0}, 8};
  for (const Estimator& estimator : estimators()) {
    INFO(estimator.name);
    CHECK(estimate_by(estimator.name, equal) == Approx((8 + 4 - 1) * 3));
  }
}

TEST_CASE("interleaving divides the homogeneous formula's bubble by the chunks, as it does the real one") {
  // Two ranks, two chunks of F = 1 s, BW = 2 s: t = 6 s, (M + (P - 1) / v) t = (4 + 1 / 2) 6.
  const Stages chunks{{1, 1, 1, 1}, {0, 0, 0}, 4, ScheduleKind::interleaved, 2};
  CHECK(estimate_by("homogeneous", chunks) == Approx(27));
  CHECK(estimate_by("recurrence", chunks) == Approx(27));
}

TEST_CASE("the formulas count what their papers say") {
  const Stages uneven{{1, 3}, {0.5}, 4};  // t = 3 and 9 s, h = 0.5 s each
  CHECK(estimate_by("homogeneous", uneven) == Approx((4 + 1) * 6.0));
  CHECK(estimate_by("no-transfers", uneven) == Approx(12 + 3 * 9.0));
  CHECK(estimate_by("astra", uneven) == Approx(13 + 3 * 9.5));
  CHECK(estimate_by("amp", uneven) == Approx(12 + 0.5 + 3 * 9.0));
  // Eager: F0, transfer, 4 x (F1 B1), transfer, B0.
  CHECK(estimate_by("recurrence", uneven) == Approx(1 + 0.5 + 4 * 9 + 0.5 + 2));
}

TEST_CASE("the homogeneous formula takes an uneven plan for an even one; the recurrence does not") {
  const Stages even{{2, 2}, {0}, 8}, uneven{{1, 3}, {0}, 8};
  CHECK(estimate_by("homogeneous", even) == Approx(estimate_by("homogeneous", uneven)));
  CHECK(estimate_by("recurrence", uneven) > 1.3 * estimate_by("recurrence", even));
}

TEST_CASE("a slow replica and its microbatches are in every formula") {
  PricedPlan plan = test::pipeline_plan(
      ScheduleShape{ScheduleKind::one_f_one_b, TransferMode::eager, 1, 1, 4}, {{1}, {2}, {}, {}});
  plan.replicas = 2;
  plan.gpus = {{0}, {1}};
  plan.replica_microbatches = {3, 5};
  plan.slowness = {1.0, 2.0};
  for (const Estimator& estimator : estimators()) {
    INFO(estimator.name);
    CHECK(estimate_by(estimator.name, plan, test::pipeline_topology(2)) == Approx(5 * 2 * 3.0));
  }
}

TEST_CASE("reductions and the optimizer come after the pipeline in all formulas but AMP's") {
  // Two replicas of one stage, 1 GiB of gradients over NICs of 50 GiB/s: AMP's ring takes 2 (2 - 1) / 2 x 20
  // ms.
  PricedPlan plan = test::pipeline_plan(
      ScheduleShape{ScheduleKind::one_f_one_b, TransferMode::eager, 1, 1, 4}, {{1}, {2}, {}, {}});
  plan.replicas = 2;
  plan.gpus = {{0}, {1}};
  plan.reductions = {{.gradients = gibibytes(1)}};
  plan.optimizer = {Seconds(0.5)};
  const Topology topology = test::flat_topology({.nodes = 2});
  const double recurrence = estimate_by("recurrence", plan, topology);
  CHECK(recurrence == Approx(12.52).epsilon(1e-5));
  for (const char* name : {"homogeneous", "no-transfers", "astra"}) {
    INFO(name);
    CHECK(estimate_by(name, plan, topology) == Approx(recurrence).epsilon(1e-12));
  }
  CHECK(estimate_by("amp", plan, topology) == Approx(12.02).epsilon(1e-12));
}

// Two nodes of two GPUs, 400 GiB/s inside and 50 GiB/s between; 4 s and 6 s a microbatch, five microbatches.
TEST_CASE("AMP's cost is the sum of stages and transfers, the slowest again, and the longest reduction") {
  AmpPlan plan;
  plan.microbatches = 5;
  plan.replicas = 2;
  plan.times = {Seconds(4), Seconds(6)};
  plan.boundaries = {{0, 1, gibibytes(100)}};
  plan.gradients = {gibibytes(200), gibibytes(400)};
  const Topology topology = test::flat_topology({.nodes = 2, .gpus_per_node = 2});

  SECTION("stages on a node each: messages cross nodes, rings do not") {
    plan.gpus = {{0}, {2}, {1}, {3}};
    // Sum 10, transfer 100 / 50, slowest 4 x 6, ring 2 x (1 / 2) x 400 / 400.
    CHECK(amp_iteration(plan, topology).value() == Approx(10 + 2 + 24 + 1));
  }
  SECTION("replicas on a node each: rings cross nodes, messages do not") {
    plan.gpus = {{0}, {1}, {2}, {3}};
    CHECK(amp_iteration(plan, topology).value() == Approx(10 + 0.25 + 24 + 8));
  }
  SECTION("the mean over replicas of the slowest lane") {
    plan.gpus = {{0}, {1}, {2}, {1}};  // one replica inside a node, the other between nodes
    plan.gradients.clear();
    CHECK(amp_iteration(plan, topology).value() == Approx(10 + (0.25 + 2) / 2 + 24));
  }
  SECTION("one replica reduces nothing") {
    plan.replicas = 1;
    plan.gpus = {{0}, {1}};
    CHECK(amp_iteration(plan, topology).value() == Approx(10 + 0.25 + 24));
  }
}

// The published code looks at the last link of the ring alone.
TEST_CASE("AMP's reduction is as slow as the slowest link of its ring, wherever that is") {
  AmpPlan plan;
  plan.replicas = 3;
  plan.times = {Seconds(1)};
  plan.gradients = {gibibytes(150)};
  const Topology topology = test::flat_topology({.nodes = 2, .gpus_per_node = 2});
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 0, 1}, {1, 2, 0}}) {
    plan.gpus = {{order[0]}, {order[1]}, {order[2]}};
    CHECK(amp_iteration(plan, topology).value() == Approx(1 + 2 * (2.0 / 3) * 150 / 50));
  }
}

}  // namespace orrery
