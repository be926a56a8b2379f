// What follows the last backward: Megatron-LM core/distributed/finalize_model_grads.py and the optimizer
// step.
#include <numeric>

#include "costmodels/traffic.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/flat_cluster.hpp"

namespace orrery {
namespace {

// 8 GPUs a node with a NIC each; stage s of replica r has GPUs (s R + r) L and the L - 1 after it.
PricedPlan full_plan(int stages, int replicas, int context, int tensor) {
  PricedPlan plan;
  plan.schedule.ranks = stages;
  plan.replicas = replicas;
  plan.context = context;
  const int lanes = context * tensor;
  for (int replica = 0; replica < replicas; ++replica) {
    for (int stage = 0; stage < stages; ++stage) {
      plan.gpus.emplace_back(static_cast<std::size_t>(lanes));
      std::iota(plan.gpus.back().begin(), plan.gpus.back().end(), (stage * replicas + replica) * lanes);
    }
  }
  plan.reductions.assign(static_cast<std::size_t>(stages), {Bytes(1000), Bytes(0), {}});
  plan.embedding_gradient = Bytes(500);
  plan.gradient_norm = true;
  plan.optimizer.assign(static_cast<std::size_t>(stages), milliseconds(1));
  return plan;
}

Tail tail_of(const PricedPlan& plan) {
  const Topology topology = test::flat_topology({.nodes = 4, .gpus_per_node = 8, .nics_per_node = 8});
  return make_tail(plan, topology, lanes_to_play(plan, topology));
}

// The steps of a rank in words: kind, ranks and bytes on the first flow of collectives.
std::string text_of(const Tail& tail, std::size_t rank) {
  std::string text;
  for (const TailStep& step : tail.programs[rank]) {
    text += text.empty() ? "" : ", ";
    if (step.is_optimizer) {
      text += "step";
      continue;
    }
    const TailCollective& collective = tail.collectives[static_cast<std::size_t>(step.collective)];
    text += std::string(to_text(collective.lanes.front().kind)) + " of";
    for (const int member : collective.ranks) text += " " + std::to_string(member);
    text += ": " + std::to_string(std::llround(collective.lanes.front().flows.front().payload.value()));
  }
  return text;
}

std::string name(CollectiveKind kind) {
  return std::string(to_text(kind));
}

const std::string kAllReduce = name(CollectiveKind::all_reduce);

}  // namespace

// Rank r P + s. Two members: 2 x 1/2 of the bytes; three stages: 2 x 2/3 of 4 bytes = 5.
TEST_CASE("gradients, embedding between first and last stage, norm over all stages, step") {
  const Tail tail = tail_of(full_plan(3, 2, 1, 1));
  const auto gradients = [](const char* ranks) { return kAllReduce + " of " + ranks + ": 1000, "; };
  const std::string first = kAllReduce + " of 0 2: 500, " + kAllReduce + " of 0 1 2: 5, step";
  const std::string second = kAllReduce + " of 3 5: 500, " + kAllReduce + " of 3 4 5: 5, step";
  CHECK(text_of(tail, 0) == gradients("0 3") + first);
  CHECK(text_of(tail, 1) == gradients("1 4") + kAllReduce + " of 0 1 2: 5, step");
  CHECK(text_of(tail, 2) == gradients("2 5") + first);
  CHECK(text_of(tail, 3) == gradients("0 3") + second);
  CHECK(text_of(tail, 5) == gradients("2 5") + second);
}

TEST_CASE("a single stage has its embedding and its norm to itself") {
  CHECK(text_of(tail_of(full_plan(1, 2, 1, 1)), 0) == kAllReduce + " of 0 1: 1000, step");
}

TEST_CASE("a single replica reduces nothing") {
  CHECK(text_of(tail_of(full_plan(2, 1, 1, 1)), 1) ==
        kAllReduce + " of 0 1: 500, " + kAllReduce + " of 0 1: 4, step");
}

TEST_CASE("the distributed optimizer scatters gradients, steps, and gathers parameters") {
  PricedPlan plan = full_plan(1, 4, 1, 1);
  plan.reduction = GradientReduction::reduce_scatter;
  plan.reductions[0].gathered = Bytes(400);
  // Four members: 3/4 of the bytes on every hop.
  CHECK(text_of(tail_of(plan), 2) == name(CollectiveKind::reduce_scatter) + " of 0 1 2 3: 750, step, " +
                                         name(CollectiveKind::all_gather) + " of 0 1 2 3: 300");
}

TEST_CASE("context ranks hold the same weights and stand in the ring of gradients") {
  const PricedPlan plan = full_plan(1, 2, 2, 2);
  const Tail tail = tail_of(plan);
  REQUIRE(tail.collectives.size() == 1);
  REQUIRE(tail.collectives[0].lanes.size() == 1);  // tensor rank 0 stands for both
  std::vector<int> members;
  for (const Flow& flow : tail.collectives[0].lanes[0].flows) members.push_back(flow.from);
  CHECK(members == std::vector<int>{0, 2, 4, 6});  // context 0 and 1 of replica 0, then of replica 1
}

TEST_CASE("one replica with context ranks still reduces gradients") {
  const Tail tail = tail_of(full_plan(1, 1, 2, 1));
  REQUIRE(tail.collectives.size() == 1);
  CHECK(tail.collectives[0].ranks == std::vector<int>{0});
  CHECK(tail.collectives[0].lanes[0].flows.size() == 2);
}

TEST_CASE("where all lanes are played every tensor rank has its ring") {
  const PricedPlan plan = full_plan(1, 2, 2, 2);
  const Topology topology = test::flat_topology({.nodes = 4, .gpus_per_node = 8, .nics_per_node = 8});
  const Tail tail = make_tail(plan, topology, {0, 1, 2, 3});
  REQUIRE(tail.collectives[0].lanes.size() == 2);
  CHECK(tail.collectives[0].lanes[1].flows[0].from == 1);
}

TEST_CASE("what a plan does not have is not in its tail") {
  PricedPlan plan = full_plan(2, 2, 1, 1);
  plan.reductions.clear();
  plan.embedding_gradient.reset();
  plan.gradient_norm = false;
  plan.optimizer.clear();
  const Tail tail = tail_of(plan);
  CHECK(tail.collectives.empty());
  CHECK(tail.programs.size() == 4);
  for (std::size_t rank = 0; rank < 4; ++rank) CHECK(text_of(tail, rank).empty());
}

}  // namespace orrery
