// Models in Megatron-LM's terms.
#include <string>

#include "tests/strategies/megatron_fixture.hpp"

using namespace orrery;
using namespace orrery::test;

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
  CHECK(contains(arguments, "--moe-router-enable-expert-bias\n--moe-router-score-function sigmoid\n"));
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
