// Parts cut into pieces around the collectives that are played.
#include <algorithm>

#include "costmodels/collectives/collective_choice.hpp"
#include "costmodels/plans/folding.hpp"
#include "costmodels/plans/group_calls.hpp"
#include "costmodels/stacks/sustained_power.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"

namespace orrery {
namespace {

struct Ways {
  int tensor = 1, context = 1, expert = 1, data = 1;
};

// One stage of the whole model on nodes of eight H100.
ParallelStrategy one_stage(const ModelSpec& model, const Ways& ways) {
  ParallelStrategy strategy;
  strategy.data = ways.data;
  strategy.context = ways.context;
  strategy.expert = ways.expert;
  strategy.global_batch = ways.data;
  strategy.sequence = 4096;
  strategy.sequence_parallel = true;
  strategy.stages = {{0, ways.tensor}};
  strategy.parts = {{0, model.layer_count()}};
  strategy.nodes = {(ways.tensor * ways.context * ways.data + 7) / 8, 0};
  return strategy;
}

struct Priced {
  PartTimes played;  // as the plan has it
  PartTimes priced;  // as if every collective took its predicted time
  PricedPlan plan;
};

Priced priced(const ModelSpec& model, const ParallelStrategy& strategy, int nics_per_node = 8,
              const SoftwareStack& stack = {}) {
  const ClusterSpec cluster = test::two_priced_kinds(nics_per_node);
  const PriceBook book = test::book_for(model, cluster, strategy, stack);
  PricedPlan plan = book.price(strategy, Topology(cluster, strategy.nodes));
  const PartTimes times =
      book.part_times(book.shard(shard_key(strategy, 0)), strategy.parts[0], strategy.recompute,
                      strategy.gpus(), backward_of(strategy.schedule));
  return {plan.parts[0], times, std::move(plan)};
}

// Tensor collectives half hidden under GEMMs, kernels of its own.
SoftwareStack overlapping_stack() {
  SoftwareStack stack;
  stack.tensor_overlap = 0.5;
  stack.overlap_slowdown = 1.2;
  stack.backward_gemm = 1.1;
  stack.selective = SelectiveRecompute::every_second_gemm;
  return stack;
}

SoftwareStack asynchronous_stack() {
  SoftwareStack stack;
  stack.async_tensor_gradients = true;
  stack.overlap_slowdown = 1.2;
  return stack;
}

// The same on a host that launches slowly, so that it decides the time.
SoftwareStack host_bound_stack() {
  SoftwareStack stack = overlapping_stack();
  stack.host = {milliseconds(40), milliseconds(90), milliseconds(1)};
  return stack;
}

void check_played_as_priced(const Priced& plan) {
  CHECK(plan.played.forward.value() == Approx(plan.priced.forward.value()).epsilon(1e-9));
  CHECK(plan.played.backward.value() == Approx(plan.priced.backward.value()).epsilon(1e-9));
  CHECK(plan.played.forward_tensor.value() == Approx(plan.priced.forward_tensor.value()).epsilon(1e-9));
  CHECK(plan.played.backward_tensor.value() == Approx(plan.priced.backward_tensor.value()).epsilon(1e-9));
  CHECK(plan.played.weight_gradient == plan.priced.weight_gradient);
}

Flops flops_of(const std::vector<PlayedPiece>& pieces) {
  Flops sum;
  for (const PlayedPiece& piece : pieces) sum += piece.flops;
  return sum;
}

Seconds compute_of(const std::vector<PlayedPiece>& pieces) {
  Seconds sum;
  for (const PlayedPiece& piece : pieces) sum += piece.compute + piece.beside - piece.tensor;
  return sum;
}

int calls_of(const PricedPlan& plan, const std::vector<PlayedPiece>& pieces, RankGroup group) {
  int count = 0;
  for (const PlayedPiece& piece : pieces) {
    if (!piece.call) continue;
    const GroupCall& call = plan.calls[static_cast<std::size_t>(*piece.call)];
    if (call.group == group) count += call.times;
  }
  return count;
}

ModelSpec short_model(const char* name, int layers) {
  ModelSpec model = read_model(name);
  model.layers.resize(static_cast<std::size_t>(layers));
  return model;
}

}  // namespace

TEST_CASE("groups inside one NVSwitch domain are priced") {
  const ModelSpec model = short_model("mixtral-8x7b", 4);
  const Priced plan = priced(model, one_stage(model, {.tensor = 2, .context = 2, .expert = 2, .data = 2}));
  CHECK(plan.plan.calls.empty());
  CHECK(plan.played.forward_pieces.empty());
  CHECK(plan.played.forward == plan.priced.forward);
}

// Sequence-parallel collectives go round rings, and a ring is as slow as its slowest hop: one link slows all.
TEST_CASE("a GPU's link that is said to be slower slows the groups it is in, and no others") {
  const ModelSpec model = short_model("llama2-7b", 2);
  const ParallelStrategy strategy = one_stage(model, {.tensor = 4, .data = 2});
  ClusterSpec cluster = test::two_priced_kinds();
  const PriceBook book = test::book_for(model, cluster, strategy);
  const auto forward = [&](const std::string& links, double factor, int replica) {
    cluster.links = {{links, {}, factor, {}, {}}};
    const Topology topology(cluster, strategy.nodes);
    const PricedPlan plan = book.price(strategy, topology);
    double time = 0;
    for (const PlayedPiece& piece : plan.parts[0].forward_pieces) {
      time += piece.compute.value();
      if (!piece.call) continue;
      const GroupCall& call = plan.calls[static_cast<std::size_t>(*piece.call)];
      time += time_alone(topology, call_flows(plan, topology, call, replica, 0, all_lanes(plan, 0))).value();
    }
    return time;
  };
  const double usual = priced(model, strategy).priced.forward.value();
  const double slow = forward("*.gpu*", 0.1, 0);
  CHECK(slow > 1.5 * usual);
  CHECK(forward("H100.node0.gpu2.*", 0.1, 0) == Approx(slow).epsilon(1e-9));
  CHECK(forward("H100.node0.gpu2.*", 0.1, 1) == Approx(usual).epsilon(1e-9));
  CHECK(forward("*.gpu*", 0.05, 0) > slow);
  cluster.links = {{"*.gpu*", {}, 1.0, {}, {}}};
  CHECK(book.price(strategy, Topology(cluster, strategy.nodes)).calls.empty());
}

// Two of eight V100 have 1.7 of their six NVLinks between them.
TEST_CASE("a slower link does not make neighbours that have a few of a mesh's links faster") {
  const ModelSpec model = short_model("llama2-7b", 2);
  const ParallelStrategy strategy = one_stage(model, {.tensor = 2});
  ClusterSpec cluster;
  cluster.groups = {test::node_group_of("V100-SXM2-32GB", 4), test::node_group_of("A100", 8)};
  const auto forward = [&](double factor) {
    if (factor != 1.0) cluster.links = {{"*.gpu*", {}, factor, {}, {}}};
    const PricedPlan plan =
        test::book_for(model, cluster, strategy).price(strategy, Topology(cluster, {1, 0}));
    REQUIRE(plan.calls.empty() == (factor == 1.0));
    return plan.parts[0].forward.value();
  };
  const double usual = forward(1.0);
  CHECK(forward(0.999) == Approx(usual).epsilon(1e-3));
  CHECK(forward(0.5) > 1.02 * usual);
}

TEST_CASE("groups behind PCIe switches are played inside their node") {
  ClusterSpec cluster = test::two_priced_kinds();
  cluster.groups[0].pcie_switches = 2;
  cluster.groups[0].pcie_uplink = {gigabytes_per_second(25), microseconds(0.5)};
  PricedPlan plan;
  plan.gpus = {{0, 1, 2, 3}};
  const Topology topology(cluster, {1, 0});
  const std::vector<int> tensor_group = group_members(plan, 0, 0, RankGroup::tensor).front();
  const std::vector<int> context_group = group_members(plan, 0, 0, RankGroup::context).front();
  CHECK(must_play(topology, tensor_group));
  CHECK_FALSE(must_play(topology, context_group));  // of one member
  CHECK_FALSE(must_play(Topology(test::two_priced_kinds(), {1, 0}), tensor_group));
}

// NCCL sends an all-to-all directly, where keys and values go round a ring.
TEST_CASE("a state space's exchange over context ranks of several nodes is played") {
  ModelSpec model = short_model("nemotron-h-8b", 10);
  for (LayerShape& shape : model.shapes)
    if (shape.has_state_space()) shape.state_space.groups = 16;
  const ParallelStrategy strategy = one_stage(model, {.tensor = 8, .context = 2});
  const Priced plan = priced(model, strategy);
  const Topology topology(test::two_priced_kinds(8), strategy.nodes);
  int exchanges = 0;
  for (const GroupCall& call : plan.plan.calls) {
    const auto phases = call_flows(plan.plan, topology, call, 0, 0, all_lanes(plan.plan, 0));
    CHECK_FALSE(phases.empty());
    exchanges += call.group == RankGroup::context && call.kind == CollectiveKind::all_to_all ? 1 : 0;
  }
  CHECK(exchanges > 0);
  check_played_as_priced(plan);
}

// Six layers are merged into four blocks. Whatever the NICs: the group has all GPUs of its nodes.
TEST_CASE("a tensor group over two nodes plays what a layer has, and alone it takes the predicted time") {
  const int nics = GENERATE(1, 8);
  const ModelSpec model = short_model("llama2-70b", 6);
  const Priced plan = priced(model, one_stage(model, {.tensor = 16}), nics);
  // Two all-gathers and two reduce-scatters a layer; embedding: reduce-scatter; head: all-gather and three
  // statistics. Backward the same but for the statistics.
  CHECK(calls_of(plan.plan, plan.played.forward_pieces, RankGroup::tensor) == 6 * 4 + 1 + 4);
  CHECK(calls_of(plan.plan, plan.played.backward_pieces, RankGroup::tensor) == 6 * 4 + 1 + 1);
  CHECK(plan.played.forward.value() == Approx(plan.priced.forward.value()).epsilon(1e-9));
  CHECK(plan.played.backward.value() == Approx(plan.priced.backward.value()).epsilon(1e-9));
  CHECK(plan.played.forward_tensor.value() == Approx(plan.priced.forward_tensor.value()).epsilon(1e-9));
  const Seconds compute = plan.priced.forward - plan.priced.forward_tensor;
  CHECK(compute_of(plan.played.forward_pieces).value() == Approx(compute.value()).epsilon(1e-9));
  CHECK(flops_of(plan.played.backward_pieces).value() ==
        Approx(plan.priced.backward_flops.value()).epsilon(1e-9));
}

TEST_CASE("recomputation repeats collectives and compute where they are played") {
  const ModelSpec model = short_model("llama2-70b", 6);
  ParallelStrategy strategy = one_stage(model, {.tensor = 16});
  const auto [granularity, method, layers, repeated] =
      GENERATE(table<RecomputeGranularity, RecomputeMethod, int, int>(
          {{RecomputeGranularity::selective, RecomputeMethod::uniform, 1, 0},
           {RecomputeGranularity::full, RecomputeMethod::uniform, 1, 6},
           {RecomputeGranularity::full, RecomputeMethod::block, 2, 2}}));
  strategy.recompute = {granularity, method, layers};
  const Priced plan = priced(model, strategy);
  CHECK(calls_of(plan.plan, plan.played.backward_pieces, RankGroup::tensor) == (6 + repeated) * 4 + 2);
  CHECK(plan.played.backward.value() == Approx(plan.priced.backward.value()).epsilon(1e-9));
  CHECK(plan.played.backward_tensor.value() == Approx(plan.priced.backward_tensor.value()).epsilon(1e-9));
}

TEST_CASE("alone a played part takes what its software stack makes of it") {
  const ModelSpec model = short_model("llama2-70b", 6);
  ParallelStrategy strategy = one_stage(model, {.tensor = 16, .data = 2});
  const bool is_host_bound = GENERATE(false, true);
  strategy.fully_sharded = GENERATE(false, true);
  strategy.schedule = GENERATE(ScheduleKind::one_f_one_b, ScheduleKind::zb_h1);
  strategy.recompute.granularity = GENERATE(RecomputeGranularity::none, RecomputeGranularity::selective);
  const Priced plan = priced(model, strategy, 8, is_host_bound ? host_bound_stack() : overlapping_stack());
  REQUIRE(plan.priced.host_bound == is_host_bound);
  check_played_as_priced(plan);
  CHECK(flops_of(plan.played.backward_pieces).value() ==
        Approx(plan.priced.backward_flops.value()).epsilon(1e-9));
  const bool computes_beside =
      std::any_of(plan.played.forward_pieces.begin(), plan.played.forward_pieces.end(),
                  [](const PlayedPiece& piece) { return piece.call && piece.beside.value() > 0; });
  CHECK(computes_beside);
}

TEST_CASE("gradients reduced beside weight gradients are exposed as far as they take longer, and slow them") {
  const ModelSpec model = short_model("llama2-70b", 6);
  ParallelStrategy strategy = one_stage(model, {.tensor = 16, .data = 2});
  const Priced waiting = priced(model, strategy, 8, SoftwareStack{});
  const Priced plan = priced(model, strategy, 8, asynchronous_stack());
  check_played_as_priced(plan);
  CHECK(plan.priced.forward == waiting.priced.forward);
  CHECK(plan.priced.backward < waiting.priced.backward);
  // Hidden is what runs beside; the GEMMs it runs beside are a fifth slower meanwhile.
  Seconds hidden;
  for (const PlayedPiece& piece : plan.played.backward_pieces) hidden += piece.beside;
  CHECK(hidden.value() > 0);
  const Seconds gained = waiting.priced.backward - plan.priced.backward;
  CHECK(gained.value() <= 0.8 * hidden.value() * (1 + 1e-9));
  strategy.schedule = ScheduleKind::zb_h1;
  check_played_as_priced(priced(model, strategy, 8, asynchronous_stack()));
}

TEST_CASE("a schedule that splits the backward plays it without the weight gradients") {
  const ModelSpec model = short_model("llama2-70b", 6);
  ParallelStrategy strategy = one_stage(model, {.tensor = 16});
  const SoftwareStack stack = GENERATE(SoftwareStack(), host_bound_stack());
  const PartTimes whole = priced(model, strategy, 8, stack).played;
  strategy.schedule = ScheduleKind::zb_h1;
  const PartTimes split = priced(model, strategy, 8, stack).played;
  CHECK(whole.weight_gradient == Seconds(0));
  CHECK(split.weight_gradient.value() > 0);
  CHECK((split.backward + split.weight_gradient).value() == Approx(whole.backward.value()).epsilon(1e-9));
  CHECK((flops_of(split.backward_pieces) + split.weight_gradient_flops).value() ==
        Approx(flops_of(whole.backward_pieces).value()).epsilon(1e-9));
}

// With so much to hide, all GEMMs of a backward run beside collectives; those that are left to the weight
// gradients no longer do where these are run apart.
TEST_CASE("what is hidden under weight gradients is exposed where they are run apart") {
  const ModelSpec model = short_model("llama2-7b", 4);
  SoftwareStack stack;
  stack.tensor_overlap = 1.0;
  ParallelStrategy strategy = one_stage(model, {.tensor = 16});
  const Priced whole = priced(model, strategy, 8, stack);
  strategy.schedule = ScheduleKind::zb_h1;
  const Priced split = priced(model, strategy, 8, stack);
  check_played_as_priced(whole);
  check_played_as_priced(split);
  CHECK(split.played.backward_tensor > whole.played.backward_tensor);
  CHECK(split.played.backward + split.played.weight_gradient > whole.played.backward);
}

TEST_CASE("a plan's tensor_overlap turns the overlap of the stack on and off") {
  const ModelSpec model = short_model("llama2-7b", 4);
  const int ways = GENERATE(4, 16);  // priced, and played over two nodes
  ParallelStrategy strategy = one_stage(model, {.tensor = ways});
  SoftwareStack none = overlapping_stack(), all = overlapping_stack();
  none.tensor_overlap = 0;
  all.tensor_overlap = 1;
  const auto forward = [&](std::optional<bool> overlap, const SoftwareStack& stack) {
    strategy.tensor_overlap = overlap;
    const Priced plan = priced(model, strategy, 8, stack);
    check_played_as_priced(plan);
    return plan.played.forward.value();
  };
  const double exposed = forward(std::nullopt, none), hidden = forward(std::nullopt, all);
  const double half = forward(std::nullopt, overlapping_stack());
  // Split sixteen ways the matrices are too short to hide even half.
  if (ways == 4) CHECK(hidden < half);
  CHECK(hidden <= half);
  CHECK(half < exposed);
  CHECK(forward(false, all) == exposed);
  CHECK(forward(true, overlapping_stack()) == half);  // as much as the stack can
  CHECK(forward(true, none) == hidden);               // of a stack that leaves it off: all
}

// Replica 0 on two nodes of H100, replica 1 on two of A100.
TEST_CASE("unlike replicas play their collectives at their own speed on their own GPUs") {
  const ModelSpec model = short_model("llama2-70b", 6);
  const ClusterSpec cluster = test::two_priced_kinds();
  ParallelStrategy strategy = one_stage(model, {.tensor = 16, .data = 2});
  strategy.nodes = {2, 2};
  strategy.global_batch = 5;
  strategy.replicas = {{1, {0}, 3}, {1, {1}, 2}};
  const PriceBook book = test::book_for(model, cluster, strategy);
  const Topology topology(cluster, strategy.nodes);
  const PricedPlan plan = book.price(strategy, topology);
  for (const int replica : {0, 1}) {
    const PartTimes& played = plan.part_times(replica, 0);
    const ParallelStrategy alike = strategy.of_kind(replica);
    check_played_as_priced(
        {played, book.part_times(book.shard(shard_key(alike, 0)), strategy.parts[0], {}, alike.gpus()),
         plan});
    const std::vector<int>& own = plan.lanes(replica, 0);
    REQUIRE_FALSE(calls_of_stage(plan, replica, 0).empty());
    for (const int index : calls_of_stage(plan, replica, 0)) {
      const GroupCall& call = plan.calls[static_cast<std::size_t>(index)];
      for (const FlowPhase& phase : call_flows(plan, topology, call, replica, 0, all_lanes(plan, 0))) {
        for (const Flow& flow : phase.flows) CHECK(std::count(own.begin(), own.end(), flow.from) == 1);
      }
    }
  }
  CHECK(plan.part_times(1, 0).forward > plan.part_times(0, 0).forward);
}

TEST_CASE("unlike replicas cannot share experts whose exchanges are played") {
  PricedPlan plan;
  plan.replicas = plan.expert = 2;
  plan.gpus = {{0}, {8}};
  plan.parts.resize(1);
  plan.other_kinds.resize(1);
  plan.other_kinds[0].parts.resize(1);
  plan.kind_of_replica = {0, 1};
  GroupCall call;
  call.group = RankGroup::expert;
  call.kind = CollectiveKind::all_to_all;
  call.bytes = Bytes(1e6);
  plan.calls = {call};
  const Topology topology(test::two_priced_kinds(), {1, 1});
  CHECK_THROWS_WITH(GroupCalls(plan, topology, {0, 1}, {0}, played_images(plan, topology, 2, 1)),
                    contains_text("replicas of one kind"));
  plan.kind_of_replica.clear();
  CHECK_NOTHROW(GroupCalls(plan, topology, {0, 1}, {0}, played_images(plan, topology, 2, 1)));
}

// Tensor 8 fills a node, so context ranks are in different nodes: their exchange is played, the tensor
// group's collectives are priced.
TEST_CASE("a context group over nodes plays its exchange beside the attention") {
  const ModelSpec model = short_model("llama2-70b", 4);
  ParallelStrategy strategy = one_stage(model, {.tensor = 8, .context = 4});
  strategy.sequence = 65536;  // long enough for the attention to hide the exchange
  const Priced plan = priced(model, strategy);
  CHECK(calls_of(plan.plan, plan.played.forward_pieces, RankGroup::context) == 4);
  CHECK(calls_of(plan.plan, plan.played.backward_pieces, RankGroup::context) == 2 * 4);
  CHECK(calls_of(plan.plan, plan.played.forward_pieces, RankGroup::tensor) == 0);
  CHECK(plan.played.forward.value() == Approx(plan.priced.forward.value()).epsilon(1e-9));
  CHECK(plan.played.backward.value() == Approx(plan.priced.backward.value()).epsilon(1e-9));
  for (const PlayedPiece& piece : plan.played.forward_pieces) {
    CHECK((piece.beside.value() > 0) == piece.call.has_value());
  }
}

// Sixteen context ranks on two nodes of eight GPUs with a card each: blocks that wait for each other go by
// one card, and what is played is what was priced.
TEST_CASE("a ring of blocks over nodes is played as it is priced") {
  const ModelSpec model = short_model("llama2-7b", 2);
  ParallelStrategy strategy = one_stage(model, {.context = 16});
  strategy.sequence = 16384;  // too short to hide it
  const Priced plan = priced(model, strategy);
  CHECK(calls_of(plan.plan, plan.played.forward_pieces, RankGroup::context) == 2);
  CHECK(plan.played.forward.value() == Approx(plan.priced.forward.value()).epsilon(0.02));
  CHECK(plan.played.backward.value() == Approx(plan.priced.backward.value()).epsilon(0.02));
}

TEST_CASE("experts over nodes play their exchanges, and the rest of the layer is computed between") {
  const ModelSpec model = short_model("mixtral-8x7b", 4);
  const Priced plan = priced(model, one_stage(model, {.tensor = 4, .expert = 4, .data = 4}));
  CHECK(plan.plan.expert == 4);
  CHECK(calls_of(plan.plan, plan.played.forward_pieces, RankGroup::expert) == 2 * 4);
  CHECK(calls_of(plan.plan, plan.played.backward_pieces, RankGroup::expert) == 2 * 4);
  CHECK(plan.played.forward.value() == Approx(plan.priced.forward.value()).epsilon(1e-9));
  CHECK(plan.played.backward.value() == Approx(plan.priced.backward.value()).epsilon(1e-9));
}

// Four replicas with two context ranks each hold eight copies of attention, norms and router, and of each
// expert half as many: two replicas share a set.
TEST_CASE("expert gradients are reduced over the ranks that hold the same experts") {
  const ModelSpec model = short_model("mixtral-8x7b", 2);
  const ParallelStrategy strategy = one_stage(model, {.context = 2, .expert = 2, .data = 4});
  const PricedPlan plan = priced(model, strategy).plan;
  const double experts =
      2.0 * 4 * 3 * 4096 * 14336;  // layers, experts of a GPU, matrices, each of hidden x ffn
  REQUIRE(plan.expert_reductions.size() == 1);
  CHECK(plan.expert_reductions[0].gradients.value() == experts * 4);
  double others = 0;
  for (const int layer : model.layers) {
    const LayerShape& shape = model.shapes[static_cast<std::size_t>(layer)];
    others += static_cast<double>(layer_parameters(shape)) - 8.0 * 3 * 4096 * 14336;
  }
  others += 2 * 32000.0 * 4096 + 4096;  // embedding, head and final norm
  CHECK(plan.reductions[0].gradients.value() == others * 4);
}

TEST_CASE("experts' optimizer and that of the rest each gather the weights of both, unless that overlaps") {
  const ModelSpec model = short_model("mixtral-8x7b", 2);
  SoftwareStack stack;
  const auto gathered = [&](int experts, bool overlap) {
    ParallelStrategy strategy = one_stage(model, {.expert = experts, .data = 4});
    strategy.distributed_optimizer = true;
    strategy.overlap_param_gather = overlap;
    return priced(model, strategy, 8, stack).plan;
  };
  const PricedPlan once = gathered(2, false);
  stack.gathers_for_each_optimizer = true;
  const PricedPlan twice = gathered(2, false), under = gathered(2, true);
  for (const auto list : {&PricedPlan::reductions, &PricedPlan::expert_reductions}) {
    const PartReduction &one = (once.*list)[0], &both = (twice.*list)[0];
    CHECK(both.gathered == one.gathered * 2.0);
    CHECK(both.gather_efficiency.between == one.gather_efficiency.between);
    CHECK((under.*list)[0].gathered == one.gathered);
  }
  // One optimizer where no expert is spread.
  const Bytes all = gathered(1, false).reductions[0].gathered;
  stack.gathers_for_each_optimizer = false;
  CHECK(gathered(1, false).reductions[0].gathered == all);
}

TEST_CASE("a plan waits for the slowest of its own GPUs, however many more its group may have") {
  const ModelSpec model = read_model("llama2-7b");
  const auto forward = [&](int data, int most_nodes) {
    ParallelStrategy strategy = one_stage(model, {.tensor = 8, .data = data});
    ClusterSpec cluster = test::two_priced_kinds();
    cluster.groups.front().count = {0, most_nodes};
    const PriceBook book = test::book_for(model, cluster, strategy);
    return book.price(strategy, Topology(cluster, strategy.nodes)).parts.front().forward.value();
  };
  CHECK(forward(1, 256) == forward(1, 1));
  CHECK(forward(256, 256) > forward(1, 256) * 1.001);
  CHECK(forward(256, 256) < forward(1, 256) * slowest_of(256 * 8) / slowest_of(8));
}

}  // namespace orrery
