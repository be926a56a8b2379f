// Nemotron-H and Nemotron 3: layers of one part each, Mamba-2, attention, MLP or experts, in the order of a
// pattern.
#include <string>

#include "strategies/huggingface.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
namespace {

// Norm, no biases and squared ReLU are the same in every part (modeling_nemotron_h.py).
LayerShape common_shape(const JsonConfig& config) {
  for (const char* key : {"attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"})
    if (config.find_boolean(key).value_or(false))
      config.fail(key, "false: no published model of this family has such biases");
  if (!config.find_boolean("use_conv_bias").value_or(true))
    config.fail("use_conv_bias", "true: the convolution of every published model has a bias");
  LayerShape shape;
  shape.hidden = config.integer("hidden_size", {1, kMostHidden});
  shape.norm = NormKind::rms_norm;
  shape.norms = 1;
  shape.linear_bias = false;
  return shape;
}

LayerShape mamba_shape(const JsonConfig& config, LayerShape shape) {
  shape.state_space = {.heads = config.integer("mamba_num_heads", {1, kMostHeads}),
                       .head_dim = config.integer("mamba_head_dim", {1, kMostHeadDim}),
                       .groups = config.integer("n_groups", {1, kMostHeads}),
                       .state = config.integer("ssm_state_size", {1, kMostHeadDim}),
                       .convolution = config.find_integer("conv_kernel", {1, kMostHeadDim}).value_or(4),
                       .chunk = config.find_integer("chunk_size", {1, kMostSequence}).value_or(128)};
  if (shape.state_space.heads % shape.state_space.groups != 0)
    config.fail("n_groups", "a divisor of mamba_num_heads " + std::to_string(shape.state_space.heads));
  return shape;
}

// Without rotary positions: Mamba layers know the order of tokens.
LayerShape attention_shape(const JsonConfig& config, LayerShape shape) {
  shape.heads = config.integer("num_attention_heads", {1, kMostHeads});
  shape.kv_heads = config.integer("num_key_value_heads", {1, kMostHeads});
  if (shape.heads % shape.kv_heads != 0)
    config.fail("num_key_value_heads", "a divisor of num_attention_heads " + std::to_string(shape.heads));
  const char* key = config.has("head_dim") ? "head_dim" : "attention_head_dim";
  shape.head_dim = config.integer(key, {1, kMostHeadDim});
  return shape;
}

LayerShape experts_shape(const JsonConfig& config, LayerShape shape) {
  shape = with_experts(config, shape, {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"});
  shape.expert_hidden = config.find_integer("moe_latent_size", {0, kMostHidden}).value_or(0);
  if (config.find_integer("n_shared_experts", {0, kMostExperts}).value_or(0) > 0)
    shape.shared_ffn = config.integer("moe_shared_expert_intermediate_size", {1, kMostFfn});
  shape.router_bias = true;  // e_score_correction_bias
  return shape;
}

LayerShape part_of(const JsonConfig& config, const std::string& key, char symbol) {
  LayerShape shape = common_shape(config);
  switch (symbol) {
    case 'M':
      return mamba_shape(config, shape);
    case '*':
      return attention_shape(config, shape);
    case 'E':
      return experts_shape(config, shape);
    case '-':
      shape.ffn = config.integer("intermediate_size", {1, kMostFfn});
      return shape;
    default:
      config.fail(key, "a text of M (Mamba-2), * (attention), - (MLP) and E (experts), one for each layer");
  }
}

void append_prediction(const JsonConfig& config, ModelSpec& model, std::int64_t depths) {
  const std::string key = "mtp_hybrid_override_pattern";
  const std::string pattern = config.text(key);
  if (pattern.empty()) config.fail(key, "at least one layer");
  for (std::int64_t depth = 0; depth < depths; ++depth) {
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      LayerShape shape = part_of(config, key, pattern[i]);
      shape.joins_embedding = i == 0;
      shape.predicted_vocabulary = i + 1 == pattern.size() ? model.vocabulary : 0;
      append_layers(model, shape, 1);
    }
  }
}

}  // namespace

ModelSpec read_nemotron_h(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  const std::string key = "hybrid_override_pattern";
  const std::string pattern = config.text(key);
  const auto layers = config.integer("num_hidden_layers", {1, kMostLayers});
  if (static_cast<std::int64_t>(pattern.size()) != layers)
    config.fail(key, "a text of num_hidden_layers = " + std::to_string(layers) + " characters");
  for (const char symbol : pattern) append_layers(model, part_of(config, key, symbol), 1);
  constexpr std::int64_t kMostDepths = 16;
  const auto depths = config.find_integer("num_nextn_predict_layers", {0, kMostDepths}).value_or(0);
  if (depths > 0) append_prediction(config, model, depths);
  return model;
}

}  // namespace orrery
