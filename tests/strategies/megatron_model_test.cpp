// Models in Megatron-LM's terms.
#include <sstream>
#include <string>

#include "tests/strategies/megatron_fixture.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

// Of a plan that any model runs: one stage of one GPU.
std::string arguments_of(const ModelSpec& model) {
  ParallelStrategy strategy = with_parts({model.layer_count()});
  strategy.stages = {{0, 1}};
  strategy.sequence = 2048;
  const std::string arguments = files_of(model, strategy).arguments;
  check_flags_are_known(arguments);
  return arguments;
}

std::string gaps_of(const ModelSpec& model) {
  ParallelStrategy strategy = with_parts({model.layer_count()});
  strategy.stages = {{0, 1}};
  return all_gaps(model, strategy);
}

// The lines with this beginning, in their order.
std::string lines_with(const std::string& arguments, const std::string& beginning) {
  std::istringstream lines(arguments);
  std::string found;
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(beginning, 0) == 0) found += line + "\n";
  return found;
}

}  // namespace

TEST_CASE("mixed dense and sparse layers become a pattern") {
  const ModelSpec model = parse_model_blocks(
      "name: x\nsequence: 64\nvocabulary: 100\nhidden: 64\nblocks:\n"
      "  - {hidden: 64, heads: 8, ffn: 256, mlp: gated, norm: rms_norm, bias: false}\n"
      "  - {repeat: 2, hidden: 64, heads: 8, ffn: 32, mlp: gated, norm: rms_norm, bias: false, experts: 8,\n"
      "     experts_per_token: 2}\n",
      "x.yaml");
  ParallelStrategy strategy = with_parts({3});
  strategy.stages = {{0, 1}};
  const ArgumentTable table = megatron_arguments(model, strategy);
  CHECK(argument(table, "moe_layer_freq") == Argument("[0,1,1]"));
  CHECK(argument(table, "ffn_hidden_size") == Argument(256.0));
  CHECK(argument(table, "moe_ffn_hidden_size") == Argument(32.0));
}

TEST_CASE("latent attention is launched by its ranks and head dimensions") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  const ModelSpec model = read_model("deepseek-v3");
  strategy.parts = equal_parts(4, model.layer_count());
  const std::string arguments = files_of(model, strategy).arguments;
  CHECK(contains(arguments,
                 "--multi-latent-attention\n--q-lora-rank 1536\n--kv-lora-rank 512\n--qk-head-dim 128\n"
                 "--qk-pos-emb-head-dim 64\n--v-head-dim 128\n"));
  CHECK(contains(arguments, "--qk-layernorm\n"));
  CHECK_FALSE(contains(arguments, "--kv-channels"));
  CHECK(contains(first_gap(read_model("deepseek-v3-mtp"), strategy), "--mtp-num-layers"));
}

TEST_CASE("a hybrid model is launched by its pattern with Megatron-LM's program for it") {
  ParallelStrategy strategy = llama70b_on_two_kinds();
  const ModelSpec model = read_model("nemotron-h-8b");
  strategy.parts = equal_parts(4, model.layer_count());
  const LaunchFiles files = files_of(model, strategy);
  CHECK(contains(
      files.arguments,
      "--is-hybrid-model\n--hybrid-override-pattern 'M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-'\n"
      "--mamba-num-heads 128\n--mamba-head-dim 64\n--mamba-num-groups 8\n--mamba-state-dim 128\n"));
  CHECK(contains(files.arguments, "--num-attention-heads 32\n--kv-channels 128\n"));
  CHECK(contains(files.arguments, "--position-embedding-type none\n"));
  CHECK(contains(files.script, "pretrain_mamba.py"));
  --strategy.parts[3].count;
  CHECK(contains(first_gap(model, strategy), "unequal parts"));
}

// Expected: the published config.json of each.
TEST_CASE("experts are launched in groups, exchanged all to all, and routed as the model says") {
  struct Row {
    const char* model;
    const char* experts;
    const char* router;
  };
  const std::string all_to_all = "--moe-grouped-gemm\n--moe-token-dispatcher-type alltoall\n";
  for (const Row& row :
       {Row{"mixtral-8x7b", "--moe-ffn-hidden-size 14336\n",
            "--moe-router-topk 2\n--moe-router-load-balancing-type aux_loss\n"},
        Row{"qwen3-30b-a3b", "--moe-ffn-hidden-size 768\n",
            "--moe-router-topk 8\n--moe-router-load-balancing-type aux_loss\n"},
        Row{"qwen2-57b-a14b",
            "--moe-ffn-hidden-size 2560\n--moe-shared-expert-intermediate-size 20480\n"
            "--moe-shared-expert-gate\n",
            "--moe-router-topk 8\n--moe-router-pre-softmax\n--moe-router-load-balancing-type aux_loss\n"},
        Row{"deepseek-v2", "--moe-ffn-hidden-size 1536\n",
            "--moe-router-topk 6\n--moe-router-pre-softmax\n--moe-router-num-groups 8\n"
            "--moe-router-group-topk 3\n--moe-router-topk-scaling-factor 16\n"
            "--moe-router-load-balancing-type seq_aux_loss\n"},
        Row{"deepseek-v3", "--moe-ffn-hidden-size 2048\n",
            "--moe-router-topk 8\n--moe-router-enable-expert-bias\n--moe-router-score-function sigmoid\n"
            "--moe-router-num-groups 8\n--moe-router-group-topk 4\n"
            "--moe-router-topk-scaling-factor 2.5\n--moe-router-load-balancing-type seq_aux_loss\n"},
        Row{"glm-4.5", "--moe-ffn-hidden-size 1536\n",
            "--moe-router-topk 8\n--moe-router-enable-expert-bias\n--moe-router-score-function sigmoid\n"
            "--moe-router-topk-scaling-factor 2.5\n"},
        Row{"nemotron-3-nano", "--moe-ffn-hidden-size 1856\n",
            "--moe-router-topk 6\n--moe-router-enable-expert-bias\n--moe-router-score-function sigmoid\n"
            "--moe-router-topk-scaling-factor 2.5\n"}}) {
    INFO(row.model);
    const std::string arguments = arguments_of(read_model(row.model));
    CHECK(contains(arguments, all_to_all));
    CHECK(contains(arguments, row.experts));
    CHECK(lines_with(arguments, "--moe-router") == row.router);
  }
  CHECK(contains(arguments_of(read_model("mixtral-8x7b")), "--moe-aux-loss-coeff 0.02\n"));
  CHECK_FALSE(contains(arguments_of(read_model("llama2-7b")), "--moe"));
}

TEST_CASE("what Megatron-LM's router has not, and kernels that a GPU has not, are named") {
  ModelSpec model = read_model("mixtral-8x7b");
  for (LayerShape& shape : model.shapes) shape.router_bias = true;
  CHECK(contains(gaps_of(model), "beside softmax"));
  model.router = {.sigmoid = true, .normalised = false};
  CHECK(contains(gaps_of(model), "not normalised"));
  model = read_model("mixtral-8x7b");
  ParallelStrategy strategy = with_parts({32});
  strategy.stages = {{0, 1}};
  ClusterSpec cluster = two_kinds();
  CHECK(megatron_gaps(model, strategy, cluster).empty());
  cluster.groups[0].gpu.architecture = "Volta";
  REQUIRE(megatron_gaps(model, strategy, cluster).size() == 1);
  CHECK(contains(megatron_gaps(model, strategy, cluster)[0], "compute capability 8"));
  CHECK(megatron_gaps(read_model("llama2-7b"), strategy, cluster).empty());
}

// Expected: the published config.json of each, and what DeepSeek-V3's example of Megatron-LM says.
TEST_CASE("rotary positions are launched with the model's base, share and stretch") {
  struct Row {
    const char* model;
    const char* rotary;  // lines that begin with --ro
  };
  for (const Row& row :
       {Row{"llama2-7b", "--rotary-base 10000\n"}, Row{"llama3-8b", "--rotary-base 500000\n"},
        Row{"llama3-405b", "--rotary-base 500000\n--rope-scaling-factor 8\n"},
        Row{"qwen2-7b", "--rotary-base 1000000\n"}, Row{"mixtral-8x7b", "--rotary-base 1000000\n"},
        Row{"chatglm3-6b", "--rotary-base 10000\n--rotary-percent 0.5\n"},
        Row{"deepseek-v3", "--rotary-base 10000\n--rotary-scaling-factor 40\n"},
        Row{"glm-4.5", "--rotary-base 1000000\n--rotary-percent 0.5\n"},
        // As it was trained first: YaRN came with longer contexts (arXiv 2507.20534).
        Row{"kimi-k2", "--rotary-base 50000\n"}, Row{"gpt2-345m", ""}, Row{"nemotron-h-8b", ""}}) {
    INFO(row.model);
    CHECK(lines_with(arguments_of(read_model(row.model)), "--ro") == row.rotary);
  }
  CHECK(contains(arguments_of(read_model("llama3-405b")), "--use-rope-scaling\n"));
  CHECK_FALSE(contains(arguments_of(read_model("llama3-70b")), "--use-rope-scaling\n"));
  CHECK(contains(arguments_of(read_model("deepseek-v2")), "--mscale 0.707\n--mscale-all-dim 0.707\n"));
}

TEST_CASE("positions that Megatron-LM's arguments cannot say are named") {
  ModelSpec model = read_model("llama3-8b");
  CHECK(gaps_of(model).empty());
  model.rotary_positions.base = 10'000.5;
  CHECK(contains(gaps_of(model), "no whole number"));
  model.rotary_positions = {.stretch = RotaryStretch::other};
  CHECK(contains(gaps_of(model), "rope_scaling"));
  model.rotary_positions = {.stretch = RotaryStretch::yarn};
  CHECK(contains(gaps_of(model), "rope_scaling"));
  model.rotary_positions = {};
  model.alibi = true;
  CHECK(contains(gaps_of(model), "ALiBi"));
}

TEST_CASE("a head that predicts no words is a gap") {
  ModelSpec model = read_model("llama3-8b");
  model.outputs = 1;
  CHECK(contains(gaps_of(model), "1 outputs; pretrain_gpt.py predicts words"));
  model.outputs = 0;
  model.predicted_tokens = 20;
  CHECK(contains(gaps_of(model), "a part of the tokens; pretrain_gpt.py predicts all"));
}

TEST_CASE("activations are launched where Megatron-LM has an argument, and named where not") {
  struct Row {
    MlpKind mlp;
    Activation activation;
    const char* said;  // an argument, or part of a gap
  };
  for (const Row& row :
       {Row{MlpKind::gated, Activation::silu, "--swiglu\n"}, Row{MlpKind::gelu, Activation::gelu, ""},
        Row{MlpKind::gelu, Activation::squared_relu, "--squared-relu\n--no-bias-gelu-fusion\n"},
        Row{MlpKind::gated, Activation::gelu, "GeGLU"}, Row{MlpKind::gelu, Activation::relu, "neither GELU"},
        Row{MlpKind::gelu, Activation::silu, "neither GELU"},
        Row{MlpKind::gated, Activation::other, "not gated by SiLU"}}) {
    INFO(row.said);
    ModelSpec model = read_model("gpt2-345m");
    model.shapes[0].mlp = row.mlp;
    model.shapes[0].activation = row.activation;
    const std::string gaps = gaps_of(model);
    const bool launched = std::string(row.said).empty() || row.said[0] == '-';
    REQUIRE(gaps.empty() == launched);
    CHECK(contains(launched ? arguments_of(model) : gaps, row.said));
  }
  const std::string plain = arguments_of(read_model("gpt2-345m"));
  CHECK_FALSE(contains(plain, "--swiglu"));
  CHECK_FALSE(contains(plain, "--squared-relu"));
  CHECK(contains(arguments_of(read_model("nemotron-h-8b")), "--squared-relu\n"));
}
