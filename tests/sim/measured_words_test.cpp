// Words of published tables, in the spellings that these have.
#include "sim/measured/measured_words.hpp"

#include <map>
#include <set>

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {
namespace {

using test::mapped;
using test::runs_of;
using test::unmapped;

// 24 layers of 2048 on two nodes of eight; `ways` is tensor to replicas, `end` what follows.
std::vector<MeasuredRun> runs(const std::string& ways, const std::string& end) {
  return runs_of(
      "a,g,A100,80,8,16,,Megatron-LM,GPT,24,2048,16,51200,2048,fp16,64,1," + ways + "," + end + "\n",
      ",optimizer_sharding,sequence_parallel,flash_attn");
}

std::optional<RecomputeGranularity> granularity(const std::string& text) {
  const auto said = said_recompute(text);
  return said ? std::optional(said->recompute.granularity) : std::nullopt;
}

// The cells of a column of the classics, each once.
std::set<std::string> cells_of_classics(const char* column) {
  std::set<std::string> cells;
  for (const MeasuredRun& run : classic_runs()) cells.insert(run.text(column));
  cells.erase("");
  return cells;
}

template <class Meaning>
using Meanings = std::map<Meaning, std::set<std::string>>;

template <class Meaning, class Read>
Meanings<Meaning> meanings_of_classics(const char* column, Read read) {
  Meanings<Meaning> found;
  for (const std::string& cell : cells_of_classics(column)) {
    INFO(column << " " << cell);
    const auto meaning = read(cell);
    REQUIRE(meaning);
    found[*meaning].insert(cell);
  }
  return found;
}

}  // namespace

TEST_CASE("every word of the classics has its meaning") {
  CHECK(meanings_of_classics<Sharding>("optimizer_sharding", said_sharding) ==
        Meanings<Sharding>{
            {Sharding::none, {"DDP", "no", "none"}},
            {Sharding::optimizer,
             {"ZeRO-1", "distributed optimizer", "distributed optimizer + optimizer offload",
              "distributed optimizer + optimizer offload (fraction 0.25)",
              "distributed optimizer + optimizer offload (fraction 0.50)",
              "distributed optimizer + optimizer offload (fraction 0.75)", "zero-1"}},
            {Sharding::gradients,
             {"FSDP2 (ZeRO-2)", "FSDP2 (ZeRO-2), experts replicated", "FSDP2 (ZeRO-2), experts sharded",
              "FSDP2 (ZeRO-2; experts of one rank not sharded where ep > 1)", "FSDP SHARD_GRAD_OP (ZeRO-2)",
              "ZeRO-2", "ZeRO-2 + optimizer offload", "ZeRO-2 (FSDP2, reshard_after_forward=False)"}},
            {Sharding::weights,
             {"FSDP", "FSDP (FULL_SHARD)", "FSDP (optim_grads_params)", "FSDP FULL_SHARD",
              "FSDP FULL_SHARD (ZeRO-3)", "FSDP2", "ZeRO-3", "ZeRO-3 (FSDP2 fully_shard)",
              "ZeRO-3 + optimizer offload"}},
            {Sharding::weights_in_node, {"HSDP"}}});
  CHECK(meanings_of_classics<bool>("sequence_parallel", said_switch) ==
        Meanings<bool>{{false, {"no"}}, {true, {"yes"}}});
  CHECK(meanings_of_classics<bool>("flash_attn", said_switch) ==
        Meanings<bool>{{false, {"no"}},
                       {true,
                        {"FlashAttention-1",
                         "FlashAttention-1 (Triton)",
                         "cuDNN",
                         "xFormers",
                         "FlashAttention-2",
                         "FlashAttention-2 (Triton)",
                         "flash_attn 3",
                         "yes",
                         "yes (2)",
                         "yes (CK)",
                         "yes (CK v3)",
                         "yes (FlashAttention-2)",
                         "yes (FlashAttention-3)",
                         "yes (FlashAttention-4)",
                         "yes (FlexAttention)",
                         "yes (SDPA memory-efficient kernel)",
                         "yes (SDPA with a padding mask)",
                         "yes (SDPA)",
                         "yes (Triton)",
                         "yes (attention_backend flash)",
                         "yes (cuDNN)",
                         "yes (scaled_dot_product_attention)",
                         "yes (xformers)"}}});
  CHECK(meanings_of_classics<DataType>("precision", said_type) ==
        Meanings<DataType>{
            {DataType::fp32, {"fp32"}},
            {DataType::tf32, {"tf32"}},
            {DataType::fp16,
             {"fp16", "fp16 autocast", "fp16 mixed", "fp16 pure", "fp16/bf16 mixed", "pure fp16"}},
            {DataType::bf16,
             {"BF16", "bf16", "bf16 autocast", "bf16 mixed", "bf16 mixed, fp32 gradients",
              "bf16, bf16 gradients", "pure bf16 (bf16 master weights, bf16 gradients, bf16 moments)",
              "bf16, bf16 gradients and moments", "bf16, bf16 moments", "bf16-true", "pure bf16",
              "bf16, gradients and moments in bf16, fp32 main parameters (precision-aware optimizer)"}},
            {DataType::fp8,
             {"FP8", "FP8-CS", "MXFP8", "MXFP8, bf16-true", "bf16, fp8 current scaling on dense layers",
              "bf16; routed experts' grouped GEMMs in MXFP8", "fp8",
              "fp8 (delayed scaling, hybrid; bf16 storage)", "fp8 (hybrid, delayed scaling), bf16 gradients",
              "fp8 (e4m3, delayed scaling), bf16 gradients",
              "fp8 (TE delayed scaling, hybrid), bf16-true weights, gradients and moments",
              "fp8 delayed scaling (hybrid)", "fp8 blockwise", "fp8 hybrid", "fp8 tensorwise",
              "fp8, bf16 moments", "fp8, bf16-true", "mxfp8"}},
            {DataType::fp4, {"NVFP4", "fp4", "mxfp4", "nvfp4"}}});
  for (const std::string& cell : cells_of_classics("recompute")) {
    INFO(cell);
    const auto said = said_recompute(cell);
    REQUIRE(said);
    CHECK(cell.starts_with(to_text(said->recompute.granularity)));
    CHECK(said->layers.has_value() == (cell.find("layers") != std::string::npos));
    const std::size_t colon = cell.find(": ");
    const RecomputeModules modules = said->recompute.modules;
    if (colon == std::string::npos) CHECK(modules == RecomputeModules());
    for (const RecomputeModule module : kRecomputeModules) {
      if (colon == std::string::npos) continue;
      const bool named =
          (cell.substr(colon + 1) + " ").find(" " + std::string(to_text(module)) + " ") != std::string::npos;
      CHECK(modules.has(module) == named);
    }
  }
}

TEST_CASE("sharding has one meaning however it is written") {
  using Row = std::pair<const char*, Sharding>;
  const auto [text, meaning] =
      GENERATE(values<Row>({{"ZeRO-1", Sharding::optimizer},
                            {"zero stage 1", Sharding::optimizer},
                            {"use-distributed-optimizer", Sharding::optimizer},
                            {"ZeRO2", Sharding::gradients},
                            {"FSDP SHARD_GRAD_OP", Sharding::gradients},
                            {"zero3", Sharding::weights},
                            {"ZeRO Stage 3", Sharding::weights},
                            {"FSDP FULL_SHARD", Sharding::weights},
                            {"fsdp2", Sharding::weights},
                            {"HSDP", Sharding::weights_in_node},
                            {"FSDP HYBRID_SHARD", Sharding::weights_in_node},
                            {"no", Sharding::none},
                            {"no distributed optimizer", Sharding::none},
                            {"use_distributed_optimizer=False", Sharding::none},
                            {"ZeRO-1: off", Sharding::none},
                            {"zero_stage=0", Sharding::none},
                            {"not sharded", Sharding::none},
                            {"FSDP NO_SHARD", Sharding::none},
                            {"ZeRO-1 (no ZeRO-3)", Sharding::optimizer},
                            {"OverlappedDistributedOptimizer", Sharding::optimizer},
                            {"ZeRO-2 not 3", Sharding::gradients},
                            {"FSDP (reshard_after_forward=False)", Sharding::gradients},
                            {"ZeRO-3 without offload", Sharding::weights},
                            {"DDP, no ZeRO", Sharding::none},
                            {"DDP", Sharding::none}}));
  CHECK(said_sharding(text) == meaning);
}

TEST_CASE("switches and recomputation have one meaning however they are written") {
  for (const char* text : {"yes", "Yes (SDPA)", "TRUE", "1", "on", "FlashAttention-2", "FA3"})
    CHECK(said_switch(text) == true);
  for (const char* text :
       {"no", "None", "false", "0", "off", "unfused", "FlashAttention: no", "flash_attn=False",
        "FlashAttention disabled", "without flash", "not used", "sp=0"})
    CHECK(said_switch(text) == false);
  for (const char* text : {"full", "yes", "Activation checkpointing", "gradient checkpointing", "True",
                           "full, no selective", "recompute_granularity=full"})
    CHECK(granularity(text) == RecomputeGranularity::full);
  for (const char* text :
       {"none", "no", "False", "no activation checkpointing", "gradient_checkpointing=False",
        "activation checkpointing: off", "checkpointing disabled", "ckpt: no", "none (full OOMs)",
        "without activation checkpointing", "no (flash attention only)", "remat_policy minimal_with_context"})
    CHECK(granularity(text) == RecomputeGranularity::none);
  for (const char* text :
       {"selective", "Selective: moe", "SAC", "selective (not full)", "remat_policy=minimal"})
    CHECK(granularity(text) == RecomputeGranularity::selective);
}

TEST_CASE("a cell that can mean more than one thing is not read") {
  for (const char* text : {"tensor", "normal", "node-local", "FSDP: no", "without ZeRO-3"})
    CHECK_FALSE(said_sharding(text));
  for (const char* text : {"maybe", "normal", "only in the decoder"}) CHECK_FALSE(said_switch(text));
  for (const char* text : {"sometimes", "normal", "not full", "only attention", "one in two layers",
                           "full attention", "partial full", "selective/full", "full except last 2 layers",
                           "full activation checkpointing: off", "full, every 2 layers", "full (8)",
                           "full (attention)", "full, 1 layer", "selective: mpl", "selective (2 layers)"})
    CHECK_FALSE(said_recompute(text));
  CHECK_FALSE(said_type("fp8 disabled"));
}

TEST_CASE("a precision has one meaning however it is written") {
  using Row = std::pair<const char*, DataType>;
  const auto [text, meaning] = GENERATE(values<Row>({{"NVFP4", DataType::fp4},
                                                     {"FP8-CS (FP8-MX)", DataType::fp8},
                                                     {"float8", DataType::fp8},
                                                     {"fp8 and bf16", DataType::fp8},
                                                     {"fp16/bf16 mixed", DataType::fp16},
                                                     {"float16", DataType::fp16},
                                                     {"16-mixed", DataType::fp16},
                                                     {"bfloat16", DataType::bf16},
                                                     {"bf16-mixed", DataType::bf16},
                                                     {"BF16", DataType::bf16},
                                                     {"TF32", DataType::tf32},
                                                     {"float32", DataType::fp32}}));
  CHECK(said_type(text) == meaning);
  CHECK_FALSE(said_type("int8"));
}

TEST_CASE("words reach the plan, and one that says nothing is not taken for no") {
  const auto strategy = [](const std::string& end) {
    return mapped(runs("2,1,1,8", end).front()).strategies.front();
  };
  const ParallelStrategy plain = strategy("none,1.5,,ok,,,");
  CHECK_FALSE(plain.distributed_optimizer);
  CHECK(strategy("none,1.5,,ok,zero1,,").distributed_optimizer);
  CHECK(strategy("none,1.5,,ok,zero3,,").fully_sharded);
  CHECK(strategy("none,1.5,,ok,,True,").sequence_parallel);
  CHECK(strategy("none,1.5,,ok,,,FA2").flash_attention);
  CHECK(strategy("none,1.5,,ok,,,no (SDPA memory-efficient kernel)").flash_attention);
  CHECK_FALSE(strategy("none,1.5,,ok,,,no (SDPA math backend)").flash_attention);
  CHECK(strategy("activation checkpointing,1.5,,ok,,,").recompute.granularity == RecomputeGranularity::full);
  CHECK(
      contains(unmapped(runs("2,1,1,8", "sometimes,1.5,,ok,,,").front()),
               "recompute 'sometimes', not none, full, full of N layers by block or uniform, or selective"));
  for (const char* unclear : {"full (7 of 9 layers)", "\"full, 25 layers\""})
    CHECK(contains(unmapped(runs("2,1,1,8", std::string(unclear) + ",1.5,,ok,,,").front()),
                   "of which layers?"));
  for (const char* offloaded : {"ZeRO-3 + offload", "ZeRO-2 offload", "ZeRO-3 (CPU offload)"})
    CHECK(contains(unmapped(runs("2,1,1,8", std::string("none,1.5,,ok,") + offloaded + ",,").front()),
                   "offloaded to the host"));
  // The optimizer alone is a switch of plans.
  for (const char* optimizer : {"ZeRO-3 + optimizer offload", "ZeRO-2, offload_optimizer: cpu"}) {
    CHECK(strategy(std::string("none,1.5,,ok,\"") + optimizer + "\",,").optimizer_offload == 1);
    CHECK(strategy(std::string("none,1.5,,ok,\"") + optimizer + "\",,").distributed_optimizer);
  }
  CHECK(strategy("none,1.5,,ok,ZeRO-3 without optimizer offload,,").optimizer_offload == 0);
  for (const char* part :
       {"ZeRO-1 + optimizer offload (fraction 0.25)", "ZeRO-1 + optimizer offload (ratio .25)"})
    CHECK(strategy("none,1.5,,ok," + std::string(part) + ",,").optimizer_offload == 0.25);
  CHECK(strategy("full (12 of 24 layers),1.5,,ok,,,").recompute ==
        Recompute{RecomputeGranularity::full, RecomputeMethod::block, 12});
  CHECK(unmapped(runs("2,1,1,8", "none,1.5,,ok,halves,,").front()) ==
        "optimizer_sharding 'halves', not ZeRO-1, ZeRO-2, ZeRO-3, FSDP, HSDP or no");
  CHECK(unmapped(runs("2,1,1,8", "none,1.5,,ok,,perhaps,").front()) ==
        "sequence_parallel 'perhaps', not yes or no");
  CHECK(unmapped(runs("2,1,1,8", "none,1.5,,ok,,,a bit").front()) == "flash_attn 'a bit', not yes or no");
  for (const char* blank : {"", "-", "n/a", "Unknown", "?", "not stated", "not reported"})
    CHECK(strategy(std::string(blank) + ",1.5,,ok,,,").recompute == plain.recompute);
}

TEST_CASE("ways that a row leaves out are what its GPUs and the other ways leave") {
  const auto ways = [](const std::string& given) {
    const ParallelStrategy strategy = mapped(runs(given, "none,1.5,,ok,,,").front()).strategies.front();
    return std::array{strategy.tensor(0), strategy.pipeline, strategy.data};
  };
  CHECK(ways("2,,1,4") == std::array{2, 2, 4});
  CHECK(ways(",4,1,2") == std::array{2, 4, 2});
  CHECK(ways(",,1,16") == std::array{1, 1, 16});
  CHECK(ways("2,4,1,") == std::array{2, 4, 2});
  CHECK(unmapped(runs("3,,1,4", "none,1.5,,ok,,,").front()) ==
        "no ways of its GPUs that its layers and batch divide by");
}

TEST_CASE("ways that stay open are all that GPUs, layers and batch allow, the smallest parts first") {
  const MeasuredPlan plan = mapped(runs("2,,1,", "none,1.5,,ok,,,").front());
  std::vector<std::array<int, 3>> ways;
  for (const ParallelStrategy& one : plan.strategies) {
    const std::array<int, 3> own{one.tensor(0), one.pipeline, one.data};
    if (ways.empty() || ways.back() != own) ways.push_back(own);
  }
  // 16 GPUs, two tensor ways, 24 layers: 8, 4, 2 or 1 stages.
  CHECK(ways == std::vector<std::array<int, 3>>{{2, 8, 1}, {2, 4, 2}, {2, 2, 4}, {2, 1, 8}});
  CHECK(std::count(plan.assumptions.begin(), plan.assumptions.end(),
                   "pipeline ways: 1 to 8, of the fastest") == 1);
  CHECK(unmapped(runs("2,,1,", "none,,,OOM,,,").front()) == "tensor or pipeline ways not given");
  // Megatron-LM's sharded optimizer leaves them open, what shards weights has none.
  CHECK(mapped(runs("2,,1,", "none,1.5,,ok,ZeRO-1,,").front()).strategies.size() == 4);
  CHECK(mapped(runs("2,,1,", "none,1.5,,ok,ZeRO-3,,").front()).strategies.size() == 1);
}

}  // namespace orrery
