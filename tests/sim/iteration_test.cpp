// Whole iterations replayed and estimated: overlap, slowdown, unequal replicas, noise, against derived times.
#include <algorithm>
#include <cmath>

#include "platforms/errors.hpp"
#include "sim/replay/durations.hpp"
#include "tests/sim/played.hpp"

using namespace orrery;

namespace {

// Each GPU is a node with a NIC of 1 GB/s without latency, all on one switch.
Topology switch_of(int nodes) {
  NodeGroup group;
  group.name = "g";
  group.gpus_per_node = 1;
  group.count = {nodes, nodes};
  group.gpu_link = group.nic = {gigabytes_per_second(1), Seconds(0)};
  ClusterSpec cluster;
  cluster.groups = {group};
  return {cluster, {nodes}};
}

// One stage of forward 1 ms and backward 4 ms, two replicas; their ring carries `ring_ms` of gradients.
PricedPlan two_replicas(int microbatches, double ring_ms) {
  PricedPlan plan;
  plan.schedule.microbatches = microbatches;
  plan.replicas = 2;
  PartTimes part;
  part.forward = milliseconds(1);
  part.backward = milliseconds(4);
  plan.parts = {part};
  plan.reductions = {{Bytes(ring_ms * 1e6), Bytes(0), {}}};  // each of two hops: 2 (2 - 1) / 2 of the bytes
  plan.optimizer = {milliseconds(5)};
  plan.gpus = {{0}, {1}};
  return plan;
}

// The replay, having checked that the estimate is the same.
test::PlayedTimes milliseconds_of(const PricedPlan& plan) {
  const Topology topology = switch_of(static_cast<int>(plan.gpus.size()));
  const test::PlayedTimes times = test::replayed(plan, topology);
  const test::PlayedTimes estimate = test::estimated(plan, topology);
  CHECK(estimate.makespan == Approx(times.makespan).epsilon(1e-9));
  CHECK(estimate.iteration == Approx(times.iteration).epsilon(1e-9));
  return {times.makespan * 1e3, times.iteration * 1e3};
}

}  // namespace

TEST_CASE(
    "messages of neighbouring boundaries that meet on a card are estimated nearly as they are replayed") {
  // Four stages on two nodes by turns: forward of the first boundary and gradient of the second leave by one
  // card.
  NodeGroup group;
  group.name = "g";
  group.gpus_per_node = 2;
  group.nics_per_node = 1;
  group.count = {2, 2};
  group.nic = {gigabytes_per_second(1), Seconds(0)};
  group.gpu_link = {gigabytes_per_second(100), Seconds(0)};
  ClusterSpec cluster;
  cluster.groups = {group};
  const Topology topology(cluster, {2});
  PricedPlan plan;
  PartTimes part;
  part.forward = milliseconds(1);
  part.backward = milliseconds(2);
  plan.parts.assign(4, part);
  plan.boundaries.assign(3, {Bytes(1e6), {}});  // 1 ms alone
  plan.gpus = {{0}, {2}, {1}, {3}};
  for (const TransferMode mode : {TransferMode::eager, TransferMode::blocking}) {
    plan.schedule = {ScheduleKind::one_f_one_b, mode, 4, 1, 16};
    CHECK(test::estimated(plan, topology).makespan ==
          Approx(test::replayed(plan, topology).makespan).epsilon(0.03));
  }
}

// Backward in two pieces of 2 ms; the first bucket is on its way for 1 ms, the second for 1 ms after the
// second piece.
TEST_CASE("a bucket hides under what is left of the last backward") {
  PricedPlan plan = two_replicas(3, 2);
  CHECK(milliseconds_of(plan).makespan == Approx(3 * 5 + 2 + 5).epsilon(1e-9));
  plan.overlap_grad_reduce = true;
  plan.bucket = plan.reductions[0].gradients / 2;
  CHECK(milliseconds_of(plan).makespan == Approx(3 * 5 + 1 + 5).epsilon(1e-9));
}

// As above; the 1 ms under the bucket does 1 / 1.1256 ms of work, so the backward ends 1 - 1 / 1.1256 ms
// later.
TEST_CASE("compute is slower by the overlap factor exactly while a collective runs on its GPU") {
  PricedPlan plan = two_replicas(3, 2);
  plan.overlap_grad_reduce = true;
  plan.bucket = plan.reductions[0].gradients / 2;
  plan.overlap_slowdown = 1.1256;
  const double lost = 1 - 1 / 1.1256;
  CHECK(milliseconds_of(plan).makespan == Approx(3 * 5 + lost + 1 + 5).epsilon(1e-9));
  // A bucket longer than the piece above it: all 2 ms of the piece are slow, and the second bucket waits for
  // the first.
  plan.reductions[0].gradients = Bytes(20e6);
  plan.bucket = Bytes(10e6);
  CHECK(milliseconds_of(plan).makespan == Approx(2 * 5 + 1 + 2 + 10 + 10 + 5).epsilon(1e-9));
  const Topology topology = switch_of(2);
  const double compute = test::in_child<double>([&] {
    const PlanPrograms programs = make_programs(plan);
    const TrafficFlows flows(plan, programs, topology, Folding::off);
    return account(replay(plan, programs, topology, flows, {}).timeline).ranks[0].compute.value();
  });
  CHECK(compute * 1e3 == Approx(3 * 5 + 2 * 0.1256).epsilon(1e-9));
}

// Reduce-scatter and all-gather of two: half the bytes, 4 and 2 ms. Steady: the first half of the gather
// before the first half of the forward, the second half under it.
TEST_CASE(
    "parameters gathered under the next forward cost only their first bucket, from the second iteration on") {
  PricedPlan plan = two_replicas(1, 8);
  plan.parts[0].forward = milliseconds(6);
  plan.distributed_optimizer = true;
  plan.reductions[0].gathered = Bytes(4e6);
  plan.iterations = GENERATE(2, 3);
  const double busy = 6 + 4 + 4 + 5;
  CHECK(milliseconds_of(plan).iteration == Approx(busy + 2).epsilon(1e-9));
  CHECK(milliseconds_of(plan).makespan == Approx(plan.iterations * (busy + 2)).epsilon(1e-9));
  plan.overlap_param_gather = true;
  plan.bucket = Bytes(4e6);  // two buckets of gradients, two of parameters
  CHECK(milliseconds_of(plan).iteration == Approx(busy + 1).epsilon(1e-9));
  // The last gather has nothing to hide under.
  CHECK(milliseconds_of(plan).makespan == Approx(plan.iterations * (busy + 1) + 1).epsilon(1e-9));
}

TEST_CASE("a replica twice as slow as the other sets the pace of both, from the iteration it is slow in") {
  PricedPlan plan = two_replicas(3, 2);
  plan.slowness = {1, 2};
  CHECK(milliseconds_of(plan).makespan == Approx(2 * 3 * 5 + 2 + 2 * 5).epsilon(1e-9));
  plan.iterations = 3;
  plan.slow_from = 1;
  CHECK(milliseconds_of(plan).makespan ==
        Approx((3 * 5 + 2 + 5) + 2 * (2 * 3 * 5 + 2 + 2 * 5)).epsilon(1e-9));
  CHECK(milliseconds_of(plan).iteration == Approx(2 * 3 * 5 + 2 + 2 * 5).epsilon(1e-9));
}

TEST_CASE("a slow replica with fewer microbatches keeps up") {
  PricedPlan plan = two_replicas(4, 2);
  plan.slowness = {1, 2};
  plan.replica_microbatches = {4, 2};  // 4 x 5 = 2 x 2 x 5
  CHECK(milliseconds_of(plan).makespan == Approx(4 * 5 + 2 + 2 * 5).epsilon(1e-9));
}

// The noise of 8 tasks and a step has a mean of 1, so the time of one stage has the mean 8 x 2.5 + 5 ms. Its
// variance is the sum of 0.2^2 d^2 over the durations d: 0.2 x 9.6 ms; 400 draws bring the mean within 4
// x 1.94 / 20 ms.
TEST_CASE("noise leaves the mean time of a stage alone; the seed decides all of it") {
  PricedPlan plan = two_replicas(4, 2);
  plan.replicas = 1;
  plan.gpus = {{0}};
  plan.jitter = 0.2;
  const Topology topology = switch_of(1);
  double sum = 0;
  for (plan.seed = 1; plan.seed <= 400; ++plan.seed) sum += test::estimated(plan, topology).makespan * 1e3;
  CHECK(sum / 400 == Approx(4 * 5 + 5).margin(0.39));
  plan.seed = 1;
  const double once = test::replayed(plan, topology).makespan;
  CHECK(test::replayed(plan, topology).makespan == once);
  plan.seed = 2;
  CHECK(test::replayed(plan, topology).makespan != once);
}

TEST_CASE("without slowdown and latency, overlap never makes an iteration longer on ideal links") {
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    RandomPlan drawn = without_latency(
        with_unequal_replicas(with_overlaps(random_plan(seed, Contention::ideal), seed), seed));
    drawn.plan.overlap_slowdown = 1;
    drawn.plan.jitter = 0;  // is drawn anew for every piece of a task
    INFO(drawn.text);
    const double overlapped = test::estimated(drawn.plan, drawn.topology).makespan;
    drawn.plan.overlap_grad_reduce = drawn.plan.overlap_param_gather = false;
    // Buckets are whole bytes: one more byte each.
    CHECK(overlapped <= test::estimated(drawn.plan, drawn.topology).makespan * (1 + 1e-9) + 1e-6);
  }
}

// With overlap-param-gather an iteration is counted from step to step, and begins with a gather instead of
// ending with it.
TEST_CASE("an iteration in the steady state takes no longer than one alone") {
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    RandomPlan drawn = with_overlaps(random_plan(seed, Contention::ideal), seed);
    drawn.plan.overlap_param_gather = false;
    drawn.plan.given_schedule = make_schedule(drawn.plan.schedule);  // one for both
    drawn.plan.iterations = 3;
    INFO(drawn.text);
    const double steady = test::estimated(drawn.plan, drawn.topology).iteration;
    drawn.plan.iterations = 1;
    CHECK(steady <= test::estimated(drawn.plan, drawn.topology).makespan * (1 + 1e-9));
  }
}

TEST_CASE("ranks that wait for each other are an error of estimate and replay, not a hang") {
  const PricedPlan plan = two_replicas(1, 2);
  const Topology topology = switch_of(2);
  PlanPrograms programs = make_programs(plan);
  SECTION("a backward before its forward") {
    PricedPlan pipeline = plan;
    pipeline.schedule.ranks = 2;
    pipeline.replicas = 1;
    pipeline.parts.push_back(pipeline.parts[0]);
    pipeline.reductions.push_back(pipeline.reductions[0]);
    pipeline.optimizer.push_back(pipeline.optimizer[0]);
    pipeline.boundaries = {{Bytes(1e6), {}}};
    programs = make_programs(pipeline);
    std::swap(programs.programs[0].programs[0][0], programs.programs[0].programs[0][1]);
    const TrafficFlows flows(pipeline, programs, topology, Folding::off);
    CHECK_THROWS_AS(estimate(pipeline, programs, topology, flows), Defect);
    const ChildTask task = [&] {
      static_cast<void>(replay(pipeline, programs, topology, flows, {}));
      return std::string();
    };
    CHECK_THROWS_AS(run_in_children({task}, 1), Defect);
  }
  SECTION("two replicas that enter their collectives in opposite orders") {
    PricedPlan both = plan;
    both.distributed_optimizer = true;
    both.reductions[0].gathered = Bytes(1e6);
    programs = make_programs(both);
    programs.programs.push_back(programs.programs[0]);
    programs.of_replica = {0, 1};
    for (Step& step : programs.programs[1].programs[0]) {
      if (!is_compute(step.kind) && step.kind != StepKind::optimizer) step.slot = 1 - step.slot;
    }
    const TrafficFlows flows(both, programs, topology, Folding::off);
    CHECK_THROWS_AS(estimate(both, programs, topology, flows), Defect);
    const ChildTask task = [&] {
      static_cast<void>(replay(both, programs, topology, flows, {}));
      return std::string();
    };
    CHECK_THROWS_AS(run_in_children({task}, 1), Defect);
  }
}
