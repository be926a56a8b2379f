#include "sim/measured/measured_families.hpp"

#include <algorithm>
#include <array>
#include <sstream>

#include "sim/measured/cell_text.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
namespace {

constexpr MlpKind kGated = MlpKind::gated;
constexpr NormKind kRms = NormKind::rms_norm;
constexpr std::string_view kLlamas =
    "llama aquila qwen mistral mixtral grok baichuan internlm chatglm glm-4 deepseek skywork yi- xverse "
    "granite phi-3 phi-4 vicuna exaone telechat ernie-4 hunyuan";
constexpr LayerFamily kLlama{.words = kLlamas, .name = "Llama", .mlp = kGated, .norm = kRms, .rotary = true};
constexpr LayerFamily kGpt{.name = "GPT", .bias = true, .learned_positions = true, .tied = true};
// Gated, rotary and tied, with a norm before and after each half of a layer.
constexpr LayerFamily gemma(std::string_view words, const char* name) {
  return {
      .words = words, .name = name, .mlp = kGated, .norm = kRms, .rotary = true, .tied = true, .norms = 4};
}
constexpr LayerFamily gemma_2() {
  LayerFamily family = gemma("gemma-2- gemma2", "Gemma 2");
  family.capped_scores = family.capped_logits = true;
  return family;
}
constexpr LayerFamily gemma_3() {
  LayerFamily family = gemma("gemma-3- gemma3", "Gemma 3");
  family.qk_norm = true;
  return family;
}
constexpr LayerFamily gemma_4() {
  LayerFamily family = gemma("gemma-4- gemma4", "Gemma 4");
  family.qk_norm = family.capped_logits = true;
  return family;
}
constexpr LayerFamily qwen_3() {
  LayerFamily family = kLlama;
  family.words = "qwen3 qwen-3";
  family.name = "Qwen3";
  family.qk_norm = true;
  return family;
}
// The first whose words a name has.
constexpr std::array kFamilies{
    qwen_3(),
    kLlama,
    gemma_2(),
    gemma_3(),
    gemma_4(),
    LayerFamily{.words = "gemma smollm minicpm",
                .name = "Llama, tied",
                .mlp = kGated,
                .norm = kRms,
                .rotary = true,
                .tied = true},
    LayerFamily{.words = "nemotron", .name = "Nemotron-4", .rotary = true},
    LayerFamily{.words = "apertus", .name = "Apertus", .norm = kRms, .rotary = true, .qk_norm = true},
    LayerFamily{.words = "neox pythia gpt-j gptj phi-1 phi-2",
                .name = "GPT-NeoX",
                .bias = true,
                .rotary = true,
                .parallel_residual = true},
    LayerFamily{.words = "falcon", .name = "Falcon", .rotary = true, .tied = true, .parallel_residual = true},
    LayerFamily{.words = "cohere command-r",
                .name = "Command R",
                .mlp = kGated,
                .rotary = true,
                .tied = true,
                .parallel_residual = true},
    LayerFamily{.words = "olmoe olmo-2 olmo2 olmo-3 olmo3",
                .name = "OLMo 2",
                .mlp = kGated,
                .norm = kRms,
                .rotary = true,
                .qk_norm = true,
                .wide_qk_norm = true},
    LayerFamily{.words = "stablelm olmo", .name = "StableLM", .mlp = kGated, .rotary = true},
    LayerFamily{
        .words = "glm", .name = "GLM-130B", .mlp = kGated, .bias = true, .rotary = true, .tied = true},
    LayerFamily{.words = "starcoder2", .name = "StarCoder2", .bias = true, .rotary = true, .tied = true},
    LayerFamily{.words = "starcoder santacoder",
                .name = "StarCoder",
                .bias = true,
                .learned_positions = true,
                .tied = true},
    LayerFamily{.words = "bloom", .name = "BLOOM", .bias = true, .tied = true},
    LayerFamily{.words = "mpt", .name = "MPT", .tied = true},
    LayerFamily{.words = "bert",
                .name = "BERT",
                .bias = true,
                .learned_positions = true,
                .tied = true,
                .both_ways = true},
};

bool says_one_of(std::string_view text, std::string_view words) {
  std::istringstream all{std::string(words)};
  for (std::string word; all >> word;) {
    if (says(text, word)) return true;
  }
  return false;
}

}  // namespace

std::string to_text(const LayerFamily& family) {
  std::string text = std::string(family.name) + ": ";
  text += family.mlp == MlpKind::gated ? "gated MLP, " : "GELU or ReLU, ";
  text += family.norm == NormKind::rms_norm ? "RMSNorm, " : "LayerNorm, ";
  text += family.rotary ? "rotary, " : family.learned_positions ? "learned positions, " : "ALiBi, ";
  text += family.tied ? "tied" : "untied";
  text += family.bias ? ", biases" : ", no biases";
  if (family.both_ways) text += ", attention both ways";
  if (family.parallel_residual) text += ", attention and MLP in parallel";
  if (family.norms != 2) text += ", " + std::to_string(family.norms) + " norms a layer";
  if (family.qk_norm) text += ", normalised queries and keys";
  if (family.wide_qk_norm) text += " over all heads";
  if (family.capped_scores) text += ", capped scores";
  if (family.capped_logits) text += ", capped logits";
  return text;
}

const LayerFamily& family_of(const MeasuredRun& run, std::int64_t hidden) {
  std::string name = lower_case(run.text("model"));
  std::replace(name.begin(), name.end(), ' ', '-');
  const auto* known = std::find_if(kFamilies.begin(), kFamilies.end(), [&](const LayerFamily& family) {
    return says_one_of(name, family.words);
  });
  if (known != kFamilies.end()) return *known;
  if (says(name, "gpt")) return kGpt;
  if (const auto ffn = run.integer("ffn", kMostFfn)) return *ffn == 4 * hidden ? kGpt : kLlama;
  const auto heads = run.integer("heads", kMostHeads), kv_heads = run.integer("kv_heads", kMostHeads);
  return heads && kv_heads && *kv_heads < *heads ? kLlama : kGpt;
}

}  // namespace orrery
