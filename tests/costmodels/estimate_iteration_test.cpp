// Whole iterations on a topology: transfers from links, then the tail of collectives and optimizer steps.
#include <numeric>

#include "costmodels/estimate/estimate.hpp"
#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/flat_cluster.hpp"

namespace orrery {
namespace {

constexpr double kMiB = kMebi;
constexpr double kMessage = 16.0 / (50 * 1024) + 2e-6;  // s: 16 MiB over a NIC of 50 GiB/s, two hops of 1 us

// One GPU a node, replica after replica; forward 1 ms, backward 2 ms, messages of 16 MiB.
PricedPlan plan_of(int stages, int microbatches, int replicas) {
  PricedPlan plan;
  plan.schedule = {ScheduleKind::one_f_one_b, TransferMode::eager, stages, 1, microbatches};
  plan.replicas = replicas;
  PartTimes part;
  part.forward = milliseconds(1);
  part.backward = milliseconds(2);
  plan.parts.assign(static_cast<std::size_t>(stages), part);
  plan.boundaries.assign(static_cast<std::size_t>(stages) - 1, {Bytes(16 * kMiB), {}});
  for (int rank = 0; rank < stages * replicas; ++rank) plan.gpus.push_back({rank});
  return plan;
}

double estimate(const PricedPlan& plan) {
  const Topology topology = test::flat_topology({.nodes = static_cast<int>(plan.gpus.size())});
  return estimate_iteration(plan, make_programs(plan), topology).value();
}

}  // namespace

TEST_CASE("a plan on a topology takes what SEMANTICS 6 says") {
  // 33 ms and 16 transfers (eager), 19 (blocking).
  PricedPlan plan = plan_of(4, 8, 1);
  CHECK(estimate(plan) == Approx(33e-3 + 16 * kMessage).epsilon(1e-12));
  CHECK(estimate(plan) == Approx(38.032e-3).epsilon(1e-9));
  plan.schedule.transfers = TransferMode::blocking;
  CHECK(estimate(plan) == Approx(38.9755e-3).epsilon(1e-9));
}

TEST_CASE("half the efficiency doubles the bytes on the wire and not the latency") {
  PricedPlan plan = plan_of(2, 4, 1);
  plan.boundaries[0].efficiency = {1.0, 0.5};
  CHECK(estimate(plan) == Approx(15e-3 + 4 * (2 * 16.0 / (50 * 1024) + 2e-6)).epsilon(1e-12));
}

// Two replicas of one stage: 3 x 3 ms of compute, then a ring of two. Each hop carries 2 (2 - 1) / 2 of 100
// MiB; the first step's latency is on the path, the second's adds 2 us. Then the step of 5 ms.
TEST_CASE("gradients are reduced after the last backward, then comes the optimizer") {
  PricedPlan plan = plan_of(1, 3, 2);
  plan.reductions = {{Bytes(100 * kMiB), Bytes(0), {}}};
  plan.optimizer = {milliseconds(5)};
  const double ring = 100.0 / (50 * 1024) + 2e-6 + 2e-6;
  CHECK(estimate(plan) == Approx(9e-3 + ring + 5e-3).epsilon(1e-12));
}

// With the distributed optimizer: half the bytes and one step for the reduce-scatter, then the step, then the
// all-gather of 50 MiB of parameters in one step.
TEST_CASE("the distributed optimizer scatters before the step and gathers after it") {
  PricedPlan plan = plan_of(1, 3, 2);
  plan.distributed_optimizer = true;
  plan.reductions = {{Bytes(100 * kMiB), Bytes(50 * kMiB), {}}};
  plan.optimizer = {milliseconds(5)};
  const double scatter = 50.0 / (50 * 1024) + 2e-6;
  const double gather = 25.0 / (50 * 1024) + 2e-6;
  CHECK(estimate(plan) == Approx(9e-3 + scatter + 5e-3 + gather).epsilon(1e-12));
  plan.all_reduces_gradients = true;
  const double ring = 100.0 / (50 * 1024) + 2e-6 + 2e-6;
  CHECK(estimate(plan) == Approx(9e-3 + ring + 5e-3 + gather).epsilon(1e-12));
}

// Without the norm the last stage steps while the first still computes; with it all wait for the first, which
// ends last: the norm of 4 bytes over two stages takes two steps of 2 us and 4 bytes over 50 GiB/s.
TEST_CASE("the gradient norm makes every stage wait for the last to finish") {
  PricedPlan plan = plan_of(2, 4, 1);
  plan.boundaries[0].bytes = Bytes(1);
  plan.optimizer = {milliseconds(1), milliseconds(7)};
  const double pipeline = 15e-3 + 4 * (1.0 / (50 * kGibi) + 2e-6);
  const double last_backward = 2e-3 + 1.0 / (50 * kGibi) + 2e-6;  // of stage 0, after stage 1 is done
  CHECK(estimate(plan) == Approx(pipeline - last_backward + 7e-3).epsilon(1e-12));
  plan.gradient_norm = true;
  CHECK(estimate(plan) == Approx(pipeline + 4 / (50 * kGibi) + 4e-6 + 7e-3).epsilon(1e-12));
}

TEST_CASE("replicas that differ in their links are played each on its own") {
  // Replica 1 has both stages in one node: its transfers are free of the network.
  PricedPlan plan = plan_of(2, 4, 2);
  plan.gpus = {{0}, {2}, {4}, {5}};
  const Topology topology = test::flat_topology({.nodes = 3, .gpus_per_node = 2, .nics_per_node = 2});
  const PlanPrograms programs = make_programs(plan);
  CHECK(estimate_iteration(plan, programs, topology).value() == Approx(15e-3 + 4 * kMessage).epsilon(1e-12));
  plan.gpus = {{0}, {1}, {4}, {5}};
  const double inside = 16.0 / (400 * 1024) + 1e-6;
  CHECK(estimate_iteration(plan, programs, topology).value() == Approx(15e-3 + 4 * inside).epsilon(1e-12));
}

TEST_CASE("replicas in step share a card, replicas that drift do not meet on it") {
  PricedPlan plan = plan_of(2, 4, 2);
  plan.gpus = {{0}, {2}, {1}, {3}};
  const Topology topology = test::flat_topology({.nodes = 2, .gpus_per_node = 2, .nics_per_node = 1});
  const PlanPrograms programs = make_programs(plan);
  const double both = 2 * 16.0 / (50 * 1024) + 2e-6;
  CHECK(estimate_iteration(plan, programs, topology).value() == Approx(15e-3 + 4 * both).epsilon(1e-12));
  plan.replicas_drift = true;
  CHECK(estimate_iteration(plan, programs, topology).value() == Approx(15e-3 + 4 * kMessage).epsilon(1e-12));
}

TEST_CASE("a program that waits for itself is our mistake, not a time") {
  PricedPlan plan = plan_of(2, 1, 1);
  PlanPrograms programs = make_programs(plan);
  std::swap(programs.programs[0].programs[0][0],
            programs.programs[0].programs[0][1]);  // the backward before its forward
  const Topology topology = test::flat_topology({.nodes = 2});
  CHECK_THROWS_AS(estimate_iteration(plan, programs, topology), Defect);
}

}  // namespace orrery
