// Tensor, context and expert collectives played inside forwards and backwards, against derived times.
#include "costmodels/plans/group_calls.hpp"

#include "costmodels/collectives/collective_choice.hpp"
#include "platforms/errors.hpp"
#include "sim/replay/durations.hpp"
#include "sim/replay/run_replay.hpp"
#include "tests/sim/played.hpp"

using namespace orrery;

namespace {

// Nodes with one NIC of 1 GB/s without latency, on one switch.
Topology nodes_of(int nodes, int gpus_per_node) {
  NodeGroup group;
  group.name = "g";
  group.gpus_per_node = gpus_per_node;
  group.count = {nodes, nodes};
  group.gpu_link = {gigabytes_per_second(10), microseconds(0.5)};
  group.nic = {gigabytes_per_second(1), Seconds(0)};
  ClusterSpec cluster;
  cluster.groups = {group};
  return {cluster, {nodes}};
}

// A ring of two carries the whole vector over each hop: 1 MB a ms.
GroupCall call_of(RankGroup group, double megabytes) {
  GroupCall call;
  call.group = group;
  call.bytes = Bytes(megabytes * 1e6);
  if (group == RankGroup::expert) call.kind = CollectiveKind::all_to_all;  // half stays with the sender
  return call;
}

PlayedPiece piece_of(double compute_ms, std::optional<int> call = std::nullopt, double beside_ms = 0) {
  PlayedPiece piece;
  piece.compute = milliseconds(compute_ms);
  piece.call = call;
  piece.beside = milliseconds(beside_ms);
  return piece;
}

// One stage, one microbatch, forward 1 ms.
PricedPlan plan_of(std::vector<std::vector<int>> gpus, std::vector<PlayedPiece> backward) {
  PricedPlan plan;
  plan.replicas = static_cast<int>(gpus.size());
  PartTimes part;
  part.forward = milliseconds(1);
  part.backward_pieces = std::move(backward);
  plan.parts = {part};
  plan.gpus = std::move(gpus);
  return plan;
}

struct Times {
  double makespan, exposed_tp, exposed_dp, bubble;  // ms; of rank 0
  int calls;                                        // spans of all ranks
};

Times played(const PricedPlan& plan, const Topology& topology) {
  return test::in_child<Times>([&] {
    const PlanPrograms programs = make_programs(plan);
    const TrafficFlows flows(plan, programs, topology, Folding::off);
    const Timeline timeline = replay(plan, programs, topology, flows, {}).timeline;
    const Accounting time = account(timeline).ranks.front();
    Times times{timeline.makespan * 1e3, time.exposed_tp.value() * 1e3, time.exposed_dp.value() * 1e3,
                time.bubble().value() * 1e3, 0};
    for (const SpanKind kind : timeline.spans.kind)
      times.calls += kind >= SpanKind::tensor_collective ? 1 : 0;
    return times;
  });
}

}  // namespace

// Tensor groups {0, 1} and {2, 3}, gradient rings {0, 2} and {1, 3}, every GPU with a NIC of its own, so that
// each NIC sends one flow of each. F until 1, half of the backward until 3. There a bucket of 4 MB sets off
// beside a tensor collective of 1 MB: both get half, and 5 ms is when the latter is over. The bucket has 3 MB
// left, moves 2 of them under 2 ms of compute, and shares the last with the second collective until 9. Then
// the second bucket alone, 4 ms, and the optimizer.
TEST_CASE("a tensor group and a gradient ring on one NIC share it evenly, to the closed form") {
  PricedPlan plan = plan_of({{0, 1}, {2, 3}}, {piece_of(2, 0), piece_of(2, 0)});
  plan.calls = {call_of(RankGroup::tensor, 1)};
  plan.reductions = {{Bytes(8e6), Bytes(0), {}}};
  plan.overlap_grad_reduce = true;
  plan.bucket = Bytes(4e6);
  plan.optimizer = {milliseconds(5)};
  const Topology topology = nodes_of(4, 1);
  const Times times = played(plan, topology);
  CHECK(times.makespan == Approx(1 + 2 + 2 + 2 + 2 + 4 + 5).epsilon(1e-9));
  CHECK(times.exposed_tp == Approx(4).epsilon(1e-9));
  CHECK(times.exposed_dp == Approx(4).epsilon(1e-9));
  CHECK(times.calls == 2 * 2);
  CHECK(test::estimated(plan, topology).makespan == Approx(times.makespan * 1e-3).epsilon(1e-9));
}

TEST_CASE("tensor groups that share NICs slow each other, and those of one replica do not") {
  PricedPlan plan = plan_of({{0, 2}, {1, 3}}, {piece_of(1, 0), piece_of(1, 0)});
  plan.calls = {call_of(RankGroup::tensor, 1)};
  CHECK(played(plan, nodes_of(2, 2)).makespan == Approx(1 + 2 * (1 + 2)).epsilon(1e-9));
  plan.replicas = 1;
  plan.gpus.pop_back();
  CHECK(played(plan, nodes_of(2, 2)).makespan == Approx(1 + 2 * (1 + 1)).epsilon(1e-9));
}

TEST_CASE("a context exchange is exposed as far as nothing is computed beside it") {
  const double beside = GENERATE(0.0, 0.25, 1.0, 3.0);
  PricedPlan plan = plan_of({{0, 1}}, {piece_of(1, 0, beside)});
  plan.context = 2;
  plan.calls = {call_of(RankGroup::context, 1)};
  const Times times = played(plan, nodes_of(2, 1));
  CHECK(times.makespan == Approx(2 + std::max(1.0, beside)).epsilon(1e-9));
  CHECK(times.exposed_tp == Approx(std::max(0.0, 1 - beside)).margin(1e-12));
}

// Of the 2 MB of each rank 1 goes to the other. Replica 1 computes at half the speed, so replica 0 waits for
// it before either exchange.
TEST_CASE("replicas that share experts meet in every exchange") {
  PricedPlan plan = plan_of({{0}, {1}}, {piece_of(1, 0), piece_of(2, 0)});
  plan.calls = {call_of(RankGroup::expert, 2)};
  plan.expert = 2;
  plan.slowness = {1, 2};
  const Topology topology = nodes_of(2, 1);
  const Times times = played(plan, topology);
  CHECK(times.makespan == Approx(2 * (1 + 1 + 2) + 2).epsilon(1e-9));
  CHECK(times.exposed_tp == Approx(2).epsilon(1e-9));
  CHECK(times.bubble == Approx(1 + 1 + 2).epsilon(1e-9));
  CHECK(test::estimated(plan, topology).makespan == Approx(times.makespan * 1e-3).epsilon(1e-9));
}

// Of the 4 MB of each of four ranks half goes to the other node, over whose one NIC both send.
TEST_CASE("tensor ranks with experts of their own meet in one exchange over their replicas") {
  PricedPlan plan = plan_of({{0, 1}, {2, 3}}, {piece_of(1, 0)});
  plan.calls = {call_of(RankGroup::expert, 4)};
  plan.expert = 2;
  const Topology topology = nodes_of(2, 2);
  // Each with its own lane of the other replica: half of 4 MB each, two on a NIC.
  CHECK(played(plan, topology).makespan == Approx(1 + 1 + 4).epsilon(1e-3));
  plan.expert_tensor = 2;
  CHECK(group_members(plan, 1, 0, RankGroup::expert) == std::vector<std::vector<int>>{{0, 1, 2, 3}});
  CHECK(group_size(plan, 0, RankGroup::expert) == 4);
  // Of a quarter to each, two quarters leave the node: as much.
  const Times times = played(plan, topology);
  CHECK(times.makespan == Approx(1 + 1 + 4).epsilon(1e-3));
  CHECK(test::estimated(plan, topology).makespan == Approx(times.makespan * 1e-3).epsilon(1e-3));
}

// Half of 4 MB each, each over a NIC of its own.
TEST_CASE("context ranks that share experts exchange tokens with no other replica") {
  PricedPlan plan = plan_of({{0, 1}}, {piece_of(1, 0)});
  plan.context = 2;
  plan.calls = {call_of(RankGroup::expert, 4)};
  const Topology topology = nodes_of(2, 1);
  CHECK(played(plan, topology).makespan == Approx(1 + 1).epsilon(1e-3));
  plan.expert_context = 2;
  CHECK(group_members(plan, 0, 0, RankGroup::expert) == std::vector<std::vector<int>>{{0, 1}});
  const Times times = played(plan, topology);
  CHECK(times.makespan == Approx(1 + 1 + 2).epsilon(1e-3));
  CHECK(test::estimated(plan, topology).makespan == Approx(times.makespan * 1e-3).epsilon(1e-3));
}

TEST_CASE("replicas that share experts have equally many microbatches") {
  PricedPlan plan = plan_of({{0}, {1}}, {piece_of(1, 0)});
  plan.calls = {call_of(RankGroup::expert, 2)};
  plan.expert = 2;
  plan.replica_microbatches = {1, 2};
  CHECK_THROWS_AS(test::estimated(plan, nodes_of(2, 1)), InputError);
}

// SEMANTICS 4: what cannot contend may be priced. Two stages of four GPUs, a node each.
TEST_CASE("inside one NVSwitch domain playing takes the time of the price") {
  const Topology topology = nodes_of(2, 4);
  const auto kind = GENERATE(CollectiveKind::all_reduce, CollectiveKind::all_gather);
  PricedPlan plan;
  plan.schedule = {ScheduleKind::one_f_one_b, TransferMode::eager, 2, 1, 6};
  plan.gpus = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  plan.boundaries = {{Bytes(1e6), {}}};
  GroupCall call = call_of(RankGroup::tensor, 3);
  call.kind = kind;
  plan.calls = {call};
  const Seconds alone = time_alone(topology, call_flows(plan, topology, call, 0, 0, all_lanes(plan, 0)));
  PricedPlan priced = plan;
  PartTimes part;
  part.forward = milliseconds(1) + 2 * alone;
  part.backward = milliseconds(2.5) + 3 * alone;
  priced.parts = {part, part};
  priced.calls.clear();
  part.forward_pieces = {piece_of(0.25, 0), piece_of(0.5, 0), piece_of(0.25)};
  part.backward_pieces = {piece_of(1, 0), piece_of(0.5, 0), piece_of(1, 0)};
  plan.parts = {part, part};
  CHECK(test::replayed(plan, topology).makespan ==
        Approx(test::replayed(priced, topology).makespan).epsilon(1e-9));
  CHECK(test::estimated(plan, topology).makespan ==
        Approx(test::estimated(priced, topology).makespan).epsilon(1e-9));
}

TEST_CASE("collectives merged into one take together what they take in a row") {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    RandomPlan drawn = with_group_calls(random_plan(seed, Contention::ideal), seed);
    for (const GroupCall& call : drawn.plan.calls) {
      INFO(drawn.text << ", " << to_text(call.kind) << " over group " << static_cast<int>(call.group));
      const auto alone = [&](int times) {
        GroupCall some = call;
        some.times = times;
        return time_alone(drawn.topology,
                          call_flows(drawn.plan, drawn.topology, some, 0, 0, all_lanes(drawn.plan, 0)))
            .value();
      };
      CHECK(alone(7) == Approx(7 * alone(1)).epsilon(1e-9));
    }
  }
}

TEST_CASE("a pass cut into steps computes and plays all of it, and each step an equal share of the compute") {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    const RandomPlan drawn = with_group_calls(random_plan(seed, Contention::ideal), seed);
    for (const PartTimes& part : drawn.plan.parts) {
      const std::vector<PlayedPiece>& whole = part.forward_pieces;
      const int cuts = static_cast<int>(seed % 5) + 2;
      Seconds computed, expected;
      std::vector<int> calls, expected_calls;
      const auto count = [](const std::vector<PlayedPiece>& pieces, Seconds& sum, std::vector<int>& called) {
        for (const PlayedPiece& piece : pieces) {
          sum += piece.compute + piece.beside;
          if (piece.call) called.push_back(*piece.call);
        }
      };
      count(whole, expected, expected_calls);
      for (int cut = 0; cut < cuts; ++cut) count(cut_pieces(whole, cut, cuts), computed, calls);
      CHECK(computed.value() == Approx(expected.value()).epsilon(1e-12));
      CHECK(calls == expected_calls);
    }
  }
  const std::vector<PlayedPiece> even{piece_of(1, 0), piece_of(3), piece_of(4, 1)};
  for (int cut = 0; cut < 4; ++cut) {
    Seconds sum;
    for (const PlayedPiece& piece : cut_pieces(even, cut, 4)) sum += piece.compute;
    CHECK(sum.value() == Approx(2e-3));
  }
}

// The parts compute 2 and 4 ms backward; balanced both compute 3, and their collectives stay as they are.
TEST_CASE("balanced parts share what is computed and keep what is played") {
  PricedPlan plan = plan_of({{0, 1}}, {piece_of(1.5, 0, 0.5)});
  plan.calls = {call_of(RankGroup::tensor, 1)};
  plan.parts.push_back(plan.parts.front());
  plan.parts[1].backward_pieces = {piece_of(2, 0), piece_of(2, 0)};
  const PricedPlan even = balanced(plan);
  for (const PartTimes& part : even.parts) {
    Seconds computed;
    for (const PlayedPiece& piece : part.backward_pieces) computed += piece.compute + piece.beside;
    CHECK(computed.value() == Approx(3e-3).epsilon(1e-12));
    CHECK(part.forward.value() == Approx(1e-3).epsilon(1e-12));
  }
  CHECK(even.parts[0].backward_pieces.size() == 1);
  CHECK(even.parts[1].backward_pieces.size() == 2);
  CHECK(even.parts[0].backward_pieces[0].call == 0);
}

// F 1 ms with four all-reduces of two ranks, each of which takes its 16 MiB over 50 GiB/s and two steps of
// two hops of 1 us; BW 2 ms with two. Four microbatches on one stage.
TEST_CASE("explicit durations may have tensor groups") {
  const std::string yaml =
      "schedule: 1f1b\nmicrobatches: 4\nstages:\n  - {forward: 1ms, backward: 2ms}\nmessage: 1MiB\n"
      "link: {bandwidth: 53687091200Bps, latency: 1us}\n"
      "tensor: {ranks: 2, message: 16MiB, per_forward: 4, per_backward: 2}\n";
  const DurationsPlan given = parse_durations(yaml, "test.yaml");
  const double all_reduce_ms = 16.0 / (50 * 1024) * 1e3 + 2 * 2e-3;
  const Times times = played(given.plan, given.topology);
  CHECK(times.makespan == Approx(4 * (1 + 2 + (4 + 2) * all_reduce_ms)).epsilon(1e-9));
  CHECK(times.exposed_tp == Approx(4 * 6 * all_reduce_ms).epsilon(1e-9));
  std::string wrong = yaml;
  wrong.replace(wrong.find("ranks: 2"), 8, "ranks: 1");
  CHECK_THROWS_AS(parse_durations(wrong, "test.yaml"), InputError);
}
