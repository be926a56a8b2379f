// Parameter counts against published totals, each derived from the shape; model FLOPs by hand.
#include <cmath>

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
      {"llama3.1-8b", 8'030'261'248, "safetensors index"},
      {"llama3.1-70b", 70'553'706'496, "safetensors index"},
      {"llama3.2-1b", 1'235'814'400, "safetensors index; tied"},
      {"llama3.2-3b", 3'212'749'824, "safetensors index; tied"},
      {"llama-65b", 65'285'660'672, "arXiv 2302.13971: 65.2B"},
      {"tinyllama-1.1b", 1'100'048'384, "safetensors index"},
      {"yi-34b", 34'388'917'248, "safetensors index"},
      {"smollm3-3b", 3'075'098'624, "safetensors index; tied"},
      {"phi3-mini", 3'821'079'552, "safetensors index"},
      {"mistral-nemo-12b", 12'247'782'400, "safetensors index"},
      {"pythia-6.9b", 6'857'302'016, "model card, EleutherAI"},
      {"pythia-12b", 11'846'072'320, "model card, EleutherAI"},
      {"qwen2.5-0.5b", 494'032'768, "model card: 0.49B; tied, QKV bias"},
      {"qwen2.5-1.5b", 1'543'714'304, "model card: 1.54B; tied, QKV bias"},
      {"qwen2.5-3b", 3'085'938'688, "model card: 3.09B; tied, QKV bias"},
      {"qwen2.5-7b", 7'615'616'512, "safetensors index; QKV bias"},
      {"qwen2.5-14b", 14'770'033'664, "safetensors index; QKV bias"},
      {"qwen2.5-32b", 32'763'876'352, "safetensors index; QKV bias"},
      {"qwen3-0.6b", 596'049'920, "safetensors index; tied"},
      {"qwen3-1.7b", 1'720'574'976, "safetensors index; tied"},
      {"qwen3-4b", 4'022'468'096, "safetensors index; tied"},
      {"qwen3-14b", 14'768'307'200, "safetensors index"},
      {"qwen3-32b", 32'762'123'264, "safetensors index"},
      {"mistral-7b", 7'241'732'096, "safetensors index"},
      {"mixtral-8x7b", 46'702'792'704, "safetensors index"},
      {"mixtral-8x22b", 140'620'634'112, "safetensors index"},
      {"qwen2-7b", 7'615'616'512, "safetensors index; QKV bias"},
      {"qwen2.5-72b", 72'706'203'648, "safetensors index; QKV bias"},
      {"qwen3-8b", 8'190'735'360, "safetensors index; query and key norm"},
      {"qwen3-30b-a3b", 30'532'122'624, "safetensors index; 128 experts"},
      {"qwen3-235b-a22b", 235'093'634'560, "safetensors index; 128 experts"},
      {"gpt-oss-120b", 116'829'156'672, "safetensors index"},
      {"gpt-oss-20b", 20'914'757'184, "safetensors index"},
      {"deepseek-v3", 671'026'419'200, "DeepSeek-V3: 671B, router biases among them"},
      {"deepseek-v2", 235'741'434'880, "arXiv 2405.04434: 236B"},
      {"deepseek-v2-lite", 15'706'484'224, "safetensors index: 15.7B"},
      {"nemotron-h-8b", 8'100'852'736, "arXiv 2504.03624: 8B"},
      {"nemotron-h-56b", 56'324'350'464, "arXiv 2504.03624: 56B"},
      {"olmo2-7b", 7'298'617'344, "safetensors index; query and key norms over all heads"},
      {"olmo2-13b", 13'716'198'400, "model card: 13B"},
      {"olmo2-32b", 32'234'279'936, "model card: 32B"},
      {"olmo3-7b", 7'298'011'136, "model card: 7B"},
      {"olmo3-32b", 32'233'522'176, "model card: 32B"},
      {"olmoe-1b-7b", 6'919'161'856, "safetensors index; 64 experts"},
      {"gemma3-27b", 27'009'346'304, "safetensors index, of text"},
      {"gemma2-9b", 9'241'705'984, "safetensors index: 36,966,823,936 B of fp32"},
      {"gemma2-27b", 27'227'128'320, "safetensors index: 54,454,256,640 B of bf16"},
      {"nemotron-3-nano", 31'577'940'288, "model card: 31.6B"},
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

TEST_CASE("a Qwen2-MoE count follows from its experts, and the one every token visits behind a gate") {
  // 28 query and 4 key heads of 128 with biases, two norms, a router, 64 experts of 2560, one of 20480.
  const std::int64_t h = 3584, keys = 512;
  const std::int64_t attention = 2 * h * h + h + 2 * (h * keys + keys);
  const std::int64_t experts = h * 64 + 64 * 3 * h * 2560 + 3 * h * 20480 + h;
  const std::int64_t total = 28 * (attention + 2 * h + experts) + 2 * 151936 * h + h;
  CHECK(total_parameters(read_model("qwen2-57b-a14b")) == total);
  CHECK(std::abs(static_cast<double>(total) / 57.4e9 - 1) < 0.001);  // its name
}

TEST_CASE("a DeepSeek count follows from its factored projections") {
  // Down to 1536 and 512 + 64, two norms, up to 128 heads of 128 + 64 and of 128 + 128, projection 128 x 128
  // x h.
  const std::int64_t h = 7168, heads = 128;
  const std::int64_t attention =
      h * 1536 + h * (512 + 64) + 1536 + 512 + 1536 * heads * 192 + 512 * heads * 256 + heads * 128 * h;
  const std::int64_t dense = 3 * h * 18432;
  const std::int64_t expert = 3 * h * 2048;
  const std::int64_t sparse = 257 * expert + 256 * h + 256;  // a shared one, the router and its bias
  const std::int64_t tables = 2 * 129280 * h + h;
  const ModelSpec model = read_model("deepseek-v3");
  CHECK(total_parameters(model) == 61 * (attention + 2 * h) + 3 * dense + 58 * sparse + tables);
  // 8 of 256 experts: "37B activated" of arXiv 2412.19437.
  std::int64_t active = embedding_parameters(model) + head_parameters(model);
  for (int i = 0; i < model.layer_count(); ++i) active += active_layer_parameters(model.layer(i));
  CHECK(static_cast<double>(active) == Approx(37e9).epsilon(0.02));
  // "MTP: 11.5B unique parameters" (DeepSeek-V3, README_WEIGHTS.md): a layer, 2h x h, three norms.
  CHECK(total_parameters(read_model("deepseek-v3-mtp")) - total_parameters(model) ==
        attention + 2 * h + sparse + 2 * h * h + 3 * h);
  CHECK(static_cast<double>(attention + 2 * h + sparse + 2 * h * h + 3 * h) == Approx(11.5e9).epsilon(0.01));
}

TEST_CASE(
    "a Llama 4 count follows from its attention, and the expert of each layer that every token visits") {
  // 40 query and 8 key heads of 128, two norms; MLPs of 16384, or a router, experts and a shared one of 8192.
  const std::int64_t h = 5120, v = 202'048;
  const std::int64_t attention = 2 * h * h + 2 * h * 1024 + 2 * h;
  const auto sparse = [&](std::int64_t experts) { return (experts + 1) * 3 * h * 8192 + h * experts; };
  const std::int64_t ends = 2 * v * h + h;
  const ModelSpec maverick = read_model("llama4-maverick");
  CHECK(total_parameters(maverick) == 48 * attention + 24 * (3 * h * 16'384 + sparse(128)) + ends);
  CHECK(total_parameters(read_model("llama4-scout")) == 48 * (attention + sparse(16)) + ends);
  // Model card: 17B activated of 400B, of 109B where images are read, too.
  CHECK(static_cast<double>(total_parameters(maverick)) == Approx(400e9).epsilon(0.005));
  std::int64_t active = embedding_parameters(maverick) + head_parameters(maverick);
  for (int i = 0; i < 48; ++i) active += active_layer_parameters(maverick.layer(i));
  CHECK(static_cast<double>(active) == Approx(17e9).epsilon(0.02));
  // Three layers of four attend within chunks of 8192 tokens; experts are in every second.
  for (int i = 0; i < 8; ++i) {
    CHECK(maverick.layer(i).attention_window == (i % 4 == 3 ? 0 : 8192));
    CHECK(maverick.layer(i).experts == (i % 2 == 1 ? 128 : 1));
  }
}

TEST_CASE("a GLM-4.5 count follows from its dense layers, its experts and the norms of queries and keys") {
  const std::int64_t h = 5120, v = 151'552, queries = 96 * 128, keys = 8 * 128;
  const std::int64_t attention =
      2 * h * queries + 2 * h * keys + queries + 2 * keys + 2 * 128 + 2 * h;  // biases of Q, K and V
  const std::int64_t sparse = 161 * 3 * h * 1536 + 160 * h + 160;
  const std::int64_t total = 92 * attention + 3 * 3 * h * 12'288 + 89 * sparse + 2 * v * h + h;
  CHECK(total_parameters(read_model("glm-4.5")) == total);
  CHECK(static_cast<double>(total) == Approx(355e9).epsilon(0.01));  // its model card
}

TEST_CASE("Kimi K2 is DeepSeek-V3 with half of the heads and 384 experts") {
  const std::int64_t h = 7168, heads = 64, expert = 3 * h * 2048;
  const std::int64_t attention =
      h * 1536 + h * (512 + 64) + 1536 + 512 + 1536 * heads * 192 + 512 * heads * 256 + heads * 128 * h;
  CHECK(total_parameters(read_model("kimi-k2")) ==
        61 * (attention + 2 * h) + 3 * h * 18432 + 60 * (385 * expert + 384 * h + 384) + 2 * 163840 * h + h);
  // "1.04T" of arXiv 2507.20534, table 2, is printed with two digits after the point of its 1,026 billion.
  CHECK(static_cast<double>(total_parameters(read_model("kimi-k2"))) == Approx(1.04e12).epsilon(0.02));
}

TEST_CASE("a hybrid count follows from its pattern") {
  // 23 Mamba-2 layers: 64 heads of 64, 8 groups of state 128; gate and values 2 x 4096, B and C 2 x 1024, 64
  // steps; convolution of 4 with bias over 4096 + 2048; three values a head, gated norm, projection, norm of
  // the layer.
  const std::int64_t h = 2688, inner = 64 * 64, convolved = inner + 2 * 8 * 128;
  const std::int64_t mamba = h * (inner + convolved + 64) + 5 * convolved + 3 * 64 + inner + inner * h + h;
  const std::int64_t attention = 2 * h * 32 * 128 + 2 * h * 2 * 128 + h;
  const std::int64_t experts = 128 * 2 * h * 1856 + 2 * h * 3712 + 128 * h + 128 + h;
  const ModelSpec nano = read_model("nemotron-3-nano");
  CHECK(total_parameters(nano) == 23 * mamba + 6 * attention + 23 * experts + 2 * 131072 * h + h);
  // Super's experts work at width 1024: "120B" with 12B active.
  const ModelSpec super = read_model("nemotron-3-super");
  const std::int64_t latent = 512 * 2 * std::int64_t{1024} * 2688 + 2 * std::int64_t{4096} * (5376 + 1024) +
                              513 * std::int64_t{4096} - 4096 + 512 + 4096;
  CHECK(layer_parameters(super.layer(1)) == latent);
  CHECK(static_cast<double>(total_parameters(super)) == Approx(120e9).epsilon(0.01));
}

TEST_CASE("model FLOPs of latent attention and scans count their widths") {
  // FLOPs a token that Megatron-Bridge's tables imply (TFLOP/s over tokens/s of one GPU): 249.7 GFLOP of
  // DeepSeek-V3 without multi-token prediction, 260.4 with it, 204.6 of Kimi K2, at 4,096 tokens.
  const auto per_token = [](const char* name, std::int64_t sequence) {
    return model_flops(read_model(name), 1, sequence, AttentionCounting::causal) /
           static_cast<double>(sequence);
  };
  CHECK(per_token("deepseek-v3", 4096) == Approx(249.7e9).epsilon(0.02));
  CHECK(per_token("deepseek-v3-mtp", 4096) == Approx(260.4e9).epsilon(0.02));
  CHECK(per_token("kimi-k2", 4096) == Approx(204.6e9).epsilon(0.02));
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

TEST_CASE("the FLOPs of a utilisation count all parameters, of experts those that a token meets") {
  for (const char* name : {"gpt2-345m", "llama2-7b", "bloom-176b", "mixtral-8x7b"}) {
    const ModelSpec model = read_model(name);
    const double tokens = 2 * 2048.0;
    double parameters = static_cast<double>(total_parameters(model));
    for (int i = 0; i < model.layer_count(); ++i)
      parameters -=
          static_cast<double>(layer_parameters(model.layer(i)) - active_layer_parameters(model.layer(i)));
    const double attention = 12.0 * model.layer_count() * static_cast<double>(model.hidden) * 2048 * tokens;
    CHECK(utilisation_flops(model, 2, 2048, AttentionCounting::full) ==
          Approx(6 * parameters * tokens + attention));
  }
}

TEST_CASE("a model that looks both ways has no causal half") {
  const ModelSpec model = read_model("transgan");
  CHECK(model_flops(model, 4, 81, AttentionCounting::causal) ==
        model_flops(model, 4, 81, AttentionCounting::full));
}

TEST_CASE("layers of unequal sequence count their own tokens and windows") {
  const ModelSpec model = read_model("transgan");
  REQUIRE(model.layer_count() == 24);
  // RMSNorms have no biases, 2 of the 13 h beside a GPT layer's matrices.
  const auto layer = [](double h, double tokens, double window) {
    return tokens * (6 * (12 * h * h + 11 * h) + 12 * h * window);
  };
  const double expected = 12 * layer(1024, 81, 81) + 12 * layer(16, 82944, 324);
  CHECK(model_flops(model, 1, 81, AttentionCounting::full) == Approx(expected));
  // The input projection from 512 numbers, with its bias, and a position table.
  const std::int64_t input = (512 + 1 + 1) * 81 * 1024;
  CHECK(total_parameters(model) == gpt_layers(1024, 12) + gpt_layers(16, 12) - 12 * 2 * (1024 + 16) + input);
}

TEST_CASE("a window beyond the sequence attends to the sequence") {
  // Three of four layers of Llama 4 attend within chunks of 8,192 tokens.
  const ModelSpec windowed = read_model("llama4-scout");
  ModelSpec whole = windowed;
  for (LayerShape& shape : whole.shapes) shape.attention_window = 0;
  const auto flops = [](const ModelSpec& model, std::int64_t sequence) {
    return model_flops(model, 1, sequence, AttentionCounting::full);
  };
  for (const std::int64_t sequence : {1, 4096, 8192})
    CHECK(flops(windowed, sequence) == flops(whole, sequence));
  // At 16,384 tokens 36 of 48 layers attend to 8,192 fewer: 12 x 40 heads x 128 FLOPs each of them.
  CHECK(flops(whole, 16'384) - flops(windowed, 16'384) ==
        Approx(36 * 12.0 * 40 * 128 * 8192 * 16'384).epsilon(1e-9));
}
