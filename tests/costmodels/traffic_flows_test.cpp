// What follows the last backward, and between whom: Megatron-LM core/distributed/finalize_model_grads.py and
// the optimizer step.
#include <numeric>

#include "costmodels/estimate/traffic.hpp"
#include "costmodels/plans/folding.hpp"
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
  const auto count = static_cast<std::size_t>(stages);
  plan.parts.resize(count);
  plan.boundaries.assign(count - 1, {Bytes(100), {}});
  plan.reductions.assign(count, {Bytes(1000), Bytes(0), {}});
  plan.embedding_gradient = Bytes(500);
  plan.gradient_norm = true;
  plan.optimizer.assign(count, milliseconds(1));
  return plan;
}

// A plan with all that its flows refer to.
struct Case {
  explicit Case(PricedPlan given, Folding folding = Folding::off)
      : plan(std::move(given)),
        programs(make_programs(plan)),
        topology(test::flat_topology({.nodes = 4, .gpus_per_node = 8, .nics_per_node = 8})),
        flows(plan, programs, topology, folding) {}
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  [[nodiscard]] const std::vector<Step>& program(int rank) const {
    return programs.of(rank / plan.stages()).programs[static_cast<std::size_t>(rank % plan.stages())];
  }

  PricedPlan plan;
  PlanPrograms programs;
  Topology topology;
  TrafficFlows flows;
};

// The steps of a rank after its pipeline in words: kind, ranks and bytes on the first flow of each collective
// that it enters; the wait for one that was launched is left out.
std::string text_of(const Case& c, int rank) {
  std::string text;
  for (const Step& step : c.program(rank)) {
    if (is_compute(step.kind) || step.kind == StepKind::await) continue;
    text += text.empty() ? "" : ", ";
    if (step.kind == StepKind::optimizer) {
      text += "step";
      continue;
    }
    const int instance = c.flows.instance(step.slot, rank / c.plan.stages());
    const PlayedCollective& collective = c.flows.collective(instance);
    if (collective.phases.empty()) {
      text += "nothing";
      continue;
    }
    text += std::string(to_text(collective.kind)) + " of";
    for (const int member : c.flows.members(instance)) text += " " + std::to_string(member);
    text += ": " + std::to_string(std::llround(collective.phases.front().flows.front().payload.value()));
  }
  return text;
}

std::string name(CollectiveKind kind) {
  return std::string(to_text(kind));
}

const std::string kAllReduce = name(CollectiveKind::all_reduce);

// "0-1: 30": from GPU to GPU, bytes.
std::vector<std::string> sent(const std::vector<Flow>& flows) {
  std::vector<std::string> texts;
  for (const Flow& flow : flows) {
    texts.push_back(std::to_string(flow.from) + "-" + std::to_string(flow.to) + ": " +
                    std::to_string(std::lround(flow.payload.value())));
  }
  return texts;
}

std::vector<int> senders(const PlayedCollective& collective) {
  std::vector<int> gpus;
  for (const Flow& flow : collective.phases.front().flows) gpus.push_back(flow.from);
  return gpus;
}

}  // namespace

// Rank r P + s. Two members: 2 x 1/2 of the bytes; three stages: 2 x 2/3 of 4 bytes = 5.
TEST_CASE("gradients, embedding between first and last stage, norm over all stages, step") {
  const Case c(full_plan(3, 2, 1, 1));
  const auto gradients = [](const char* ranks) { return kAllReduce + " of " + ranks + ": 1000, "; };
  const std::string first = kAllReduce + " of 0 2: 500, " + kAllReduce + " of 0 1 2: 5, step";
  const std::string second = kAllReduce + " of 3 5: 500, " + kAllReduce + " of 3 4 5: 5, step";
  CHECK(text_of(c, 0) == gradients("0 3") + first);
  CHECK(text_of(c, 1) == gradients("1 4") + kAllReduce + " of 0 1 2: 5, step");
  CHECK(text_of(c, 2) == gradients("2 5") + first);
  CHECK(text_of(c, 3) == gradients("0 3") + second);
  CHECK(text_of(c, 5) == gradients("2 5") + second);
}

TEST_CASE("a single stage has its embedding and its norm to itself") {
  CHECK(text_of(Case(full_plan(1, 2, 1, 1)), 0) == kAllReduce + " of 0 1: 1000, step");
}

TEST_CASE("a single replica reduces nothing") {
  CHECK(text_of(Case(full_plan(2, 1, 1, 1)), 1) ==
        kAllReduce + " of 0 1: 500, " + kAllReduce + " of 0 1: 4, step");
}

TEST_CASE("the distributed optimizer scatters gradients, steps, and gathers parameters") {
  PricedPlan plan = full_plan(1, 4, 1, 1);
  plan.distributed_optimizer = true;
  plan.reductions[0].gathered = Bytes(400);
  // Four members: 3/4 of the bytes on every hop.
  CHECK(text_of(Case(plan), 2) == name(CollectiveKind::reduce_scatter) + " of 0 1 2 3: 750, step, " +
                                      name(CollectiveKind::all_gather) + " of 0 1 2 3: 300");
}

// Four copies in two sets: 1/2 of all bytes within a set, then of each half 2 x 1/2 from set to set.
TEST_CASE("optimizer instances scatter gradients within, sum shards across, and gather parameters within") {
  PricedPlan plan = full_plan(1, 2, 2, 1);
  plan.algorithm = CollectiveAlgorithm::ring;
  plan.distributed_optimizer = true;
  plan.optimizer_instances = 2;
  plan.reductions[0].gathered = Bytes(400);
  const std::vector<std::string> within{"0-1: 500", "1-0: 500", "2-3: 500", "3-2: 500"};
  const std::vector<std::string> across{"0-2: 500", "2-0: 500", "1-3: 500", "3-1: 500"};
  SECTION("of what all replicas have") {
    const Case c(plan);
    const std::vector<FlowPhase>& phases = c.flows.collective(0).phases;
    REQUIRE(phases.size() == 2);
    CHECK(sent(phases[0].flows) == within);
    CHECK(sent(phases[1].flows) == across);
    const std::vector<FlowPhase>& gather = c.flows.collective(c.flows.instances() - 1).phases;
    REQUIRE(gather.size() == 1);
    CHECK(sent(gather[0].flows) == std::vector<std::string>{"0-1: 200", "1-0: 200", "2-3: 200", "3-2: 200"});
  }
  SECTION("where a program all-reduces gradients, it does so over all sets: 2 x 3/4") {
    plan.all_reduces_gradients = true;
    const Case c(plan);
    const std::vector<FlowPhase>& phases = c.flows.collective(0).phases;
    REQUIRE(phases.size() == 1);
    CHECK(sent(phases[0].flows) ==
          std::vector<std::string>{"0-1: 1500", "1-2: 1500", "2-3: 1500", "3-0: 1500"});
    CHECK(c.flows.collective(c.flows.instances() - 1).phases.front().flows.size() == 4);
  }
  SECTION("by broadcasts in turn: as many bytes, and the latency of the ring's other hops for each of two") {
    const auto gather = [&](bool in_turn) {
      plan.broadcasts_parameters = in_turn;
      const Case c(plan);
      const FlowPhase phase = c.flows.collective(c.flows.instances() - 1).phases.front();
      return std::pair(sent(phase.flows), phase.tail.value());
    };
    const Case c(plan);
    REQUIRE(c.topology.same_node(0, 1));
    const double hop = std::max(1.9e-6, c.topology.path(0, 1).latency.value());  // NCCL's, of LL128
    CHECK(gather(true).first == gather(false).first);
    CHECK(gather(false).second == 0);
    CHECK(gather(true).second == Approx(2 * (2 - 1) * hop));
    plan.overlap_grad_reduce = plan.overlap_param_gather = true;
    plan.bucket = Bytes(150);  // of 1000 B of gradients: seven, whose owners' turns are one round
    CHECK(7 * gather(true).second == Approx(2 * (2 - 1) * hop));
  }
  SECTION("and of experts, of which a set has one copy") {
    plan.expert_context = 2;
    plan.expert_reductions = {{Bytes(600), Bytes(0), {}}};
    const Case c(plan);
    const std::vector<FlowPhase>& phases = c.flows.collective(0).phases;
    REQUIRE(phases.size() == 3);
    CHECK(sent(phases[0].flows) == within);
    CHECK(sent(phases[1].flows) == across);
    CHECK(sent(phases[2].flows) == std::vector<std::string>{"0-2: 600", "2-0: 600", "1-3: 600", "3-1: 600"});
  }
}

TEST_CASE("context ranks hold the same weights and stand in the ring of gradients") {
  const Case c(full_plan(1, 2, 2, 2), Folding::on);
  REQUIRE(c.flows.replicas() == 1);                 // both in one node, each with links of its own
  REQUIRE(c.flows.lanes() == std::vector<int>{0});  // one tensor and one context rank stand for all
  CHECK(senders(c.flows.collective(0)) == std::vector<int>{0});
  const Case all(full_plan(1, 2, 2, 2));
  // Context 0 and 1 of replica 0, then of replica 1; first those of tensor rank 0.
  CHECK(senders(all.flows.collective(0)) == std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7});
}

// Replicas 0 and 1 share a set of experts, 2 and 3 hold copies of it: after the ring of all four come the
// rings of 0 and 2 and of 1 and 3, side by side.
TEST_CASE("experts are reduced over the replicas that hold the same ones, after what all replicas have") {
  PricedPlan plan = full_plan(1, 4, 1, 1);
  plan.algorithm = CollectiveAlgorithm::ring;
  plan.expert = 2;
  plan.expert_reductions = {{Bytes(600), Bytes(0), {}}};
  const Case c(plan);
  const std::vector<FlowPhase>& phases = c.flows.collective(0).phases;
  REQUIRE(phases.size() == 2);
  CHECK(senders(c.flows.collective(0)) == std::vector<int>{0, 1, 2, 3});
  std::vector<std::pair<int, int>> hops;
  for (const Flow& flow : phases[1].flows) {
    hops.emplace_back(flow.from, flow.to);
    CHECK(flow.payload.value() == 600);  // 2 (2 - 1) / 2 of it
  }
  CHECK(hops == std::vector<std::pair<int, int>>{{0, 2}, {2, 0}, {1, 3}, {3, 1}});
}

TEST_CASE("one replica with context ranks still reduces gradients") {
  const Case c(full_plan(1, 1, 2, 1));
  REQUIRE(c.flows.instances() >= 1);
  CHECK(c.flows.members(0) == std::vector<int>{0});
  CHECK(c.flows.collective(0).phases.front().flows.size() == 2);
}

TEST_CASE("where all lanes are played every tensor rank has its ring") {
  const Case c(full_plan(1, 2, 2, 2));
  REQUIRE(c.flows.collective(0).phases.front().flows.size() == 8);
  CHECK(c.flows.collective(0).phases.front().flows[4].from == 1);
}

namespace {

// Four tensor ranks (GPUs 0 to 3), then two (4 and 5), then three (8 to 10).
PricedPlan unequal_plan() {
  PricedPlan plan = full_plan(3, 1, 1, 4);
  plan.gpus[1].resize(2);
  plan.gpus[2].resize(3);
  for (BoundaryMessage& boundary : plan.boundaries) boundary.bytes = Bytes(60);
  return plan;
}

}  // namespace

TEST_CASE("whole messages between stages of unequal tensor ways reach every lane, each from one") {
  for (const Folding folding : {Folding::on, Folding::off}) {
    const Case c(unequal_plan(), folding);
    CHECK(c.flows.lanes_each() == 1);
    CHECK(sent(c.flows.message(0, 0, false)) == std::vector<std::string>{"0-4: 60", "2-5: 60"});
    CHECK(sent(c.flows.message(0, 0, true)) ==
          std::vector<std::string>{"4-0: 60", "4-1: 60", "5-2: 60", "5-3: 60"});
    CHECK(sent(c.flows.message(0, 1, false)) == std::vector<std::string>{"4-8: 60", "4-9: 60", "5-10: 60"});
  }
}

// Of 240 bytes each of four lanes holds 60 and each of two 120. Of 120 bytes each of two holds 60 and each of
// three 40: the second of the three has the last 20 of the first's and the first 20 of the second's.
TEST_CASE("shards go where they are needed, whatever the tensor ways of the two stages") {
  PricedPlan plan = unequal_plan();
  for (BoundaryMessage& boundary : plan.boundaries) boundary.in_shards = true;
  const Case c(plan);
  CHECK(sent(c.flows.message(0, 0, false)) ==
        std::vector<std::string>{"0-4: 60", "1-4: 60", "2-5: 60", "3-5: 60"});
  CHECK(sent(c.flows.message(0, 0, true)) ==
        std::vector<std::string>{"4-0: 60", "4-1: 60", "5-2: 60", "5-3: 60"});
  CHECK(sent(c.flows.message(0, 1, false)) ==
        std::vector<std::string>{"4-8: 40", "4-9: 20", "5-9: 20", "5-10: 40"});
}

TEST_CASE("activations in shards may come back as whole gradients, one to every lane") {
  PricedPlan plan = unequal_plan();
  for (BoundaryMessage& boundary : plan.boundaries) boundary.in_shards = boundary.whole_gradients = true;
  const Case c(plan);
  CHECK(sent(c.flows.message(0, 0, false)) ==
        std::vector<std::string>{"0-4: 60", "1-4: 60", "2-5: 60", "3-5: 60"});
  CHECK(sent(c.flows.message(0, 0, true)) ==
        std::vector<std::string>{"4-0: 240", "4-1: 240", "5-2: 240", "5-3: 240"});
}

TEST_CASE("a hop that leaves the folded replicas ends where one enters them") {
  PricedPlan plan = full_plan(1, 4, 1, 8);  // replica r is node r
  plan.algorithm = CollectiveAlgorithm::ring;
  const Case c(std::move(plan), Folding::on);
  REQUIRE(c.flows.replicas() == 1);
  REQUIRE(c.flows.collective(0).phases.front().flows.size() == 1);
  const Flow& hop = c.flows.collective(0).phases.front().flows[0];
  CHECK((hop.from == 0 && hop.to == 0));
  REQUIRE(hop.route.count == 2);
  CHECK(hop.route.links[0] == c.topology.nic_up(0));
  CHECK(hop.route.links[1] == c.topology.nic_up(0) + 1);
  CHECK(hop.payload.value() == 2.0 * 3 / 4 * 1000);  // of a ring of four all the same
}

TEST_CASE("what a plan does not have is not in its programs") {
  PricedPlan plan = full_plan(2, 2, 1, 1);
  plan.reductions.clear();
  plan.embedding_gradient.reset();
  plan.gradient_norm = false;
  plan.optimizer.clear();
  const Case c(plan);
  CHECK(c.flows.instances() == 0);
  for (int rank = 0; rank < 4; ++rank) CHECK(text_of(c, rank).empty());
}

// Two replicas with all experts each: a ring of two sends the whole vector each way. 1000 B in buckets of 300
// B are four of 250, 500 B of experts two, full after half of the slots and after all.
TEST_CASE("gradients of experts fill buckets of their own") {
  PricedPlan plan = full_plan(1, 2, 1, 1);
  plan.embedding_gradient.reset();
  plan.gradient_norm = false;
  plan.expert_reductions = {{Bytes(500), Bytes(0), {}}};
  plan.overlap_grad_reduce = true;
  plan.bucket = Bytes(300);
  const auto bytes_of_slots = [](const PricedPlan& buckets) {
    const Case c(buckets);
    std::vector<std::vector<long>> slots;
    for (int slot = 0; slot < c.flows.instances() / c.flows.replicas(); ++slot) {
      slots.emplace_back();
      for (const FlowPhase& phase : c.flows.collective(c.flows.instance(slot, 0)).phases)
        slots.back().push_back(std::lround(phase.flows.front().payload.value()));
    }
    return slots;
  };
  CHECK(bytes_of_slots(plan) == std::vector<std::vector<long>>{{250}, {250, 250}, {250}, {250, 250}});
  std::swap(plan.reductions, plan.expert_reductions);
  CHECK(bytes_of_slots(plan) == std::vector<std::vector<long>>{{250}, {250, 250}, {250}, {250, 250}});
  plan.overlap_grad_reduce = false;
  CHECK(bytes_of_slots(plan) == std::vector<std::vector<long>>{{500, 1000}});
}

}  // namespace orrery
