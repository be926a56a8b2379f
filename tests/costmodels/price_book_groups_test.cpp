// Parts cut into pieces around the collectives that can contend.
#include <numeric>

#include "costmodels/achieved.hpp"
#include "costmodels/collective_choice.hpp"
#include "costmodels/group_calls.hpp"
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

Priced priced(const ModelSpec& model, const ParallelStrategy& strategy, int nics_per_node = 8) {
  const ClusterSpec cluster = test::two_priced_kinds(nics_per_node);
  const PriceBook book = test::book_for(model, cluster, strategy);
  PricedPlan plan = book.price(strategy, Topology(cluster, strategy.nodes));
  const PartTimes times =
      book.part_times(book.shard(shard_key(strategy, 0)), strategy.parts[0], strategy.recompute);
  return {plan.parts[0], times, std::move(plan)};
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

TEST_CASE("groups behind PCIe switches are played inside their node") {
  ClusterSpec cluster = test::two_priced_kinds();
  cluster.groups[0].pcie_switches = 2;
  cluster.groups[0].pcie_uplink = {gigabytes_per_second(25), microseconds(0.5)};
  PricedPlan plan;
  plan.gpus = {{0, 1, 2, 3}};
  const Topology topology(cluster, {1, 0});
  CHECK(can_contend(plan, topology, 0, RankGroup::tensor));
  CHECK_FALSE(can_contend(plan, topology, 0, RankGroup::context));  // of one member each
  CHECK_FALSE(can_contend(plan, Topology(test::two_priced_kinds(), {1, 0}), 0, RankGroup::tensor));
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
  Flops flops;
  for (const PlayedPiece& piece : plan.played.backward_pieces) flops += piece.flops;
  CHECK(flops.value() == Approx(plan.priced.backward_flops.value()).epsilon(1e-9));
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

TEST_CASE("flows are as slow as predicted, to a byte and beyond") {
  Collective op{CollectiveKind::all_reduce,
                Bytes(1 << 24),
                16,
                8,
                {gigabytes_per_second(450), microseconds(0.3)},
                {gigabits_per_second(400), microseconds(1)}};
  op.kind = GENERATE(CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::all_to_all);
  const auto algorithm = op.kind == CollectiveKind::all_to_all
                             ? CollectiveAlgorithm::direct
                             : GENERATE(CollectiveAlgorithm::ring, CollectiveAlgorithm::hierarchical);
  NodeGroup node = test::node_group_of("H100", 8);
  node.gpu_link = op.gpu_link;
  node.nic = op.network;
  node.count = {2, 2};
  ClusterSpec cluster;
  cluster.groups = {node};
  const Topology topology(cluster, {2});
  CollectiveCall call{op.kind, algorithm, op.bytes, {}, std::vector<int>(16)};
  std::iota(call.gpus.begin(), call.gpus.end(), 0);
  const double least = time_alone(topology, collective_flows(topology, call)).value();
  for (const double factor : {1.0, 1.0001, 1.5, 40.0}) {
    const Achieved speed = achieved(op, algorithm, Seconds(least * factor));
    CHECK(speed.efficiency.inside <= 1.0);
    CHECK(speed.more.value() >= 0);
    CHECK(speed.more.value() < 1e-6 * least * factor);
    call.efficiency = speed.efficiency;
    const Seconds played = time_alone(topology, collective_flows(topology, call)) + speed.more;
    CHECK(played.value() == Approx(least * factor).epsilon(1e-12));
  }
  CHECK(achieved(op, algorithm, Seconds(least / 2)).efficiency.inside == 1.0);
}

}  // namespace orrery
