// Mixtures of experts near the Llama form, each family with names of its own for the same numbers.
#include "strategies/huggingface.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
ModelSpec read_olmoe(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  LayerShape shape =
      with_experts(config, llama_shape(config), {"num_experts", "num_experts_per_tok", "intermediate_size"});
  shape.qk_norm = shape.wide_qk_norm = true;
  model.beyond_megatron = "norms of queries and keys over all heads";
  append_windowed(config, model, shape);
  return model;
}

// With shared_intermediate_size (granitemoeshared) an expert that every token visits.
ModelSpec read_granite_moe(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  LayerShape shape = with_experts(config, llama_shape(config),
                                  {"num_local_experts", "num_experts_per_tok", "intermediate_size"});
  shape.shared_ffn = config.find_integer("shared_intermediate_size", {0, kMostFfn}).value_or(0);
  model.beyond_megatron = "multipliers of embedding, attention, residuals and logits";
  append_windowed(config, model, shape);
  return model;
}

ModelSpec read_phimoe(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  LayerShape shape = with_experts(config, llama_shape(config),
                                  {"num_local_experts", "num_experts_per_tok", "intermediate_size"});
  shape.norm = model.final_norm = NormKind::layer_norm;
  model.head_bias = config.find_boolean("lm_head_bias").value_or(false);
  append_windowed(config, model, shape);
  return model;
}

// Its LayerNorms have no bias, which counts and costs as RMSNorm.
ModelSpec read_dbrx(const JsonConfig& config) {
  const auto attention = config.find_object("attn_config");
  const auto experts = config.find_object("ffn_config");
  if (!attention) config.fail("attn_config", "an object with kv_n_heads");
  if (!experts) config.fail("ffn_config", "an object with ffn_hidden_size, moe_num_experts and moe_top_k");
  LayerShape shape;
  shape.hidden = config.integer("d_model", {1, kMostHidden});
  shape.heads = config.integer("n_heads", {1, kMostHeads});
  if (shape.hidden % shape.heads != 0)
    config.fail("n_heads", "a divisor of d_model " + std::to_string(shape.hidden));
  shape.head_dim = shape.hidden / shape.heads;
  shape.kv_heads = attention->integer("kv_n_heads", {1, kMostHeads});
  if (shape.heads % shape.kv_heads != 0)
    attention->fail("kv_n_heads", "a divisor of n_heads " + std::to_string(shape.heads));
  shape.mlp = MlpKind::gated;
  shape.norm = NormKind::rms_norm;
  shape.linear_bias = false;
  shape.rotary = true;
  shape = with_experts(*experts, shape, {"moe_num_experts", "moe_top_k", "ffn_hidden_size"});
  ModelSpec model;
  model.hidden = shape.hidden;
  model.vocabulary = config.integer("vocab_size", {1, kMostVocabulary});
  model.default_sequence = sequence_of(config, "max_seq_len");
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(false);
  model.final_norm = shape.norm;
  model.beyond_megatron = "LayerNorm without biases";
  append_layers(model, shape, config.integer("n_layers", {1, kMostLayers}));
  return model;
}

// From moe_layer_start_index to moe_layer_end_index (-1: the last) every moe_layer_interval-th layer has
// experts.
ModelSpec read_ernie_moe(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(true);
  LayerShape dense = llama_shape(config);
  dense.linear_bias = model.head_bias = config.find_boolean("use_bias").value_or(false);
  LayerShape sparse = with_experts(config, dense, {"moe_num_experts", "moe_k", "moe_intermediate_size"});
  sparse.shared_ffn =
      sparse.ffn * config.find_integer("moe_num_shared_experts", {0, kMostExperts}).value_or(0);
  sparse.router_bias = true;  // e_score_correction_bias
  const std::int64_t layers = config.integer("num_hidden_layers", {1, kMostLayers});
  const std::int64_t first = config.find_integer("moe_layer_start_index", {0, kMostLayers}).value_or(1);
  const std::int64_t end = config.find_integer("moe_layer_end_index", {-1, kMostLayers}).value_or(-1);
  const std::int64_t step = config.find_integer("moe_layer_interval", {1, kMostLayers}).value_or(1);
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool routed = i >= first && (end < 0 || i <= end) && (i + 1) % step == 0;
    append_layers(model, routed ? sparse : dense, 1);
  }
  return model;
}

// Ling: dense layers first, then ones with experts.
ModelSpec read_bailing_moe(const JsonConfig& config) {
  if (config.find_boolean("use_bias").value_or(false))
    config.fail("use_bias", "false: no published model of this family has such biases");
  ModelSpec model = modern_frame(config);
  LayerShape dense = llama_shape(config);
  dense.qkv_bias = config.find_boolean("use_qkv_bias").value_or(false);
  LayerShape sparse =
      with_experts(config, dense, {"num_experts", "num_experts_per_tok", "moe_intermediate_size"});
  sparse.shared_ffn = sparse.ffn * config.find_integer("num_shared_experts", {0, kMostExperts}).value_or(0);
  const std::int64_t layers = config.integer("num_hidden_layers", {1, kMostLayers});
  const std::int64_t first = config.find_integer("first_k_dense_replace", {0, layers}).value_or(0);
  append_layers(model, dense, first);
  append_layers(model, sparse, layers - first);
  return model;
}

}  // namespace orrery
