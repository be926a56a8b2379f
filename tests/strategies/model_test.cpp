// Parameter counts against published totals, each derived from the shape; model FLOPs by hand.
#include "strategies/model.hpp"

#include "tests/catch.hpp"

using namespace orrery;

namespace {

struct Published {
  const char* model;
  std::int64_t parameters;
  const char* derivation;
};

struct LlamaSizes {
  std::int64_t h, layers, q, kv, f, v;
};

// Two norms of h; queries h x q, keys and values h x 2kv, projection q x h; gate, up and down h x f each.
std::int64_t llama_total(const LlamaSizes& size) {
  const auto [h, layers, q, kv, f, v] = size;
  return layers * (2 * h + 2 * h * q + 2 * h * kv + 3 * h * f) + 2 * v * h + h;
}

// QKV h x 3h + 3h, projection h x h + h, MLP h x 4h + 4h and 4h x h + h, two norms of 2h: 12 h^2 + 13 h.
std::int64_t gpt_layers(std::int64_t h, std::int64_t layers) {
  return layers * (12 * h * h + 13 * h);
}

}  // namespace

TEST_CASE("built-in models have their published number of parameters") {
  const auto row = GENERATE(values<Published>({
      {"llama2-7b", 6'738'415'616, "model card, Meta"},
      {"llama2-13b", 13'015'864'320, "model card, Meta"},
      {"llama2-70b", 68'976'648'192, "model card, Meta"},
      {"llama3-8b", 8'030'261'248, "safetensors index"},
      {"llama3-70b", 70'553'706'496, "safetensors index"},
      {"llama3-405b", 405'853'388'800, "safetensors index"},
      {"mistral-7b", 7'241'732'096, "safetensors index"},
      {"mixtral-8x7b", 46'702'792'704, "safetensors index"},
      {"qwen2-7b", 7'615'616'512, "safetensors index; QKV bias"},
      {"qwen2.5-72b", 72'706'203'648, "safetensors index; QKV bias"},
      {"qwen3-8b", 8'190'735'360, "safetensors index; query and key norm"},
      {"qwen3-30b-a3b", 30'532'122'624, "safetensors index; 128 experts"},
      {"qwen3-235b-a22b", 235'093'634'560, "safetensors index; 128 experts"},
      {"gpt-oss-120b", 116'829'156'672 - 36 * (64 + 128),
       "safetensors index, without sinks and router biases"},
      {"gpt2-345m", 354'823'168, "openai-community/gpt2-medium"},
      {"gpt2-1.5b", 1'557'611'200, "openai-community/gpt2-xl"},
      {"gpt-neox-20b", 20'554'567'680, "arXiv 2204.06745, table 1"},
      {"falcon-40b", 41'303'293'952, "num_parameters() of transformers: embeddings tied"},
      {"bloom-176b", 176'247'271'424, "model card, BigScience"},
      {"chatglm3-6b", 6'243'584'000, "safetensors index"},
  }));
  INFO(row.model << ": " << row.derivation);
  CHECK(total_parameters(read_model(row.model)) == row.parameters);
}

TEST_CASE("a Llama count follows from the matrices") {
  CHECK(total_parameters(read_model("llama2-7b")) == llama_total({4096, 32, 4096, 4096, 11008, 32000}));
  CHECK(total_parameters(read_model("llama3-405b")) == llama_total({16384, 126, 16384, 1024, 53248, 128256}));
  // Qwen2 adds a bias of q + 2 kv = 3584 + 2 x 512 a layer.
  CHECK(total_parameters(read_model("qwen2-7b")) ==
        llama_total({3584, 28, 3584, 512, 18944, 152064}) + 28 * (3584 + 2 * 512));
  // Qwen3 adds two norms of head_dim 128 a layer.
  CHECK(total_parameters(read_model("qwen3-8b")) ==
        llama_total({4096, 36, 4096, 1024, 12288, 151936}) + 36 * 2 * 128);
}

TEST_CASE("a GPT count follows from 12 h^2 + 13 h a layer") {
  // Word and position tables, final norm of 2h, output tied.
  CHECK(total_parameters(read_model("gpt2-345m")) == gpt_layers(1024, 24) + (50257 + 1024 + 2) * 1024);
  CHECK(total_parameters(read_model("gpt3-175b")) == gpt_layers(12288, 96) + (50257 + 2048 + 2) * 12288);
  CHECK(static_cast<double>(total_parameters(read_model("gpt3-175b"))) == Approx(174.6e9).epsilon(0.001));
  // Untied, rotary.
  CHECK(total_parameters(read_model("gpt-neox-20b")) == gpt_layers(6144, 44) + (2 * 50432 + 2) * 6144);
}

TEST_CASE("Falcon-7B shares one norm and one key-value head") {
  // A layer: queries and projection h x h, keys and values h x 2 x 64, MLP 8 h^2, one norm of 2h.
  const std::int64_t h = 4544;
  const std::int64_t layers = 32 * (10 * h * h + 2 * 64 * h + 2 * h);
  ModelSpec falcon = read_model("falcon-7b");
  CHECK(total_parameters(falcon) == layers + 65024 * h + 2 * h);
  CHECK(total_parameters(falcon) == 6'921'720'704);
  // The published files hold the tied matrix twice.
  falcon.tied_embeddings = false;
  CHECK(total_parameters(falcon) == 7'217'189'760);
}

TEST_CASE("Mixtral holds eight experts and uses two") {
  const ModelSpec model = read_model("mixtral-8x7b");
  const LayerShape& shape = model.layer(0);
  const std::int64_t expert = 3 * std::int64_t{4096} * 14336;
  CHECK(layer_parameters(shape) - active_layer_parameters(shape) == 6 * expert);
}

TEST_CASE("the GLM models of the Astra paper have the size of their name") {
  CHECK(static_cast<double>(total_parameters(read_model("glm-67b"))) == Approx(67e9).epsilon(0.01));
  CHECK(static_cast<double>(total_parameters(read_model("glm-130b"))) == Approx(130e9).epsilon(0.02));
}

TEST_CASE("model FLOPs are six a parameter and token, plus attention") {
  const ModelSpec model = read_model("gpt2-345m");
  const double tokens = 8 * 1024;
  // The head multiplies by the tied table; position table and final norm do no matrix work worth counting.
  const double parameters = static_cast<double>(gpt_layers(1024, 24) + 50257 * 1024);
  const double attention = 12.0 * 24 * 1024 * 1024 * tokens;
  CHECK(model_flops(model, 8, 1024, AttentionCounting::full) == Approx(6 * parameters * tokens + attention));
  CHECK(model_flops(model, 8, 1024, AttentionCounting::causal) ==
        Approx(6 * parameters * tokens + attention / 2));
}

TEST_CASE("a model that looks both ways has no causal half") {
  const ModelSpec model = read_model("transgan");
  CHECK(model_flops(model, 4, 81, AttentionCounting::causal) ==
        model_flops(model, 4, 81, AttentionCounting::full));
}

TEST_CASE("layers of unequal sequence count their own tokens and windows") {
  const ModelSpec model = read_model("transgan");
  REQUIRE(model.layer_count() == 24);
  const auto layer = [](double h, double tokens, double window) {
    return tokens * (6 * (12 * h * h + 13 * h) + 12 * h * window);
  };
  const double expected = 12 * layer(1024, 81, 81) + 12 * layer(16, 82944, 324);
  CHECK(model_flops(model, 1, 81, AttentionCounting::full) == Approx(expected));
  CHECK(total_parameters(model) == gpt_layers(1024, 12) + gpt_layers(16, 12) + 0);
}
