// What the model readers keep for launch files: activations, rotary positions.
#include <string>

#include "platforms/errors.hpp"
#include "strategies/model.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/replaced.hpp"
#include "tests/strategies/tiny_llama.hpp"

using namespace orrery;
using test::kTinyLlama;
using test::replaced;

namespace {

ModelSpec tiny_llama_with(const std::string& keys) {
  return parse_huggingface_config(replaced(kTinyLlama, "\"vocab_size\"", keys + ", \"vocab_size\""),
                                  "config.json");
}

Activation activation_of(const std::string& json) {
  return parse_huggingface_config(json, "config.json").layer(0).activation;
}

}  // namespace

TEST_CASE("rotary positions are read under the names of old and new files, or as their family has them") {
  CHECK(parse_huggingface_config(kTinyLlama, "c.json").rotary_positions == RotaryPositions{});
  const RotaryPositions partial{.base = 5e5, .share = 0.5};
  CHECK(tiny_llama_with(R"("rope_theta": 500000.0, "partial_rotary_factor": 0.5)").rotary_positions ==
        partial);
  CHECK(tiny_llama_with(R"("rope_parameters": {"rope_theta": 500000.0, "partial_rotary_factor": 0.5,
        "rope_type": "default"})")
            .rotary_positions == partial);
  CHECK(parse_huggingface_config(replaced(kTinyLlama, "\"llama\"", "\"glm4\""), "c.json").rotary_positions ==
        RotaryPositions{.share = 0.5});
  const std::string llama31 =
      R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})";
  CHECK(tiny_llama_with(llama31).rotary_positions ==
        RotaryPositions{.stretch = RotaryStretch::llama3, .factor = 8});
  // Over other tokens it is not the rule that Megatron-LM has.
  CHECK(tiny_llama_with(replaced(llama31, "8192", "4096")).rotary_positions.stretch == RotaryStretch::other);
  CHECK(tiny_llama_with(R"("rope_scaling": {"type": "linear", "factor": 2})").rotary_positions.stretch ==
        RotaryStretch::other);
  CHECK(tiny_llama_with(R"("rope_scaling": null)").rotary_positions == RotaryPositions{});
  CHECK_THROWS_AS(tiny_llama_with(R"("rope_theta": "x")"), InputError);
}

TEST_CASE("details are those of the text model, whatever the file around it says") {
  const ModelSpec seeing = parse_huggingface_config(
      R"({"model_type": "qwen2_vl", "rope_theta": 10000.0, "text_config": )" +
          replaced(kTinyLlama, "\"vocab_size\"", "\"rope_theta\": 1000000.0, \"vocab_size\"") + "}",
      "c.json");
  CHECK(seeing.rotary_positions == RotaryPositions{.base = 1e6});
  CHECK(seeing.shapes == parse_huggingface_config(kTinyLlama, "c.json").shapes);
  const ModelSpec nemotron =
      parse_huggingface_config(replaced(replaced(kTinyLlama, "\"llama\"", "\"nemotron\""), "\"vocab_size\"",
                                        "\"hidden_act\": \"relu2\", \"vocab_size\""),
                               "c.json");
  CHECK(nemotron.rotary_positions.share == 0.5);
  CHECK(nemotron.layer(0).activation == Activation::squared_relu);
  CHECK(nemotron.beyond_megatron.empty());
}

TEST_CASE("Gemma 2 caps scores and logits unless its file says that it does not; a list of blocks may") {
  const std::string gemma = replaced(kTinyLlama, "\"llama\"", "\"gemma2\"");
  const auto with = [&](const char* more) {
    return parse_huggingface_config(replaced(gemma, "\"vocab_size\"", more + std::string("\"vocab_size\"")),
                                    "c.json");
  };
  for (const char* capped : {"", R"("attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, )"}) {
    CHECK(with(capped).layer(0).capped_scores);
    CHECK(with(capped).capped_logits);
  }
  CHECK_FALSE(with(R"("attn_logit_softcapping": null, )").layer(0).capped_scores);
  CHECK(with(R"("attn_logit_softcapping": null, )").capped_logits);
  CHECK_FALSE(with(R"("final_logit_softcapping": null, )").capped_logits);
  CHECK_THROWS_AS(with(R"("final_logit_softcapping": "30", )"), InputError);
  CHECK_FALSE(parse_huggingface_config(kTinyLlama, "c.json").capped_logits);
  const ModelSpec blocks = parse_model_blocks(
      "name: x\nsequence: 64\nvocabulary: 100\nhidden: 64\ncapped_logits: true\n"
      "blocks: [{hidden: 64, heads: 4, ffn: 256, mlp: geglu, norm: rms_norm, capped_scores: true}]\n",
      "x.yaml");
  CHECK(blocks.capped_logits);
  CHECK(blocks.layer(0).capped_scores);
}

TEST_CASE("activations are read by their names, or as their family has them") {
  CHECK(activation_of(kTinyLlama) == Activation::silu);
  CHECK(activation_of(replaced(kTinyLlama, "\"llama\"", "\"gemma\"")) == Activation::gelu);
  CHECK(tiny_llama_with(R"("hidden_act": "gelu_pytorch_tanh")").layer(0).activation == Activation::gelu);
  CHECK(tiny_llama_with(R"("hidden_act": "relu2")").layer(0).activation == Activation::squared_relu);
  CHECK(tiny_llama_with(R"("hidden_act": "mish")").layer(0).activation == Activation::other);
  // What nobody knows is refused: a slip would be taken for another activation than the model's.
  const std::string slip = input_error_parts([] { tiny_llama_with(R"("hidden_act": "sliu")"); });
  CHECK(contains(slip, R"(hidden_act | "sliu" | one of silu, swish, )"));
  CHECK(contains(slip, "did you mean 'silu'?"));
  const std::string opt = R"({"model_type": "opt", "hidden_size": 64, "num_hidden_layers": 2, "ffn_dim": 256,
      "num_attention_heads": 4, "word_embed_proj_dim": 64, "vocab_size": 100, "max_position_embeddings": 32})";
  CHECK(activation_of(opt) == Activation::relu);
  const std::string yaml =
      "name: x\nsequence: 64\nvocabulary: 100\nhidden: 64\nrotary_base: 500000\nrotary_share: 0.25\n"
      "alibi: true\nblocks: [{hidden: 64, heads: 4, ffn: 256, mlp: MLP, norm: layer_norm, rotary: true}]\n";
  const auto block = [&](const char* mlp) {
    return parse_model_blocks(replaced(yaml, "MLP", mlp), "x.yaml").layer(0);
  };
  CHECK(block("relu").activation == Activation::relu);
  CHECK(block("squared_relu").activation == Activation::squared_relu);
  CHECK(block("geglu").activation == Activation::gelu);
  CHECK(block("gated").activation == Activation::silu);
  const ModelSpec model = parse_model_blocks(replaced(yaml, "MLP", "gelu"), "x.yaml");
  CHECK(model.rotary_positions == RotaryPositions{.base = 5e5, .share = 0.25});
  CHECK(model.alibi);
  CHECK_THAT(input_error([&] {
               parse_model_blocks(replaced(replaced(yaml, "MLP", "gelu"), ", rotary: true", ""), "x.yaml");
             }),
             contains_text("rotary: true"));
}
