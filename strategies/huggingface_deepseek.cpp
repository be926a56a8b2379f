// DeepSeek's mixture, V2, V3 and Kimi K2: multi-head latent attention (but for the first), dense first
// layers, then experts with a shared one; optionally layers that predict further tokens.
#include <algorithm>

#include "strategies/huggingface.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
namespace {

void read_latent_attention(const JsonConfig& config, LayerShape& shape) {
  shape.heads = config.integer("num_attention_heads", {1, kMostHeads});
  shape.kv_heads = shape.heads;  // num_key_value_heads says nothing here: all heads have keys of their own
  shape.latent.query_rank = config.find_integer("q_lora_rank", {0, kMostHidden}).value_or(0);
  shape.latent.kv_rank = config.integer("kv_lora_rank", {1, kMostHidden});
  shape.latent.rope_dim = config.integer("qk_rope_head_dim", {1, kMostHeadDim});
  shape.head_dim = config.integer("qk_nope_head_dim", {1, kMostHeadDim}) + shape.latent.rope_dim;
  shape.value_dim = config.integer("v_head_dim", {1, kMostHeadDim});
}

// A layer with a plain MLP.
LayerShape dense_shape(const JsonConfig& config) {
  if (config.text("model_type") == "deepseek") return llama_shape(config);
  if (config.find_boolean("attention_bias").value_or(false))
    config.fail("attention_bias", "false: no published model of this family has biases");
  LayerShape shape = modern_shape(config);
  read_latent_attention(config, shape);
  return shape;
}

}  // namespace

// Of the layers after the first `first_k_dense_replace`, every `moe_layer_freq`-th has experts
// (modeling_deepseek.py).
ModelSpec read_deepseek(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  const LayerShape dense = dense_shape(config);
  LayerShape sparse = with_routed_experts(config, dense);
  // e_score_correction_bias of the routers that balance without a loss.
  sparse.router_bias = config.find_text("topk_method").value_or("") == "noaux_tc";
  const std::int64_t layers = config.integer("num_hidden_layers", {1, kMostLayers});
  const std::int64_t first = config.find_integer("first_k_dense_replace", {0, layers}).value_or(0);
  const std::int64_t step = config.find_integer("moe_layer_freq", {1, kMostLayers}).value_or(1);
  for (std::int64_t i = 0; i < layers; ++i)
    append_layers(model, i < first || i % step != 0 ? dense : sparse, 1);
  append_predictions(config, model, sparse);
  return model;
}

}  // namespace orrery
