// Times of the replay against values that independent programs and closed forms agree on.
#include "sim/replay/replay.hpp"

#include <cstring>
#include <sstream>

#include "costmodels/estimate/estimate.hpp"
#include "sim/replay/children.hpp"
#include "sim/replay/durations.hpp"
#include "sim/replay/run_replay.hpp"
#include "tests/catch.hpp"
#include "tests/sim/played.hpp"

using namespace orrery;

namespace {

using test::in_child;

double makespan(const PricedPlan& plan, const Topology& topology) {
  return in_child<double>([&] { return run_replay(plan, topology, {}).timeline.makespan; });
}

struct Stage {
  double forward_ms, backward_ms;
};

std::string durations(const std::string& schedule, int microbatches, const std::string& p2p,
                      const std::vector<Stage>& stages, const std::string& more = "") {
  std::ostringstream yaml;
  yaml << "schedule: " << schedule << "\nmicrobatches: " << microbatches << "\np2p: " << p2p << "\nstages:\n";
  for (const Stage& stage : stages) {
    yaml << "  - {forward: " << stage.forward_ms << "ms, backward: " << stage.backward_ms << "ms}\n";
  }
  yaml << "message: 16MiB\nlink: {bandwidth: 53687091200Bps, latency: 1us}\n" << more;
  return yaml.str();
}

double replayed_ms(const std::string& yaml) {
  const DurationsPlan given = parse_durations(yaml, "test.yaml");
  return makespan(given.plan, given.topology) * 1e3;
}

// 16 MiB over 50 GiB/s and two hops of 1 us.
constexpr double kTransferMs = 16.0 / (50 * 1024) * 1e3 + 2e-3;

}  // namespace

TEST_CASE("golden times of SEMANTICS 6 come out to the printed digit") {
  struct Row {
    int stages, microbatches;
    double eager, blocking;
  };
  const Row row = GENERATE(values<Row>({{2, 4, 16.258, 16.5725},
                                        {4, 8, 38.032, 38.9755},
                                        {8, 32, 138.386, 140.5875},
                                        {16, 64, 283.546, 285.7475}}));
  const std::vector<Stage> stages(static_cast<std::size_t>(row.stages), Stage{1, 2});
  CHECK(replayed_ms(durations("1f1b", row.microbatches, "eager", stages)) == Approx(row.eager).margin(5e-7));
  CHECK(replayed_ms(durations("1f1b", row.microbatches, "blocking", stages)) ==
        Approx(row.blocking).margin(5e-7));
  // (M + P - 1)(F + BW) with transfers too short to matter.
  const std::string yaml = durations("1f1b", row.microbatches, "eager", stages);
  std::string free = yaml;
  free.replace(free.find("16MiB"), 5, "1B");
  free.replace(free.find("1us"), 3, "0us");
  CHECK(replayed_ms(free) == Approx((row.microbatches + row.stages - 1) * 3.0).epsilon(2e-8));
}

TEST_CASE("golden unequal stages of SEMANTICS 6, with their idle shares") {
  const DurationsPlan given =
      parse_durations(durations("1f1b", 8, "eager", {{1, 2}, {1, 2}, {2, 4}, {1, 2}}), "test.yaml");
  struct Idle {
    double makespan_ms, share[4];
  };
  const Idle idle = in_child<Idle>([&] {
    const ReplayResult replay = run_replay(given.plan, given.topology, {});
    Idle result{replay.timeline.makespan * 1e3, {}};
    for (int stage = 0; stage < 4; ++stage) {
      const Accounting& time = replay.accounting.ranks[static_cast<std::size_t>(stage)];
      result.share[stage] = 1 - time.compute / Seconds(replay.timeline.makespan);
    }
    return result;
  });
  CHECK(idle.makespan_ms == Approx(56.887).margin(5e-4));
  // A stage computes 8 (F + BW) of it.
  const double expected[] = {1 - 24 / 56.887, 1 - 24 / 56.887, 1 - 48 / 56.887, 1 - 24 / 56.887};
  for (int stage = 0; stage < 4; ++stage) CHECK(idle.share[stage] == Approx(expected[stage]).margin(5e-5));
}

TEST_CASE("a flow of 9 GB over 900 GB/s and 5 us takes 10.005 ms: no TCP in the network") {
  const std::string yaml =
      "schedule: gpipe\nmicrobatches: 1\np2p: eager\nstages: [{forward: 1ms, backward: 1ms}, {forward: 1ms, "
      "backward: "
      "1ms}]\nmessage: 9GB\nlink: {bandwidth: 900GBps, latency: 2.5us}\n";
  // F, message, F, B, message, B.
  CHECK(replayed_ms(yaml) == Approx(4 + 2 * 10.005).epsilon(1e-9));
}

TEST_CASE(
    "a gradient all-reduce takes the ring's 2 (n-1)/n of its bytes and 2 (n-1) hops after the slowest rank") {
  const std::vector<Stage> stages{{1, 2}, {1, 2}};
  const int replicas = 8;
  const double pipeline = replayed_ms(durations("1f1b", 4, "eager", stages));
  const double hop_ms = 2.0 * (replicas - 1) / replicas * 1024 / (50 * 1024) * 1e3;  // 1 GiB at 50 GiB/s
  const double latency_ms = 2 * (replicas - 1) * 2e-3;
  const double with_reduction =
      replayed_ms(durations("1f1b", 4, "eager", stages, "gradient: 1GiB\nreplicas: 8\n"));
  // Stage 0 ends last and reduces after that. The last gradient message to it leaves stage 1 as stage 1
  // starts its own ring, over the same NIC: at half the rate its 16 MiB take once more as long.
  const double shared_nic_ms = kTransferMs - 2e-3;
  CHECK(with_reduction == Approx(pipeline + shared_nic_ms + hop_ms + latency_ms).epsilon(1e-9));
  // The law of SEMANTICS 4, which a well-known simulator breaks.
  CHECK(with_reduction - pipeline >= hop_ms);
}

TEST_CASE("two messages that share a NIC take twice as long, as the closed form says") {
  // Two replicas: both first stages on node 0, both second stages on node 1; the two GPUs of a node share one
  // NIC.
  ClusterSpec cluster;
  NodeGroup group;
  group.name = "pair";
  group.gpus_per_node = 2;
  group.count = {2, 2};
  group.gpu_link = {gigabytes_per_second(100), Seconds(0)};
  group.nics_per_node = 1;
  group.nic = {gigabytes_per_second(10), microseconds(5)};
  cluster.groups = {group};
  PricedPlan plan;
  plan.schedule = {ScheduleKind::one_f_one_b, TransferMode::eager, 2, 1, 1};
  plan.replicas = 2;
  PartTimes part;
  part.forward = milliseconds(1);
  part.backward = milliseconds(2);
  plan.parts = {part, part};
  plan.boundaries = {{Bytes(10e6), {}}};
  plan.gpus = {{0}, {2}, {1}, {3}};
  // F, both messages at half the 10 GB/s, F, B, both gradients, B.
  const double shared_message = 10e6 / 5e9 + 10e-6;
  CHECK(makespan(plan, Topology(cluster, {2})) == Approx(2 * (1e-3 + 2e-3 + shared_message)).epsilon(1e-9));
  cluster.contention = Contention::ideal;
  const double own_message = 10e6 / 10e9 + 10e-6;
  CHECK(makespan(plan, Topology(cluster, {2})) == Approx(2 * (1e-3 + 2e-3 + own_message)).epsilon(1e-9));
}

TEST_CASE("blocking transfers are never overlapped with compute, eager ones are") {
  const std::vector<Stage> stages{{1, 2}, {1, 2}};
  // F c F B c B with one microbatch, in both modes.
  CHECK(replayed_ms(durations("1f1b", 1, "eager", stages)) == Approx(6 + 2 * kTransferMs).epsilon(1e-9));
  CHECK(replayed_ms(durations("1f1b", 1, "blocking", stages)) == Approx(6 + 2 * kTransferMs).epsilon(1e-9));
  // gpipe, two microbatches: eager stage 0 computes on while its first message travels.
  CHECK(replayed_ms(durations("gpipe", 2, "eager", stages)) == Approx(9 + 2 * kTransferMs).epsilon(1e-9));
  CHECK(replayed_ms(durations("gpipe", 2, "blocking", stages)) > 9 + 2 * kTransferMs + 1e-3);
}

TEST_CASE("the estimate equals the replay where nothing contends, on random plans") {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    RandomPlan drawn = with_overlaps(random_plan(seed, Contention::ideal), seed);
    if (seed % 3 > 0) drawn = with_group_calls(std::move(drawn), seed);
    if (seed % 3 == 0) drawn = with_unequal_tensor(std::move(drawn), seed);
    drawn = with_optimizer_sets(with_unequal_replicas(std::move(drawn), seed), seed);
    INFO(drawn.text);
    const test::PlayedTimes estimate = test::estimated(drawn.plan, drawn.topology);
    const test::PlayedTimes replay = test::replayed(drawn.plan, drawn.topology);
    CHECK(replay.makespan == Approx(estimate.makespan).epsilon(1e-9));
    CHECK(replay.iteration == Approx(estimate.iteration).epsilon(1e-9));
  }
}

TEST_CASE("where transfers contend the estimate stays close to the replay, on random plans") {
  double sum = 0;
  int plans = 0;
  for (std::uint32_t seed = 500; seed < 600; ++seed) {
    RandomPlan drawn = with_overlaps(random_plan(seed, Contention::shared), seed);
    if (seed % 3 > 0) drawn = with_group_calls(std::move(drawn), seed);
    drawn = with_optimizer_sets(with_unequal_replicas(std::move(drawn), seed), seed);
    INFO(drawn.text);
    const double estimate = test::estimated(drawn.plan, drawn.topology).makespan;
    const double error = std::abs(estimate / test::replayed(drawn.plan, drawn.topology).makespan - 1);
    CHECK(error < 0.1);
    sum += error;
    ++plans;
  }
  CHECK(sum / plans < 0.005);
}

// An activation to the next rank and a gradient to the one before leave by the same NIC.
TEST_CASE("messages of several chunks meet on a GPU's own NIC, in the estimate as in the replay") {
  NodeGroup group;
  group.name = "alone";
  group.gpus_per_node = 1;
  group.count = {4, 4};
  group.gpu_link = group.nic = {gigabytes_per_second(10), microseconds(5)};
  ClusterSpec cluster;
  cluster.groups = {group};
  PartTimes part;
  part.forward = milliseconds(1);
  part.backward = milliseconds(2);
  for (const TransferMode transfers : {TransferMode::blocking, TransferMode::overlapped}) {
    PricedPlan plan;
    plan.schedule = {ScheduleKind::interleaved, transfers, 4, 2, 8};
    plan.parts.assign(8, part);
    plan.boundaries.assign(7, {Bytes(30e6), {}});
    plan.gpus = {{0}, {1}, {2}, {3}};
    cluster.contention = Contention::shared;
    const Topology shared(cluster, {4});
    cluster.contention = Contention::ideal;
    const double replay = test::replayed(plan, shared).makespan;
    CHECK(test::estimated(plan, shared).makespan == Approx(replay).epsilon(0.03));
    CHECK(test::estimated(plan, Topology(cluster, {4})).makespan < 0.95 * replay);
  }
}

TEST_CASE("sharing links never makes a random plan faster than ideal links do") {
  for (std::uint32_t seed = 200; seed <= 240; ++seed) {
    const RandomPlan shared = random_plan(seed, Contention::shared);
    const RandomPlan ideal = random_plan(seed, Contention::ideal);
    INFO(shared.text);
    CHECK(makespan(shared.plan, shared.topology) >= makespan(ideal.plan, ideal.topology) * (1 - 1e-9));
  }
}

TEST_CASE("perfect balance saves what the imbalance says, and balanced plans have none") {
  const auto imbalance_ms = [](const std::vector<Stage>& stages) {
    const DurationsPlan given = parse_durations(durations("1f1b", 8, "eager", stages), "test.yaml");
    return in_child<double>(
        [&] { return run_replay(given.plan, given.topology, {}).imbalance.value() * 1e3; });
  };
  CHECK(imbalance_ms({{1, 2}, {1, 2}}) == 0.0);
  const double even = replayed_ms(durations("1f1b", 8, "eager", {{1.5, 3}, {1.5, 3}}));
  const double uneven = replayed_ms(durations("1f1b", 8, "eager", {{1, 2}, {2, 4}}));
  CHECK(imbalance_ms({{1, 2}, {2, 4}}) == Approx(uneven - even).epsilon(1e-9));
}
