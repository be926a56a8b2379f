// What a card holds beside tensors, and whether plans fit: against sources, hand counts and published trials.
#include "costmodels/memory/card_memory.hpp"

#include "costmodels/stacks/stack_file.hpp"
#include "costmodels/trust/residuals.hpp"
#include "platforms/cluster.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/gpt_plans.hpp"

namespace orrery {
namespace {

// Buffers of a connection: Simple, LL and LL128 of NCCL's src/init.cc.
constexpr double kConnection = (4 + 0.5 + 4.6875) * kMebi;

ClusterSpec nodes_of(const std::string& instance, int count) {
  return parse_cluster(
      "{name: c, groups: [{name: g, instance: " + instance + ", count: " + std::to_string(count) + "}]}",
      "c");
}

NodeGroup with_card(Bytes memory) {
  NodeGroup group;
  group.gpu.memory = memory;
  return group;
}

Bytes communicators(const ParallelStrategy& strategy, int stage, const ClusterSpec& cluster,
                    const char* stack) {
  return communicator_bytes(gpt_layers(8), strategy, stage, cluster, read_stack(stack));
}

}  // namespace

// Three stages of 2 x 2 GPUs on nodes of 8: stage 0 and 1 on the first, stage 2 on half of the second; with
// stages before replicas, ranks 0 to 5 are replica 0 and two of the next six share its node.
TEST_CASE("host memory is that of the node that holds the most") {
  const ModelSpec model = gpt_layers(3);
  ParallelStrategy strategy = spread(model, {.tensor = 2, .pipeline = 3, .data = 2});
  ClusterSpec cluster;
  cluster.groups.resize(1);
  std::vector<StageMemory> memory(3);
  memory[0].host = Bytes(1);
  memory[1].host = Bytes(10);
  memory[2].host = Bytes(100);
  CHECK(fullest_hosts(strategy, cluster, memory) == std::vector{Bytes(400)});
  strategy.order = RankOrder::cp_pp_dp;
  CHECK(fullest_hosts(strategy, cluster, memory) == std::vector{Bytes(2 * 111 + 2 * 1)});
}

TEST_CASE("allocated, reserved and on the card: tensors, freed blocks with them, the process with both") {
  const ModelSpec model = gpt_layers(4);
  SoftwareStack stack;
  stack.memory_reserve = Bytes(3e9);
  stack.cached_share = 0.25;
  ParallelStrategy strategy = spread(model, {.tensor = 2, .pipeline = 2});
  strategy.sequence_parallel = true;
  const StageMemory memory = stage_memory(model, strategy, 1, {1}, stack);
  // Weights and their states come once; what comes and goes leaves a quarter behind.
  const Bytes churned = memory.activations + memory.workspace + memory.logits + memory.communication;
  CHECK(churned > Bytes(0));
  CHECK(memory.allocated().value() ==
        Approx((memory.weights + memory.gradients + memory.optimizer + churned).value()));
  CHECK((memory.reserved() - memory.allocated()).value() == Approx(0.25 * churned.value()));
  CHECK((memory.total() - memory.reserved()).value() == Approx(3e9));
  CHECK(counted(memory, MemoryFigure::allocated) == memory.allocated());
  CHECK(counted(memory, MemoryFigure::reserved) == memory.reserved());
  CHECK(counted(memory, MemoryFigure::card) == memory.total());
  // A program that keeps half as much again has the same weights, gradients, states and buffers.
  stack.activation_memory = 1.5;
  const StageMemory more = stage_memory(model, strategy, 1, {1}, stack);
  const Bytes added = 0.5 * (memory.activations + memory.workspace + memory.logits);
  CHECK((more.allocated() - memory.allocated()).value() == Approx(added.value()));
  CHECK((more.reserved() - memory.reserved()).value() == Approx(1.25 * added.value()));
}

TEST_CASE("every group of ranks has a communicator, of as many channels as its links carry") {
  const ModelSpec model = gpt_layers(8);
  // World, tensor, data and model-parallel group, the stage beside: five, on twelve rings over six NVLinks.
  const ParallelStrategy strategy = spread(model, {.tensor = 2, .pipeline = 2, .data = 2});
  const ClusterSpec one = nodes_of("p3.16xlarge", 1);
  CHECK(communicators(strategy, 0, one, "megatron-core").value() == Approx(5 * 12 * kConnection));
  // Before NCCL 2.22 the tree's connections come with the ring's.
  CHECK(communicators(strategy, 0, one, "megatron-lm-2021").value() == Approx(5 * 12 * 3 * kConnection));
  // Two nodes of one card: world, model-parallel group and the neighbour span them, by two channels.
  const ParallelStrategy wide = spread(model, {.tensor = 4, .pipeline = 2, .data = 2});
  const ClusterSpec two = nodes_of("p3.16xlarge", 2);
  CHECK(communicators(wide, 1, two, "megatron-core").value() == Approx((2 * 12 + 3 * 2) * kConnection));
  CHECK(communicators(spread(model, {}), 0, one, "megatron-core") == Bytes(0));
  // Eight ways of experts: over the tensor ranks of a node, or, each split over these, over eight nodes.
  const ClusterSpec nodes = nodes_of("p5.48xlarge", 8);
  ParallelStrategy experts = spread(model, {.tensor = 8, .data = 8});
  const auto channels = [&] {
    return communicators(experts, 0, nodes, "megatron-core").value() / kConnection;
  };
  const double without = channels();
  experts.expert = 8;
  const double across = channels();
  experts.expert_tensor = 1;
  CHECK(channels() - without == Approx(24));  // the most, over eighteen NVLinks
  CHECK(across - without == Approx(2 * 8));   // two for each network card
}

// nvidia-smi of the same plan on one GPU and on several. Oneflow-Inc/DLPerf, Megatron-LM/README.md: V100,
// NCCL 2.8.3, MiB; vuiseng9's notes on Megatron-LM f4fa7d6b: GPT-2 XL on H100, NCCL 2.27.
TEST_CASE("communicators take what replicas add to published readings") {
  struct Row {
    const char *instance, *stack;
    int nodes, replicas;
    double one, several;  // MiB
  };
  const auto row = GENERATE(values<Row>({{"p3.16xlarge", "megatron-lm-2020", 1, 8, 14362, 14938},
                                         {"p3.16xlarge", "megatron-lm-2020", 2, 16, 14362, 14508},
                                         {"p5.48xlarge", "megatron-core", 1, 4, 33321, 33807}}));
  INFO(row.instance << " x " << row.replicas);
  const ParallelStrategy strategy = spread(gpt_layers(8), {.data = row.replicas});
  const double mebibytes =
      communicators(strategy, 0, nodes_of(row.instance, row.nodes), row.stack).value() / kMebi;
  CHECK(mebibytes == Approx(row.several - row.one).epsilon(0.3));
}

TEST_CASE("Llama-2 70B does not fit on 8 A100 of 80 GB and fits on 64") {
  const ModelSpec model = read_model("llama2-70b");
  const Bytes usable = usable_memory(gibibytes(80));
  const auto largest = [&](int pipeline) {
    ParallelStrategy strategy = spread(model, {.tensor = 8, .pipeline = pipeline});
    strategy.micro_batch = 1;
    strategy.sequence = 4096;
    strategy.sequence_parallel = true;
    Bytes most;
    for (int stage = 0; stage < pipeline; ++stage) {
      // 1f1b keeps P - s microbatches at stage s (SEMANTICS 1).
      most = std::max(most, stage_memory(model, strategy, stage, {pipeline - stage}).total());
    }
    return most;
  };
  // 69e9 parameters x 18 B are 1242e9 B: 155e9 B on each of 8, 19.4e9 B on each of 64.
  CHECK(largest(1) > Bytes(155e9));
  CHECK(largest(1) > usable);
  CHECK(largest(8) > Bytes(19.4e9));
  CHECK(largest(8) < usable);
}

TEST_CASE("blocks of logits leave half of themselves split, unless segments grow, and that must stay") {
  ModelSpec model = gpt_layers(4);
  model.vocabulary = 51200;
  SoftwareStack stack;
  stack.cached_share = 0.25;
  ParallelStrategy strategy = spread(model, {.tensor = 2, .pipeline = 2});
  const StageMemory memory = stage_memory(model, strategy, 1, {1}, stack);
  REQUIRE(memory.logits > Bytes(0));
  CHECK(memory.split.value() == Approx(0.5 * memory.logits.value()));
  CHECK(memory.reserved() == memory.allocated() + memory.cached);  // no reading shows it
  NodeGroup group;
  group.gpu.memory = gibibytes(80);
  const Bytes beside = memory.communicators + memory.context;
  const Bytes fits = memory.allocated() + beside + memory.split;
  CHECK(fullness(memory, group) == Approx(fits / gibibytes(80)));
  // Of 0.96 x 80 usable GiB the group leaves 10.
  group.usable_memory = gibibytes(10);
  CHECK(fullness(memory, group) == Approx(fits / gibibytes(10 / 0.96)));
  group.usable_memory.reset();
  group.memory_limit = gibibytes(10);  // of a search: the card is as full as it was
  CHECK(fullness(memory, group) == Approx(fits / gibibytes(80)));
  CHECK(usable_memory(group) == gibibytes(10));
  CHECK(memory.needed().value() ==
        Approx((memory.allocated() + beside + std::max(memory.cached, memory.split)).value()));
  stack.cached_share = 0;
  CHECK(stage_memory(model, strategy, 1, {1}, stack).split == Bytes(0));
  CHECK(stage_memory(model, strategy, 0, {1}, stack).logits == Bytes(0));
}

TEST_CASE("on AMP's 16 T4 the data-parallel GPT-2 trains with one sequence a GPU and fails with two") {
  // arXiv 2210.07297, src/results/homogeneous_results.txt: 24 layers, 1024 wide, vocabulary 52256, dp 16.
  ModelSpec model;
  model.shapes = {{.hidden = 1024, .heads = 16, .kv_heads = 16, .head_dim = 64, .ffn = 4096}};
  model.layers.assign(24, 0);
  model.vocabulary = 52256;
  model.hidden = 1024;
  model.learned_positions = 1024;
  model.tied_embeddings = true;
  ParallelStrategy strategy = spread(model, {.data = 16});
  strategy.sequence = 1024;
  strategy.flash_attention = false;
  strategy.type = DataType::fp16;
  const auto verdict = [&](int micro_batch) {
    strategy.micro_batch = micro_batch;
    return memory_verdict(stage_memory(model, strategy, 0, {1}, read_stack("amp")), with_card(gibibytes(16)));
  };
  CHECK(verdict(1) == MemoryVerdict::fits);
  CHECK(verdict(2) != MemoryVerdict::fits);
}

TEST_CASE("larger cards are usable to a larger share") {
  CHECK(usable_memory(gibibytes(16)).value() == Approx(0.90 * 16 * kGibi));
  CHECK(usable_memory(gibibytes(48)).value() == Approx(0.93 * 48 * kGibi));  // half way
  CHECK(usable_memory(gibibytes(80)).value() == Approx(0.96 * 80 * kGibi));
  CHECK(usable_memory(gibibytes(192)).value() == Approx(0.96 * 192 * kGibi));
}

TEST_CASE("a group may say that less of its cards is usable, never more") {
  NodeGroup group = with_card(gibibytes(80));
  CHECK(usable_memory(group) == usable_memory(gibibytes(80)));
  group.usable_memory = gibibytes(60);
  CHECK(usable_memory(group) == gibibytes(60));
  group.usable_memory = gibibytes(90);
  CHECK(usable_memory(group) == usable_memory(gibibytes(80)));
}

TEST_CASE("what fits is usable with its cached blocks, and at most one run of twenty as full ran out") {
  NodeGroup group = with_card(gibibytes(80));
  const auto verdict = [&](double tensors, double cached) {
    return memory_verdict({.activations = gibibytes(tensors), .cached = gibibytes(cached)}, group);
  };
  const OutOfMemoryModel& outcomes = built_in_residuals().out_of_memory;
  const double safe = 80 * outcomes.fullness_at(kSafeChance), lost = 80 * outcomes.fullness_at(kLostChance);
  CHECK(verdict(safe - 0.01, 5) == MemoryVerdict::fits);
  CHECK(verdict(safe + 0.01, 5) == MemoryVerdict::risky);
  REQUIRE(safe > 56);
  CHECK(verdict(56, 20.7) == MemoryVerdict::fits);  // 0.96 of 80 are 76.8
  CHECK(verdict(56, 20.9) == MemoryVerdict::risky);
  CHECK(verdict(56, 56) == MemoryVerdict::risky);  // cached blocks are given back
  CHECK(verdict(lost - 0.01, 0) == MemoryVerdict::risky);
  CHECK(verdict(lost + 0.01, 0) == MemoryVerdict::too_big);
  CHECK(to_text(verdict(80, 0)) == "risky");
  group.memory_limit = gibibytes(56);
  CHECK(verdict(56, 0) == MemoryVerdict::fits);
  CHECK(verdict(56.1, 0) == MemoryVerdict::risky);
  group.usable_memory = gibibytes(48);  // as of a card of 50
  CHECK(verdict(safe * 50 / 80 - 0.01, 0) == MemoryVerdict::fits);
  CHECK(verdict(safe * 50 / 80 + 0.01, 0) == MemoryVerdict::risky);
  CHECK(verdict(lost * 50 / 80 + 0.01, 0) == MemoryVerdict::too_big);
}

}  // namespace orrery
