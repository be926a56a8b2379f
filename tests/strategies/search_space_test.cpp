#include "strategies/search_space.hpp"

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

namespace orrery {
namespace {

std::string error_of(const std::string& yaml) {
  return input_error([&] { parse_space(yaml, "space.yaml"); });
}

}  // namespace

TEST_CASE("every key of a search space is read") {
  const SearchSpace space = parse_space(R"(tensor_model_parallel_size: [2, 4]
context_parallel_size: [1, 8]
expert_model_parallel_size: [1, 2]
num_virtual_stages_per_pipeline_rank: [3]
micro_batch_size: [16, 32]
pipeline_model_parallel_size: 12
schedule: [gpipe, 1f1b, zb-h1, zb-h2, zb-v]
recompute_granularity: [none, selective, full]
recompute_modules: [core_attn, [moe_act, layernorm]]
expert_tensor_parallel_size: [1, 2]
recompute_method: [block, uniform]
recompute_num_layers: 1..2
sequence_parallel: [true]
use_distributed_optimizer: [false, true]
num_distributed_optimizer_instances: [1, 4]
use_megatron_fsdp: [true, false]
overlap_grad_reduce: true
overlap_param_gather: [true, false]
use_flash_attn: false
use_tp_pp_dp_mapping: [true, false]
tensor_by_group: false
mix_replicas: false
tp_comm_overlap: [false, true]
overlap_p2p_comm: [true, false]
optimizer_cpu_offload: [true, false]
optimizer_offload_fraction: [0.25, 1]
)",
                                        "space.yaml");
  SearchSpace expected;
  expected.tensor = {2, 4};
  expected.context = {1, 8};
  expected.expert = {1, 2};
  expected.expert_tensor = {1, 2};
  expected.chunks = {3};
  expected.micro_batch = {16, 32};
  expected.most_stages = 12;
  expected.schedules = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zb_h1,
                        ScheduleKind::zb_h2, ScheduleKind::zb_v};
  expected.recompute = {{RecomputeGranularity::none},
                        {RecomputeGranularity::selective},
                        {RecomputeGranularity::selective,
                         RecomputeMethod::uniform,
                         1,
                         {RecomputeModule::moe_act, RecomputeModule::layernorm}},
                        {RecomputeGranularity::full, RecomputeMethod::block, 1},
                        {RecomputeGranularity::full, RecomputeMethod::block, 2},
                        {RecomputeGranularity::full, RecomputeMethod::uniform, 1},
                        {RecomputeGranularity::full, RecomputeMethod::uniform, 2}};
  expected.overlap_grad_reduce = {true};
  expected.overlap_param_gather = {true, false};
  expected.flash_attention = {false};
  expected.sequence_parallel = {true};
  expected.distributed_optimizer = {false, true};
  expected.optimizer_instances = {1, 4};
  expected.fully_sharded = {true, false};
  expected.orders = {RankOrder::cp_pp_dp, RankOrder::cp_dp_pp};
  expected.tensor_by_group = false;
  expected.mix_replicas = false;
  expected.tensor_overlap = {false, true};
  expected.overlap_p2p = {true, false};
  expected.optimizer_offload = {0.25, 1.0, 0.0};
  CHECK(space == expected);
  const SearchSpace listed = parse_space("pipeline_model_parallel_size: [8, 1, 4]\n", "s");
  CHECK(listed.stages == std::vector{1, 4, 8});
  CHECK(listed.most_stages == 8);
  CHECK(parse_space("pipeline_model_parallel_size: 2\n", "s", listed).stages.empty());
  CHECK(parse_space("overlap_grad_reduce: auto\n", "s", expected).overlap_grad_reduce ==
        std::vector<std::optional<bool>>{std::nullopt});
  CHECK(parse_space("optimizer_cpu_offload: [false, true]\n", "s").optimizer_offload ==
        std::vector{0.0, 1.0});
}

TEST_CASE("what a search space does not name keeps its default") {
  SearchSpace expected;
  expected.tensor = {4};
  CHECK(parse_space("tensor_model_parallel_size: 4\n", "space.yaml") == expected);
  CHECK(parse_space("{}\n", "space.yaml") == SearchSpace{});
}

TEST_CASE("auto leaves the recomputed layers of `block` open, and recomputes all of them by `uniform`") {
  const SearchSpace space = parse_space(
      "recompute_granularity: full\nrecompute_method: [uniform, block]\nrecompute_num_layers: auto\n",
      "space.yaml");
  CHECK(space.recompute == std::vector<Recompute>{{RecomputeGranularity::full, RecomputeMethod::uniform, 1},
                                                  {RecomputeGranularity::full, RecomputeMethod::block, 0}});
  CHECK(parse_space("recompute_num_layers: auto\n", "space.yaml").recompute ==
        std::vector<Recompute>{{}, {RecomputeGranularity::full, RecomputeMethod::block, 0}});
  // Without a granularity: none, or full in this way.
  CHECK(parse_space("recompute_method: block\nrecompute_num_layers: 3\n", "space.yaml").recompute ==
        std::vector<Recompute>{{}, {RecomputeGranularity::full, RecomputeMethod::block, 3}});
}

TEST_CASE("defaults suit the model: expert ways where it has experts that they divide") {
  CHECK(default_space(read_model("llama2-7b")) == SearchSpace{});
  CHECK(default_space(read_model("mixtral-8x7b")).expert == std::vector{1, 2, 4, 8});
  const SearchSpace more =
      parse_space("micro_batch_size: 2\n", "s", default_space(read_model("mixtral-8x7b")));
  CHECK(more.expert == std::vector{1, 2, 4, 8});
}

TEST_CASE("a single value stands for a list of one") {
  const SearchSpace space =
      parse_space("schedule: gpipe\nsequence_parallel: false\nmicro_batch_size: 3\n", "space.yaml");
  CHECK(space.schedules == std::vector{ScheduleKind::gpipe});
  CHECK(space.sequence_parallel == std::vector{false});
  CHECK(space.micro_batch == std::vector<std::int64_t>{3});
}

TEST_CASE("a wrong search space is told with its line") {
  struct Row {
    std::string yaml;
    std::vector<std::string> parts;
  };
  const auto row = GENERATE(values<Row>({
      {"\nmicro_batch_sizes: 1\n", {"space.yaml:2", "micro_batch_sizes", "did you mean 'micro_batch_size'"}},
      {"micro_batch_size: [1, 2, 1]\n", {"space.yaml:1", "each choice once"}},
      {"recompute_granularity: [full, full]\n", {"space.yaml:1", "each choice once"}},
      {"micro_batch_size: []\n", {"space.yaml:1", "at least one choice"}},
      {"optimizer_offload_fraction: [0.5]\n", {"space.yaml:1", "optimizer_cpu_offload with `true`"}},
      {"optimizer_cpu_offload: true\noptimizer_offload_fraction: 0\n", {"space.yaml:2", "above 0"}},
      {"optimizer_cpu_offload: true\noptimizer_offload_fraction: 1.5\n", {"space.yaml:2", "'1.5'"}},
      {"tp_comm_overlap: [maybe]\n", {"space.yaml:1", "'maybe'"}},
      {"tensor_model_parallel_size: [0]\n", {"space.yaml:1", "'0'"}},
      {"tensor_model_parallel_size: [-2]\n", {"space.yaml:1", "'-2'"}},
      {"tensor_model_parallel_size: [2.5]\n", {"space.yaml:1", "'2.5'"}},
      {"tensor_model_parallel_size: [99999999999]\n", {"space.yaml:1", "'99999999999'"}},
      {"pipeline_model_parallel_size: 0\n", {"space.yaml:1", "'0'"}},
      {"schedule: [interleaved]\n", {"space.yaml:1", "'interleaved'", "num_virtual_stages"}},
      {"recompute_granularity: some\n", {"space.yaml:1", "'some'", "none, selective or full"}},
      {"recompute_granularity: full\nrecompute_method: blok\n",
       {"space.yaml:2", "'blok'", "uniform or block"}},
      {"recompute_num_layers: 0\n", {"space.yaml:1", "'0'"}},
      {"recompute_num_layers: 8..2\n", {"space.yaml:1", "first number is not above its second"}},
      {"recompute_num_layers: 1..x\n", {"space.yaml:1", "a range such as 1..8"}},
      {"recompute_num_layers: some\n", {"space.yaml:1", "'some'"}},
      {"recompute_num_layers: [1, 1]\n", {"space.yaml:1", "each choice once"}},
      {"recompute_granularity: none\nrecompute_num_layers: 2\n",
       {"space.yaml:2", "recompute_granularity with `full` beside it"}},
      {"recompute_modules: [moe_act]\n",
       {"space.yaml:1", "recompute_granularity with `selective` beside it"}},
      {"recompute_granularity: selective\nrecompute_modules: [moe_akt]\n", {"space.yaml:2", "'moe_akt'"}},
      {"pipeline_model_parallel_size: [4, 4]\n", {"space.yaml:1", "each choice once"}},
      {"pipeline_model_parallel_size: [0, 4]\n", {"space.yaml:1", "'0'"}},
      {"pipeline_model_parallel_size: [4, 1025]\n", {"space.yaml:1", "'1025'"}},
      {"pipeline_model_parallel_size: []\n", {"space.yaml:1", "at least one choice"}},
      {"overlap_grad_reduce: [auto, true]\n", {"space.yaml:1", "'auto'"}},
      {"overlap_param_gather: {on: true}\n", {"space.yaml:1", "a map"}},
      {"sequence_parallel: 1\n", {"space.yaml:1", "'1'"}},
      {"sequence_parallel: [[true]]\n", {"space.yaml:1", "a list"}},
      {"micro_batch_size: {a: 1}\n", {"space.yaml:1", "a map"}},
      {"micro_batch_size:\n", {"space.yaml:", "micro_batch_size", "nothing"}},
      {"micro_batch_size: 1\nmicro_batch_size: 2\n", {"space.yaml:2", "micro_batch_size"}},
      {"- 1\n", {"space.yaml:1", "a list"}},
  }));
  const std::string message = error_of(row.yaml);
  INFO(row.yaml << message);
  for (const std::string& part : row.parts) CHECK(contains(message, part));
}

TEST_CASE("a search space that is not there is an input error") {
  CHECK(contains(input_error([] { read_space("/nowhere/space.yaml"); }), "/nowhere/space.yaml"));
}

}  // namespace orrery
