// Models of the Llama form: RMSNorm, rotary positions, gated MLP, grouped queries; dense or with experts.
#include <algorithm>

#include "strategies/huggingface.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
namespace {

void read_heads(const JsonConfig& config, LayerShape& shape) {
  shape.heads = config.integer("num_attention_heads", {1, kMostHeads});
  shape.kv_heads = config.find_integer("num_key_value_heads", {1, kMostHeads}).value_or(shape.heads);
  if (shape.heads % shape.kv_heads != 0)
    config.fail("num_key_value_heads", "a divisor of num_attention_heads " + std::to_string(shape.heads));
  const auto head_dim = config.find_integer("head_dim", {1, kMostHeadDim});
  if (!head_dim && shape.hidden % shape.heads != 0)
    config.fail("num_attention_heads",
                "a divisor of hidden_size " + std::to_string(shape.hidden) + ", or a head_dim");
  shape.head_dim = head_dim.value_or(shape.hidden / shape.heads);
}

// Gemma 2's, unless its file has null in their place (configuration_gemma2.py).
bool caps(const JsonConfig& config, const std::string& key) {
  constexpr std::int64_t kHighestCap = 1'000'000;
  if (config.text("model_type") != "gemma2") return false;
  const std::vector<std::string> keys = config.keys();
  const bool said = std::find(keys.begin(), keys.end(), key) != keys.end();
  return !said || config.find_number(key, {1, kHighestCap}).has_value();
}

// Which biases and norms a family has besides its matrices, from the modelling files of Hugging Face
// transformers.
void read_family_details(const JsonConfig& config, LayerShape& shape) {
  const std::string type = config.text("model_type");
  const bool attention_bias = config.find_boolean("attention_bias").value_or(false);
  shape.qkv_bias = attention_bias || config.find_boolean("qkv_bias").value_or(false);
  // GLM applies attention_bias to queries, keys and values only; Llama and Qwen3 to the projection as well,
  // Seed-OSS where it says so.
  const bool apart = type == "glm" || type == "glm4" || type == "glm4_moe" || type == "seed_oss";
  shape.projection_bias = config.find_boolean("attention_out_bias").value_or(attention_bias && !apart);
  shape.mlp_bias = config.find_boolean("mlp_bias").value_or(false);
  if (type.starts_with("qwen2"))  // always has a QKV bias, whatever the file says
    shape.qkv_bias = config.find_boolean("qkv_bias").value_or(true);
  shape.qk_norm = type == "qwen3" || type == "qwen3_moe" || type == "dots1" ||
                  config.find_boolean("use_qk_norm").value_or(false);
  shape.norms = type == "glm4" || type == "gemma2" ? 4 : 2;
  shape.capped_scores = caps(config, "attn_logit_softcapping");
}

ModelSpec llama_frame(const JsonConfig& config) {
  const std::string type = config.text("model_type");
  ModelSpec model = modern_frame(config);
  model.tied_embeddings =
      config.find_boolean("tie_word_embeddings").value_or(type == "gemma" || type == "gemma2");
  model.capped_logits = caps(config, "final_logit_softcapping");
  return model;
}

LayerShape mixture_shape(const JsonConfig& config, LayerShape shape) {
  const bool mixtral = config.text("model_type") == "mixtral";
  shape = with_experts(config, shape,
                       {mixtral ? "num_local_experts" : "num_experts", "num_experts_per_tok",
                        mixtral ? "intermediate_size" : "moe_intermediate_size"});
  shape.shared_ffn = config.find_integer("shared_expert_intermediate_size", {0, kMostFfn}).value_or(0);
  shape.shared_gate = shape.shared_ffn > 0;
  return shape;
}

}  // namespace

LayerShape llama_shape(const JsonConfig& config) {
  LayerShape shape = modern_shape(config);
  read_heads(config, shape);
  read_family_details(config, shape);
  return shape;
}

ModelSpec read_llama_like(const JsonConfig& config) {
  ModelSpec model = llama_frame(config);
  append_windowed(config, model, llama_shape(config));
  return model;
}

// Layer i has experts when it is not in mlp_only_layers and i + 1 is a multiple of decoder_sparse_step.
ModelSpec read_mixture(const JsonConfig& config) {
  ModelSpec model = llama_frame(config);
  const LayerShape dense = llama_shape(config);
  const LayerShape sparse = mixture_shape(config, dense);
  const std::vector<std::int64_t> windows = attention_windows(config, model);
  const auto layers = static_cast<std::int64_t>(windows.size());
  const std::int64_t step = config.find_integer("decoder_sparse_step", {1, kMostLayers}).value_or(1);
  const auto dense_layers = config.find_integers("mlp_only_layers", {0, layers - 1});
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool listed = std::find(dense_layers.begin(), dense_layers.end(), i) != dense_layers.end();
    LayerShape layer = listed || (i + 1) % step != 0 ? dense : sparse;
    layer.attention_window = windows[static_cast<std::size_t>(i)];
    append_layers(model, layer, 1);
  }
  return model;
}

// GLM-4.5, dots.llm1: after dense layers ones with experts, and layers that predict further tokens, as
// DeepSeek-V3 has them.
ModelSpec read_glm4_moe(const JsonConfig& config) {
  ModelSpec model = llama_frame(config);
  const bool glm = config.text("model_type") == "glm4_moe";
  const LayerShape dense = llama_shape(config);
  LayerShape sparse = with_routed_experts(config, dense);
  sparse.router_bias = true;  // e_score_correction_bias
  const std::int64_t layers = config.integer("num_hidden_layers", {1, kMostLayers});
  const std::int64_t first = config.find_integer("first_k_dense_replace", {0, layers}).value_or(glm ? 1 : 0);
  append_layers(model, dense, first);
  append_layers(model, sparse, layers - first);
  append_predictions(config, model, sparse);
  return model;
}

}  // namespace orrery
