// Plans in Megatron-LM's terms.
#include "strategies/megatron.hpp"

#include <set>
#include <string>

#include "tests/strategies/megatron_fixture.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

// Reads a layout as Megatron-LM does (core/transformer/pipeline_parallel_layer_layout.py): commas say
// nothing, then
// (..)*n unrolls, then c*n.
std::string unrolled(const std::string& layout) {
  std::string text;
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (layout[i] == ',') continue;
    if (layout[i] != '(') {
      text += layout[i];
      continue;
    }
    const std::size_t close = layout.find(")*", i);
    std::size_t digits = 0;
    const int times = std::stoi(layout.substr(close + 2), &digits);
    for (int k = 0; k < times; ++k) text += layout.substr(i + 1, close - i - 1);
    i = close + 1 + digits;
  }
  std::string flat;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '*') {
      flat += text[i];
      continue;
    }
    std::size_t digits = 0;
    const int times = std::stoi(text.substr(i + 1), &digits);
    flat.append(static_cast<std::size_t>(times - 1), flat.back());
    i += digits;
  }
  return flat;
}

}  // namespace

TEST_CASE("layouts fold equal parts between the first and the last") {
  struct Row {
    std::vector<int> counts;
    const char* layout;
  };
  for (const Row& row : {Row{{2}, "EttL"}, Row{{3, 5}, "Ettt|t*5L"}, Row{{3, 2, 2, 2, 1}, "Ettt|(tt|)*3,tL"},
                         Row{{26, 26, 14, 14}, "Et*26|t*26|t*14|t*14L"}, Row{{0, 1, 1, 1, 0}, "E|(t|)*3,L"},
                         Row{{1, 4, 4, 5, 5, 6}, "Et|(t*4|)*2,(t*5|)*2,t*6L"}}) {
    const std::string layout = pipeline_layout(with_parts(row.counts));
    CHECK(layout == row.layout);
  }
}

TEST_CASE("a layout unrolls to the parts it came from") {
  unsigned state = 7;
  for (int round = 0; round < 300; ++round) {
    std::vector<int> counts;
    state = state * 1664525 + 1013904223;
    for (unsigned i = 0; i <= state >> 28; ++i) {
      counts.push_back(1 + static_cast<int>((state >> (i % 16 + 5)) % 13 / 3 * 3));
    }
    std::string expected = "E";
    for (std::size_t i = 0; i < counts.size(); ++i)
      expected += (i == 0 ? "" : "|") + std::string(static_cast<std::size_t>(counts[i]), 't');
    CHECK(unrolled(pipeline_layout(with_parts(counts))) == expected + "L");
  }
}

TEST_CASE("every argument has one name, an example and the example's kind") {
  const ArgumentTable table = megatron_arguments(read_model("llama2-70b"), llama70b_on_two_kinds());
  const ArgumentTable& examples = argument_examples();
  REQUIRE(table.size() == examples.size());
  std::set<std::string> names;
  for (std::size_t i = 0; i < table.size(); ++i) {
    INFO(examples[i].first);
    CHECK(names.insert(table[i].first).second);
    CHECK(table[i].first == examples[i].first);
    CHECK_FALSE(std::holds_alternative<std::monostate>(examples[i].second));
    const bool none = std::holds_alternative<std::monostate>(table[i].second);
    CHECK((none || table[i].second.index() == examples[i].second.index()));
  }
}

TEST_CASE("arguments say what the strategy says") {
  const ArgumentTable table = megatron_arguments(read_model("llama2-70b"), llama70b_on_two_kinds());
  CHECK(argument(table, "world_size") == Argument(64.0));
  CHECK(argument(table, "tensor_model_parallel_size") == Argument(8.0));
  CHECK(argument(table, "padded_vocab_size") == Argument(32.0 * 128 * 8));  // of 32,000
  CHECK(argument(table, "pipeline_model_parallel_layout") == Argument("Et*26|t*26|t*14|t*14L"));
  CHECK(argument(table, "num_query_groups") == Argument(8.0));
  CHECK(argument(table, "group_query_attention") == Argument(true));
  CHECK(argument(table, "swiglu") == Argument(true));
  CHECK(argument(table, "normalization") == Argument("RMSNorm"));
  CHECK(argument(table, "recompute_granularity") == Argument(std::monostate{}));
  CHECK(argument(table, "recompute_method") == Argument(std::monostate{}));
}

TEST_CASE("layers to recompute are written as Megatron-LM has them, and only where all of a layer is") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  const ModelSpec model = read_model("llama2-70b");
  strategy.recompute = {RecomputeGranularity::full, RecomputeMethod::block, 3};
  const std::string full = files_of(model, strategy).arguments;
  CHECK(full.find("--recompute-granularity full\n--recompute-method block\n--recompute-num-layers 3\n") !=
        std::string::npos);
  strategy.recompute.granularity = RecomputeGranularity::selective;
  const std::string selective = files_of(model, strategy).arguments;
  CHECK(selective.find("--recompute-granularity selective\n") != std::string::npos);
  CHECK(selective.find("--recompute-modules core_attn\n") != std::string::npos);
  CHECK(selective.find("--recompute-num-layers") == std::string::npos);
}

TEST_CASE("modules to recompute are words of one flag; experts' tensor ways are said where they differ") {
  ModelSpec model = read_model("mixtral-8x7b");
  ParallelStrategy strategy;
  strategy.data = 2;
  strategy.expert = 4;
  strategy.sequence_parallel = true;
  strategy.global_batch = 2;
  strategy.sequence = 4096;
  strategy.stages = {{.group = 0, .tensor = 2}};
  strategy.parts = {{0, model.layer_count()}};
  strategy.recompute.granularity = RecomputeGranularity::selective;
  strategy.recompute.modules = {RecomputeModule::moe_act, RecomputeModule::layernorm};
  CHECK(argument(megatron_arguments(model, strategy), "expert_tensor_parallel_size") == Argument(2.0));
  CHECK(argument(megatron_arguments(model, strategy), "recompute_modules") ==
        Argument(std::string("layernorm moe_act")));
  strategy.recompute.granularity = RecomputeGranularity::none;
  CHECK(argument(megatron_arguments(model, strategy), "recompute_modules") == Argument(std::monostate{}));
  strategy.expert_tensor = 1;
  CHECK(argument(megatron_arguments(model, strategy), "expert_tensor_parallel_size") == Argument(1.0));
}

TEST_CASE("every flag that is written is one of Megatron-LM's") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  strategy.recompute = {RecomputeGranularity::full, RecomputeMethod::block, 3};
  strategy.type = DataType::fp8;
  strategy.distributed_optimizer = true;
  strategy.tensor_overlap = true;
  strategy.optimizer_offload = 0.5;
  strategy.flash_attention = GENERATE(true, false);
  const std::string name = GENERATE("llama2-70b", "gpt2-345m", "mixtral-8x7b", "qwen3-30b-a3b", "qwen2-7b",
                                    "deepseek-v2-lite", "deepseek-v3", "kimi-k2");
  const ModelSpec model = read_model(name);
  strategy.parts = equal_parts(4, model.layer_count());
  if (GENERATE(true, false)) --strategy.parts[3].count;  // uneven
  check_flags_are_known(files_of(model, strategy).arguments);
}

TEST_CASE("a Llama plan on two kinds becomes these arguments") {
  const LaunchFiles files = files_of(read_model("llama2-70b"), llama70b_on_two_kinds());
  CHECK(
      files.arguments ==
      "--tensor-model-parallel-size 8\n--pipeline-model-parallel-size 4\n--context-parallel-size 1\n"
      "--expert-model-parallel-size 1\n--pipeline-model-parallel-layout 'Et*26|t*26|t*14|t*14L'\n"
      "--sequence-parallel\n--micro-batch-size 1\n--global-batch-size 64\n--seq-length 4096\n--bf16\n"
      "--use-flash-attn\n--attention-dropout 0\n--hidden-dropout 0\n--cross-entropy-loss-fusion\n"
      "--num-layers 80\n--hidden-size 8192\n--ffn-hidden-size 28672\n--num-attention-heads "
      "64\n"
      "--kv-channels 128\n--group-query-attention\n--num-query-groups 8\n--swiglu\n--normalization RMSNorm\n"
      "--disable-bias-linear\n--position-embedding-type rope\n--max-position-embeddings 4096\n"
      "--untie-embeddings-and-output-weights\n--rotary-base 10000\n");
  // 16 ranks a stage: 2 replicas x 8 ways, 8 GPUs a node.
  CHECK(contains(files.rank_map, "node 0: group fast (fast-gpu), ranks 0-7, stages 0\n"));
  CHECK(contains(files.rank_map, "node 4: group slow (slow-gpu), ranks 32-39, stages 2\n"));
  CHECK(contains(files.script, "--nnodes 8 --node-rank \"$NODE_RANK\""));
  CHECK(contains(files.script, "processes=(8 8 8 8 8 8 8 8)"));
}

TEST_CASE("an even interleaved plan needs no layout") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  strategy.chunks = 2;
  strategy.schedule = ScheduleKind::interleaved;
  strategy.transfers = TransferMode::overlapped;
  strategy.parts = equal_parts(8, 80);
  const std::string arguments = files_of(read_model("llama2-70b"), strategy).arguments;
  CHECK(contains(arguments, "--num-layers-per-virtual-pipeline-stage 10\n"));
  CHECK_FALSE(contains(arguments, "--pipeline-model-parallel-layout"));
  CHECK_FALSE(contains(arguments, "overlap-p2p"));
}

TEST_CASE("overlaps and the offloaded optimizer are launched by Megatron-LM's switches") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  const ModelSpec model = read_model("llama2-70b");
  const std::string plain = files_of(model, strategy).arguments;
  CHECK_FALSE(contains(plain, "--tp-comm-overlap"));
  CHECK_FALSE(contains(plain, "offload"));
  CHECK_FALSE(contains(plain, "instances"));
  strategy.sequence_parallel = strategy.distributed_optimizer = true;
  strategy.tensor_overlap = true;
  strategy.optimizer_instances = 2;
  strategy.optimizer_offload = 0.25;
  strategy.chunks = 2;
  strategy.schedule = ScheduleKind::interleaved;
  strategy.transfers = TransferMode::blocking;
  strategy.parts = equal_parts(8, 80);
  const std::string arguments = files_of(model, strategy).arguments;
  CHECK(contains(arguments, "--use-distributed-optimizer\n--num-distributed-optimizer-instances 2\n"));
  CHECK(contains(arguments, "--tp-comm-overlap\n"));
  CHECK(contains(arguments,
                 "--optimizer-cpu-offload\n--optimizer-offload-fraction 0.25\n"
                 "--use-precision-aware-optimizer\n"));
  CHECK(contains(arguments, "--no-overlap-p2p-communication\n"));
  strategy.optimizer_offload = 1;
  CHECK(contains(files_of(model, strategy).arguments, "--optimizer-offload-fraction 1\n"));
}

// Megatron-LM training/arguments.py: this checkpoint format, and more than one connection. Its
// docs/user-guide/features/megatron_fsdp.md and examples/megatron_fsdp: the rest.
TEST_CASE("fully sharded weights are launched as Megatron-FSDP") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  const ModelSpec model = read_model("llama2-70b");
  strategy.distributed_optimizer = strategy.fully_sharded = true;
  CHECK(contains(first_gap(model, strategy), "gathered once a step in this pipeline"));
  strategy.pipeline = 1;
  strategy.data = 8;
  strategy.stages = {{0, 8}};
  strategy.parts = {{0, 80}};
  const LaunchFiles files = files_of(model, strategy);
  CHECK(contains(files.arguments,
                 "--use-distributed-optimizer\n--use-megatron-fsdp\n"
                 "--data-parallel-sharding-strategy optim_grads_params\n--init-model-with-meta-device\n"
                 "--megatron-fsdp-main-grads-dtype fp32\n--no-gradient-accumulation-fusion\n"
                 "--ckpt-format fsdp_dtensor\n--overlap-grad-reduce\n--overlap-param-gather\n--micro"));
  check_flags_are_known(files.arguments);
  CHECK(contains(files.script, "unset CUDA_DEVICE_MAX_CONNECTIONS\n"));
  CHECK_FALSE(contains(files.script, "export CUDA_DEVICE_MAX_CONNECTIONS"));
  strategy.fully_sharded = false;
  for (const char* part : {"fsdp", "sharding", "meta", "accumulation"})
    CHECK_FALSE(contains(files_of(model, strategy).arguments, part));
  CHECK(contains(files_of(model, strategy).script, "export CUDA_DEVICE_MAX_CONNECTIONS"));
}

TEST_CASE("stages smaller than a node share it") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  strategy.data = 1;
  strategy.stages = {{0, 4}, {0, 4}, {0, 4}, {0, 4}};
  const LaunchFiles files = files_of(read_model("llama2-70b"), strategy);
  CHECK(files.rank_map ==
        "node 0: group fast (fast-gpu), ranks 0-7, stages 0-1\nnode 1: group fast (fast-gpu), ranks 8-15, "
        "stages 2-3\n");
}

// 2 replicas of 4 stages of 8 GPUs: nodes 0-3 are stages 0-3 of replica 0.
TEST_CASE("replicas that stand apart are launched by use_tp_pp_dp_mapping, on the hosts of the plan") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  strategy.order = RankOrder::cp_pp_dp;
  for (StageDevices& stage : strategy.stages) stage.group = 0;
  strategy.nodes = {8, 0};
  strategy.hosts = {4, 5, 6, 7, 0, 1, 2, 3};
  const LaunchFiles files = files_of(read_model("llama2-70b"), strategy);
  CHECK(contains(files.arguments, "--use-tp-pp-dp-mapping\n"));
  CHECK(contains(files.rank_map, "node 1: group fast (fast-gpu), ranks 8-15, stages 1, on fast.node5\n"));
  CHECK(contains(files.rank_map, "node 4: group fast (fast-gpu), ranks 32-39, stages 0, on fast.node0\n"));
  CHECK(contains(files.script, "(rank order tp-cp-ep-pp-dp)"));
}

TEST_CASE("what Megatron-LM cannot run is named") {
  const ModelSpec llama = read_model("llama2-70b");
  ParallelStrategy uneven_ways = llama70b_on_two_kinds();
  uneven_ways.stages[2].tensor = 4;
  CHECK(contains(first_gap(llama, uneven_ways), "stage 0 has 8 tensor-parallel ways and stage 2 has 4"));
  ParallelStrategy gpipe = llama70b_on_two_kinds();
  gpipe.schedule = ScheduleKind::gpipe;
  CHECK(contains(first_gap(llama, gpipe), "gpipe"));
  for (const ScheduleKind kind : {ScheduleKind::zb_h1, ScheduleKind::zb_h2, ScheduleKind::zb_v}) {
    ParallelStrategy zero_bubble = llama70b_on_two_kinds();
    zero_bubble.schedule = kind;
    CHECK(contains(first_gap(llama, zero_bubble), "weight gradients apart from the backward"));
  }
  ParallelStrategy waiting = llama70b_on_two_kinds();
  waiting.schedule = ScheduleKind::interleaved;
  waiting.transfers = TransferMode::blocking;
  waiting.pipeline = waiting.chunks = 2;
  waiting.stages = {{0, 8}, {1, 8}};
  waiting.parts = equal_parts(4, 80);
  CHECK(contains(first_gap(llama, waiting), "from three on"));
  for (const TransferMode mode : {TransferMode::eager, TransferMode::overlapped}) {
    ParallelStrategy sending = llama70b_on_two_kinds();
    sending.transfers = mode;
    CHECK(contains(first_gap(llama, sending), "Megatron-LM has them blocking"));
  }
  ModelSpec with_sinks = llama;
  with_sinks.shapes[0].attention_sinks = true;
  CHECK(contains(first_gap(with_sinks, llama70b_on_two_kinds()), "sinks"));
  ModelSpec biased = llama;
  biased.shapes[0].position_bias = true;
  CHECK(contains(first_gap(biased, llama70b_on_two_kinds()), "biases of their positions"));
  for (const bool scores : {true, false}) {
    ModelSpec capped = llama;
    capped.shapes[0].capped_scores = scores;
    capped.capped_logits = !scores;
    CHECK(contains(first_gap(capped, llama70b_on_two_kinds()), "capped by tanh"));
  }
  ParallelStrategy reducing = llama70b_on_two_kinds();
  reducing.reduce_each_microbatch = true;
  CHECK(contains(first_gap(llama, reducing), "reduced after every microbatch"));
  // Stages 0 and 2 would share a node of `fast`, with stage 1 between them.
  ParallelStrategy crossing = llama70b_on_two_kinds();
  crossing.data = 1;
  crossing.stages = {{0, 4}, {1, 4}, {0, 4}, {1, 4}};
  CHECK(contains(first_gap(llama, crossing), "group fast share nodes"));
  ParallelStrategy reordered = llama70b_on_two_kinds();
  reordered.order = RankOrder::pp_dp_cp;
  CHECK(contains(first_gap(llama, reordered), "the rank order is tp-pp-ep-dp-cp"));
  ParallelStrategy spread = llama70b_on_two_kinds();
  spread.order = RankOrder::cp_pp_dp;
  spread.expert = 2;
  CHECK(contains(first_gap(read_model("mixtral-8x7b"), spread), "experts are spread over replicas"));
  ParallelStrategy plain = llama70b_on_two_kinds();
  plain.sequence_parallel = false;
  CHECK(contains(first_gap(read_model("mixtral-8x7b"), plain), "sequence parallelism"));
  CHECK(contains(first_gap(read_model("transgan"), plain), "different width"));
  CHECK(contains(first_gap(read_model("gpt-neox-20b"), plain), "side by side"));
  CHECK(contains(all_gaps(read_model("bloom-176b"), plain), "a norm follows the embedding"));
  CHECK(contains(all_gaps(read_model("bloom-176b"), plain), "ALiBi"));
  ModelSpec odd = llama;
  odd.beyond_megatron = "scaled logits";
  CHECK(contains(first_gap(odd, llama70b_on_two_kinds()), "the model has scaled logits, which"));
}

TEST_CASE("a window that no sequence of the plan leaves is none to Megatron-LM") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  ModelSpec model = read_model("llama2-70b");
  model.shapes[0].attention_window = 2 * 4096;  // a band of 4,096 tokens
  CHECK(first_gap(model, strategy) == "none");
  strategy.sequence = 8192;
  CHECK(contains(first_gap(model, strategy), "attention stays within blocks"));
}
