// Words of published tables, in the spellings that these have.
#include "sim/measured_words.hpp"

#include "tests/catch.hpp"
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

}  // namespace

TEST_CASE("sharding has one meaning however it is written") {
  using Row = std::pair<const char*, Sharding>;
  const auto [text, meaning] = GENERATE(values<Row>({{"ZeRO-1", Sharding::optimizer},
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
                                                     {"DDP", Sharding::none}}));
  CHECK(said_sharding(text) == meaning);
}

TEST_CASE("switches and recomputation have one meaning however they are written") {
  for (const char* text : {"yes", "Yes (SDPA)", "TRUE", "1", "on", "FlashAttention-2", "FA3"})
    CHECK(said_switch(text) == true);
  for (const char* text : {"no", "None", "false", "0", "off", "unfused"}) CHECK(said_switch(text) == false);
  for (const char* text : {"full", "yes", "Activation checkpointing", "gradient checkpointing", "True"})
    CHECK(said_recompute(text) == RecomputeGranularity::full);
  for (const char* text : {"none", "no", "False", "no activation checkpointing"})
    CHECK(said_recompute(text) == RecomputeGranularity::none);
  for (const char* text : {"selective", "Selective: moe", "SAC"})
    CHECK(said_recompute(text) == RecomputeGranularity::selective);
  CHECK_FALSE(said_sharding("tensor"));
  CHECK_FALSE(said_switch("maybe"));
  CHECK_FALSE(said_recompute("sometimes"));
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
  CHECK(strategy("activation checkpointing,1.5,,ok,,,").recompute.granularity == RecomputeGranularity::full);
  CHECK(unmapped(runs("2,1,1,8", "sometimes,1.5,,ok,,,").front()) ==
        "recompute 'sometimes', not none, full or selective");
  CHECK(unmapped(runs("2,1,1,8", "none,1.5,,ok,halves,,").front()) ==
        "optimizer_sharding 'halves', not ZeRO-1, ZeRO-2, ZeRO-3, FSDP, HSDP or no");
  CHECK(unmapped(runs("2,1,1,8", "none,1.5,,ok,,perhaps,").front()) ==
        "sequence_parallel 'perhaps', not yes or no");
  CHECK(unmapped(runs("2,1,1,8", "none,1.5,,ok,,,a bit").front()) == "flash_attn 'a bit', not yes or no");
  for (const char* blank : {"", "-", "n/a", "Unknown", "?"})
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
  CHECK(unmapped(runs("2,,1,", "none,1.5,,ok,,,").front()) == "tensor or pipeline ways not given");
  CHECK(unmapped(runs("3,,1,4", "none,1.5,,ok,,,").front()) == "tensor or pipeline ways not given");
}

}  // namespace orrery
