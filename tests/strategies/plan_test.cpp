// Plan files come back equal, and plans that cannot run say why.
#include "strategies/plan.hpp"

#include <functional>
#include <random>
#include <string>

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/replaced.hpp"
#include "tests/strategies/plan_fixture.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  int roll(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<unsigned>(high - low + 1));
  }
  bool coin() { return roll(0, 1) == 1; }

 private:
  std::mt19937 engine_;  // its output is the same everywhere, that of distributions is not
};

std::string random_name(Dice& dice) {
  const std::string characters = "abz019.-_/ :#'\"\\\t{}[]&*!|>%@`,~\n\x01";
  std::string name;
  for (int length = dice.roll(1, 12); length > 0; --length)
    name += characters[static_cast<std::size_t>(dice.roll(0, static_cast<int>(characters.size()) - 1))];
  return name;
}

ParallelStrategy random_strategy(Dice& dice) {
  ParallelStrategy strategy;
  strategy.pipeline = dice.roll(1, 6);
  strategy.data = dice.roll(1, 64);
  strategy.context = dice.roll(1, 8);
  strategy.expert = dice.roll(1, 8);
  strategy.chunks = dice.roll(1, 4);
  strategy.micro_batch = dice.roll(1, 16);
  strategy.global_batch = dice.roll(1, 1 << 20);
  strategy.sequence = dice.roll(1, 1 << 20);
  strategy.type = static_cast<DataType>(dice.roll(0, 4));
  strategy.schedule = static_cast<ScheduleKind>(dice.roll(0, 5));
  strategy.transfers = static_cast<TransferMode>(dice.roll(0, 2));
  strategy.sequence_parallel = dice.coin();
  strategy.distributed_optimizer = dice.coin();
  strategy.optimizer_instances = dice.roll(1, 8);
  strategy.reduce_each_microbatch = dice.coin();
  strategy.flash_attention = dice.coin();
  if (dice.coin()) strategy.tensor_overlap = dice.coin();
  strategy.optimizer_offload = dice.roll(0, 7) / 7.0;
  strategy.recompute = {static_cast<RecomputeGranularity>(dice.roll(0, 2)),
                        static_cast<RecomputeMethod>(dice.roll(0, 1)), dice.roll(1, 12)};
  for (const RecomputeModule module : kRecomputeModules)
    if (dice.coin()) strategy.recompute.modules.add(module);
  if (dice.coin()) strategy.expert_tensor = dice.roll(1, 8);
  for (int i = 0; i < strategy.pipeline; ++i) strategy.stages.push_back({dice.roll(0, 3), dice.roll(1, 16)});
  if (dice.coin()) {  // unlike replicas; the stages are on the groups of the first
    const bool open = dice.coin();
    for (int left = strategy.data; left > 0; left -= strategy.replicas.back().count) {
      ReplicaKind kind{dice.roll(1, left), {}, open ? 0 : dice.roll(1, 1 << 20)};
      for (int i = 0; i < strategy.pipeline; ++i) kind.groups.push_back(dice.roll(0, 3));
      strategy.replicas.push_back(kind);
    }
    strategy.stages = strategy.of_kind(0).stages;
  }
  for (int i = 0; i < strategy.part_count(); ++i)
    strategy.parts.push_back({dice.roll(0, 99), dice.roll(0, 9)});
  mark_ends(strategy.parts);
  for (int i = dice.roll(0, 4); i > 0; --i) strategy.nodes.push_back(dice.roll(0, 99));
  strategy.order = static_cast<RankOrder>(dice.roll(0, 5));
  for (int i = dice.roll(0, 4); i > 0; --i) strategy.hosts.push_back(dice.roll(0, 99));
  return strategy;
}

std::string reason_of(const ModelSpec& model, const ParallelStrategy& strategy) {
  const auto answer = check_shape(model, strategy, two_kinds());
  if (!answer) return "feasible";
  CHECK(answer->kind == InfeasibleKind::shape);
  return answer->reason;
}

std::string error_of(const std::string& yaml) {
  return input_error_parts([&] { parse_plan(yaml, "plan.yaml"); });
}

}  // namespace

TEST_CASE("a plan written as YAML reads back equal") {
  Dice dice(20260);
  for (int i = 0; i < 500; ++i) {
    const Plan plan{random_name(dice), random_name(dice), random_strategy(dice)};
    const std::string yaml = to_yaml(plan);
    INFO(yaml);
    REQUIRE(parse_plan(yaml, "plan.yaml") == plan);
  }
}

TEST_CASE("modules to recompute are a list or one, and absent those of Megatron-LM") {
  const std::string plan =
      "model: m\ncluster: c\nglobal_batch: 8\nsequence: 64\nnodes: [1]\nstages: [{tensor: 8}]\n"
      "parts: [[0, 32]]\nrecompute: {granularity: selective";
  const auto modules = [&](const std::string& more) {
    return parse_plan(plan + more + "}\n", "plan.yaml").strategy.recompute.modules;
  };
  CHECK(modules("") == RecomputeModules{RecomputeModule::core_attn});
  CHECK(modules(", modules: mlp") == RecomputeModules{RecomputeModule::mlp});
  CHECK(modules(", modules: [moe_act, layernorm]") ==
        RecomputeModules{RecomputeModule::layernorm, RecomputeModule::moe_act});
  CHECK(contains(error_of(plan + ", modules: [moe_akt]}\n"), "'moe_akt'"));
}

TEST_CASE("a plan file needs only what has no default") {
  const Plan plan = parse_plan(
      "model: llama2-7b\ncluster: c.yaml\nglobal_batch: 8\nsequence: 4096\nnodes: [1]\nstages: [{tensor: "
      "8}]\n"
      "parts: [[0, 32]]\n",
      "plan.yaml");
  ParallelStrategy expected;
  expected.global_batch = 8;
  expected.sequence = 4096;
  expected.nodes = {1};
  expected.stages = {{0, 8}};
  expected.parts = {{0, 32}};
  CHECK(plan.strategy == expected);
}

TEST_CASE("messages of a plan file that does not say how they travel go as its schedule's do") {
  const auto transfers = [](const std::string& lines) {
    return parse_plan(
               "model: m\ncluster: c\nglobal_batch: 8\nsequence: 64\nnodes: [1]\nstages: [{tensor: "
               "8}]\nparts: [[0, 32]]\n" +
                   lines,
               "plan.yaml")
        .strategy.transfers;
  };
  for (const char* schedule : {"gpipe", "1f1b"})
    CHECK(transfers("schedule: " + std::string(schedule) + "\n") == TransferMode::blocking);
  for (const char* schedule : {"interleaved", "zb-h1", "zb-h2", "zb-v"})
    CHECK(transfers("schedule: " + std::string(schedule) + "\n") == TransferMode::overlapped);
  CHECK(transfers("schedule: interleaved\ntransfers: blocking\n") == TransferMode::blocking);
}

TEST_CASE("a wrong plan file names the line and the nearest key") {
  const std::string yaml = to_yaml({"llama2-70b", "c.yaml", llama70b_on_two_kinds()});
  CHECK(contains(error_of(yaml + "context_parallel: 2\n"), "context_parallel"));
  CHECK(contains(error_of(test::replaced(yaml, "schedule: 1f1b", "schedule: 1f1")), "did you mean '1f1b'"));
  CHECK(contains(error_of(test::replaced(yaml, "type: bf16", "type: int8")), "bf16"));
  CHECK(contains(error_of(test::replaced(yaml, "data: 2", "data: 0")), "plan.yaml:3"));
  CHECK(contains(error_of(test::replaced(yaml, "data: 2", "data: 1e9")), "plan.yaml:3"));
  CHECK(contains(error_of(test::replaced(yaml, "chunks: 1", "chunks: 2")), "8 parts"));
  CHECK(contains(error_of(test::replaced(yaml, "[0, 26]", "[0, 26, 1]")), "[first layer, number of layers]"));
  CHECK(contains(error_of("- a\n- b\n"), "plan.yaml"));
}

TEST_CASE("a plan with unequal parts on two kinds of GPU is feasible") {
  CHECK(reason_of(read_model("llama2-70b"), llama70b_on_two_kinds()) == "feasible");
}

TEST_CASE("a plan that cannot run says why, with the numbers") {
  struct Row {
    const char* says;
    std::function<void(ParallelStrategy&)> damage;
  };
  const std::vector<Row> rows{
      {"the sequence has 0 tokens", [](auto& s) { s.sequence = 0; }},
      {"data 0", [](auto& s) { s.data = 0; }},
      {"micro batch of 0", [](auto& s) { s.micro_batch = 0; }},
      {"4 ranks and GPUs are named for 3", [](auto& s) { s.stages.pop_back(); }},
      {"nodes are named for 1 groups; the cluster has 2", [](auto& s) { s.nodes.pop_back(); }},
      {"node group 2 is not among the cluster's 2", [](auto& s) { s.stages[1].group = 2; }},
      {"3 tensor-parallel ways do not fit the 8 GPUs of a node of group fast",
       [](auto& s) { s.stages[0].tensor = 3; }},
      {"GPU fast-gpu of group fast has no fp8", [](auto& s) { s.type = DataType::fp8; }},
      {"5 nodes of group fast are not between 0 and 4", [](auto& s) { s.nodes[0] = 5; }},
      {"the stages on group slow need 32 GPUs; 3 nodes have 24", [](auto& s) { s.nodes[1] = 3; }},
      {"a part begins at layer 27 where layer 26 is next", [](auto& s) { s.parts[1].first = 27; }},
      {"the parts hold 79 layers; the model has 80", [](auto& s) { s.parts[3].count = 13; }},
      {"has 0 layers; at least 1", [](auto& s) { s.parts[1].count = 0, s.parts[2].first = 26; }},
      {"the global batch of 63 sequences is not a multiple of 2 replicas x micro batch 1",
       [](auto& s) { s.global_batch = 63; }},
      {"not a multiple of twice the 3 context-parallel ways",
       [](auto& s) {
         s.context = 3, s.data = 1, s.stages = {{0, 2}, {0, 2}, {1, 2}, {1, 2}};
       }},
      {"experts to spread over 2", [](auto& s) { s.expert = 2; }},
      {"recompute has 1000 layers; the largest part has",
       [](auto& s) {
         s.recompute = {RecomputeGranularity::full, RecomputeMethod::block, 1000};
       }},
      {"3 expert-parallel ways do not divide the 2 context ranks and replicas",
       [](auto& s) { s.expert = 3; }},
      {"schedule: 1f1b", [](auto& s) { s.chunks = 2, s.parts = equal_parts(8, 80); }},
  };
  const ModelSpec model = read_model("llama2-70b");
  for (const Row& row : rows) {
    ParallelStrategy strategy = llama70b_on_two_kinds();
    row.damage(strategy);
    const std::string reason = reason_of(model, strategy);
    INFO(reason);
    CHECK(contains(reason, row.says));
  }
}

TEST_CASE("more parts than layers is said so") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  const ModelSpec model = parse_model_blocks(
      "name: x\nsequence: 64\nvocabulary: 100\nhidden: 64\nblocks:\n"
      "  - {repeat: 1, hidden: 64, heads: 8, ffn: 64, mlp: gelu, norm: layer_norm}\n",
      "x.yaml");
  CHECK(contains(reason_of(model, strategy),
                 "4 pipeline ranks with 1 parts each need 4 layers; the model has 1"));
}

TEST_CASE("the embedding and the loss can be parts of their own, other parts have layers") {
  const ModelSpec model = read_model("llama2-70b");
  ParallelStrategy strategy = llama70b_on_two_kinds();
  const auto reason_with = [&](const std::vector<LayerRange>& parts) {
    strategy.parts = parts;
    return reason_of(model, strategy);
  };
  CHECK(reason_with({{0, 0}, {0, 40}, {40, 40}, {80, 0}}) == "feasible");
  CHECK(contains(reason_with({{0, 40}, {40, 0}, {40, 20}, {60, 20}}), "has 0 layers"));
}

TEST_CASE("widths must split over the tensor ways") {
  // GPT-2 XL has 25 heads.
  ParallelStrategy strategy = llama70b_on_two_kinds();
  strategy.sequence = 1024;
  strategy.parts = equal_parts(4, 48);
  CHECK(contains(reason_of(read_model("gpt2-1.5b"), strategy), "25 attention heads are not a multiple of 8"));
  // Beyond its table of 1024 positions.
  strategy.sequence = 2048;
  CHECK(contains(reason_of(read_model("gpt2-1.5b"), strategy), "table of 1024 positions"));
  // Llama-2 70B has 8 key-value heads: 16 ways hold each twice.
  ParallelStrategy wide = llama70b_on_two_kinds();
  wide.data = 1;
  wide.stages = {{0, 16}, {0, 16}, {1, 16}, {1, 16}};
  CHECK(reason_of(read_model("llama2-70b"), wide) == "feasible");
  // Sequence parallelism needs tokens for each way.
  ParallelStrategy odd = llama70b_on_two_kinds();
  odd.sequence = 4097;
  CHECK(contains(reason_of(read_model("llama2-70b"), odd), "sequence parallelism splits 4097 tokens"));
}

TEST_CASE("experts must split over the expert ways") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  strategy.parts = equal_parts(4, 32);
  strategy.expert = 2;
  CHECK(reason_of(read_model("mixtral-8x7b"), strategy) == "feasible");
}

TEST_CASE("tensor ranks have experts of their own where expert ways go over all of them") {
  ParallelStrategy strategy = llama70b_on_two_kinds();  // 8 tensor ways, 2 replicas
  strategy.parts = equal_parts(4, 32);
  const ModelSpec model = read_model("mixtral-8x7b");
  strategy.expert_tensor = 1;
  strategy.expert = 8;
  CHECK(reason_of(model, strategy) == "feasible");
  CHECK(strategy.replicas_sharing_experts() == 1);
  strategy.expert = 4;
  CHECK(contains(reason_of(model, strategy),
                 "4 expert-parallel ways are not a multiple of the 8 tensor ranks"));
  strategy.expert = 8;
  strategy.expert_tensor = 2;
  CHECK(contains(reason_of(model, strategy), "expert_tensor is 2 and must be 1 or the 8"));
  strategy.expert_tensor = 1;
  strategy.sequence_parallel = false;
  CHECK(contains(reason_of(model, strategy), "need sequence parallelism"));
}

TEST_CASE("optimizer instances split the copies of weights, and of experts, into equal sets") {
  ParallelStrategy strategy = llama70b_on_two_kinds();  // two replicas
  const ModelSpec model = read_model("llama2-70b");
  strategy.context = 2;
  for (StageDevices& stage : strategy.stages) stage.tensor = 4;
  strategy.optimizer_instances = 2;
  CHECK(contains(reason_of(model, strategy), "optimizer_instances is 2 without the distributed optimizer"));
  strategy.distributed_optimizer = true;
  CHECK(reason_of(model, strategy) == "feasible");
  CHECK(strategy.copies_of_instance() == 2);
  strategy.optimizer_instances = 3;
  CHECK(contains(reason_of(model, strategy), "optimizer_instances is 3 and must split the 4 copies"));
  strategy.optimizer_instances = 4;
  CHECK(contains(reason_of(model, strategy), "into equal sets of two or more"));
  strategy.optimizer_instances = 2;
  strategy.expert = 4;
  const ModelSpec mixture = read_model("mixtral-8x7b");
  strategy.parts = equal_parts(4, mixture.layer_count());
  CHECK(contains(reason_of(mixture, strategy), "optimizer_instances is 2 and must divide the 1 copies"));
}

TEST_CASE(
    "parameters are gathered beside forwards where gradients are reduced beside backwards, and sharded") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  const ModelSpec model = read_model("llama2-70b");
  strategy.overlap_param_gather = strategy.distributed_optimizer = true;
  strategy.overlap_grad_reduce = false;
  CHECK(contains(reason_of(model, strategy), "overlap_param_gather is true without"));
  strategy.overlap_grad_reduce = true;
  CHECK(reason_of(model, strategy) == "feasible");
  strategy.distributed_optimizer = false;
  CHECK(contains(reason_of(model, strategy), "overlap_param_gather is true without"));
}

TEST_CASE("gradients are reduced every microbatch by one stage alone, and nothing is sharded") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  const ModelSpec model = read_model("llama2-70b");
  REQUIRE(strategy.pipeline > 1);
  strategy.reduce_each_microbatch = true;
  CHECK(contains(reason_of(model, strategy), "reduce_each_microbatch is true of 4 pipeline ranks; it needs"));
  strategy.pipeline = 1;
  strategy.stages = {{0, 8}};
  strategy.parts = {{0, 80}};
  CHECK(reason_of(model, strategy) == "feasible");
  strategy.distributed_optimizer = true;
  CHECK(contains(reason_of(model, strategy), "reduce_each_microbatch is true with a distributed optimizer"));
}

TEST_CASE("fully sharded weights have a sharded optimizer") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  const ModelSpec model = read_model("llama2-70b");
  strategy.fully_sharded = true;
  CHECK(contains(reason_of(model, strategy), "fully_sharded is true without the distributed optimizer"));
  strategy.distributed_optimizer = true;
  CHECK(reason_of(model, strategy) == "feasible");
}

TEST_CASE("modules that a model does not have are not recomputed") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  const ModelSpec model = read_model("llama2-70b");
  strategy.recompute.granularity = RecomputeGranularity::selective;
  CHECK(reason_of(model, strategy) == "feasible");
  strategy.recompute.modules = {RecomputeModule::moe_act};
  CHECK(contains(reason_of(model, strategy), "moe_act is recomputed in a model without experts"));
  strategy.recompute.modules = {RecomputeModule::mla_up_proj};
  CHECK(
      contains(reason_of(model, strategy), "mla_up_proj is recomputed in a model without latent attention"));
}

TEST_CASE("the plans that come with the program fit their models and clusters") {
  for (const char* name : {"amp-gpt2-usual", "amp-transgan-usual"}) {
    INFO(name);
    const Plan plan = read_plan(ORRERY_SOURCE_DIR "/strategies/plans/" + std::string(name) + ".yaml");
    CHECK_FALSE(check_shape(read_model(plan.model), plan.strategy, read_cluster(plan.cluster)));
  }
}
