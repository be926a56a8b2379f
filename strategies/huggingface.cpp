#include "strategies/huggingface.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "platforms/errors.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
namespace {

struct Family {
  std::string_view model_type;
  ModelSpec (*read)(const JsonConfig&);
};

constexpr std::array kFamilies{
    Family{"apertus", read_apertus},
    Family{"baichuan", read_baichuan},
    Family{"bailing_moe", read_bailing_moe},
    Family{"bloom", read_bloom},
    Family{"chatglm", read_chatglm},
    Family{"cohere", read_cohere},
    Family{"cohere2", read_cohere},
    Family{"dbrx", read_dbrx},
    Family{"deepseek", read_deepseek},
    Family{"deepseek_v2", read_deepseek},
    Family{"deepseek_v3", read_deepseek},
    Family{"dots1", read_glm4_moe},
    Family{"ernie4_5", read_ernie},
    Family{"ernie4_5_moe", read_ernie_moe},
    Family{"exaone4", read_exaone4},
    Family{"falcon", read_falcon},
    Family{"gemma", read_llama_like},
    Family{"gemma2", read_llama_like},
    Family{"gemma3_text", read_gemma3},
    Family{"glm", read_llama_like},
    Family{"glm4", read_llama_like},
    Family{"glm4_moe", read_glm4_moe},
    Family{"gpt2", read_gpt2},
    Family{"gpt_bigcode", read_gpt2},
    Family{"gpt_neo", read_gpt_neo},
    Family{"gpt_neox", read_gpt_neox},
    Family{"gpt_oss", read_gpt_oss},
    Family{"gptj", read_gptj},
    Family{"granite", read_llama_like},
    Family{"granitemoe", read_granite_moe},
    Family{"granitemoeshared", read_granite_moe},
    Family{"hunyuan_v1_dense", read_hunyuan_dense},
    Family{"internlm", read_internlm},
    Family{"internlm2", read_internlm},
    Family{"kimi_k2", read_deepseek},
    Family{"llama", read_llama_like},
    Family{"llama4_text", read_llama4},
    Family{"minicpm", read_minicpm},
    Family{"mistral", read_llama_like},
    Family{"mixtral", read_mixture},
    Family{"mpt", read_mpt},
    Family{"nemotron", read_nemotron},
    Family{"nemotron_h", read_nemotron_h},
    Family{"olmo2", read_olmo2},
    Family{"olmo3", read_olmo2},
    Family{"olmoe", read_olmoe},
    Family{"opt", read_opt},
    Family{"phi", read_phi},
    Family{"phi3", read_llama_like},
    Family{"phimoe", read_phimoe},
    Family{"qwen", read_first_qwen},
    Family{"qwen2", read_llama_like},
    Family{"qwen2_5_vl", read_llama_like},
    Family{"qwen2_5_vl_text", read_llama_like},
    Family{"qwen2_moe", read_mixture},
    Family{"qwen2_vl", read_llama_like},
    Family{"qwen2_vl_text", read_llama_like},
    Family{"qwen3", read_llama_like},
    Family{"qwen3_moe", read_mixture},
    Family{"seed_oss", read_llama_like},
    Family{"smollm3", read_smollm3},
    Family{"stablelm", read_stablelm},
    Family{"starcoder2", read_starcoder2},
};

// The last part of "meta-llama/Llama-2-7b-hf"; else the file's stem, or its folder where the stem says
// nothing.
std::string name_of(const JsonConfig& config) {
  const std::string origin = config.find_text("_name_or_path").value_or("");
  if (!origin.empty()) return std::filesystem::path(origin).filename().string();
  const std::filesystem::path path(config.file());
  const std::string stem = path.stem().string();
  return stem == "config" && path.has_parent_path() ? path.parent_path().filename().string() : stem;
}

// Labels in the place of words, by the class in `architectures`: a span's two ends, or as many as id2label
// names, else two (transformers' PretrainedConfig). Of a sequence as of a token every token has them.
void take_outputs(const JsonConfig& config, ModelSpec& model) {
  constexpr std::int64_t kUsual = 2;
  for (const std::string& name : config.find_texts("architectures")) {
    const auto ends = [&](std::string_view ending) { return std::string_view(name).ends_with(ending); };
    const bool labels = ends("ForSequenceClassification") || ends("ForTokenClassification");
    if (!labels && !ends("ForQuestionAnswering")) continue;
    const auto named = config.find_object("id2label");
    const std::int64_t count =
        named && !named->keys().empty() ? static_cast<std::int64_t>(named->keys().size()) : kUsual;
    model.give_outputs(labels ? config.find_integer("num_labels", {1, kMostVocabulary}).value_or(count)
                              : kUsual);
  }
}

// By its own `model_type`.
ModelSpec read_family(const JsonConfig& config) {
  const std::string type = config.text("model_type");
  const auto family = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [&](const Family& row) { return row.model_type == type; });
  if (family == kFamilies.end()) {
    const auto known = huggingface_model_types();
    config.fail("model_type", "one of " + comma_list(known) + did_you_mean(type, known));
  }
  return with_details(config, family->read(config));
}

}  // namespace

std::vector<std::string> huggingface_model_types() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.model_type);
  return names;
}

ModelSpec model_from_config(const JsonConfig& config) {
  // A model that also sees or hears (llama4, gemma3, mistral3, qwen2_vl): what it reads and writes text with.
  const auto text = config.find_object("text_config");
  ModelSpec model = text ? model_from_config(*text) : read_family(config);
  model.name = name_of(config);
  take_outputs(config, model);
  return model;
}

std::int64_t sequence_of(const JsonConfig& config, const std::string& key) {
  return config.find_integer(key, {1, kMostSequence}).value_or(0);
}

ModelSpec modern_frame(const JsonConfig& config) {
  ModelSpec model;
  model.hidden = config.integer("hidden_size", {1, kMostHidden});
  model.vocabulary = config.integer("vocab_size", {1, kMostVocabulary});
  model.default_sequence = sequence_of(config, "max_position_embeddings");
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(false);
  model.final_norm = NormKind::rms_norm;
  return model;
}

LayerShape modern_shape(const JsonConfig& config) {
  LayerShape shape;
  shape.hidden = config.integer("hidden_size", {1, kMostHidden});
  shape.ffn = config.integer("intermediate_size", {1, kMostFfn});
  shape.mlp = MlpKind::gated;
  shape.norm = NormKind::rms_norm;
  shape.linear_bias = false;
  shape.rotary = true;
  return shape;
}

LayerShape with_experts(const JsonConfig& config, LayerShape shape, const ExpertKeys& keys) {
  shape.experts = config.integer(keys.experts, {2, kMostExperts});
  shape.experts_per_token = config.integer(keys.per_token, {1, shape.experts});
  shape.ffn = config.integer(keys.ffn, {1, kMostFfn});
  return shape;
}

LayerShape with_routed_experts(const JsonConfig& config, LayerShape shape) {
  shape = with_experts(config, shape, {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"});
  // Shared experts see every token: together they are one that is so much wider.
  shape.shared_ffn = shape.ffn * config.find_integer("n_shared_experts", {0, kMostExperts}).value_or(0);
  return shape;
}

void append_layers(ModelSpec& model, const LayerShape& shape, std::int64_t count) {
  if (count == 0) return;  // a shape of no layer is none of the model's
  const auto known = std::find(model.shapes.begin(), model.shapes.end(), shape);
  const auto index = static_cast<int>(known - model.shapes.begin());
  if (known == model.shapes.end()) model.shapes.push_back(shape);
  model.layers.insert(model.layers.end(), static_cast<std::size_t>(count), index);
}

void append_predictions(const JsonConfig& config, ModelSpec& model, LayerShape layer) {
  layer.joins_embedding = true;
  layer.predicted_vocabulary = model.vocabulary;
  const std::int64_t room = kMostLayers - model.layer_count();
  append_layers(model, layer, config.find_integer("num_nextn_predict_layers", {0, room}).value_or(0));
}

}  // namespace orrery
