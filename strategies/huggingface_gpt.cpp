// Models of the GPT form: LayerNorm, two-matrix MLP; and GLM's, which names its keys after Megatron-LM.
#include "strategies/huggingface.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
namespace {

// Heads of equal size, each with its own keys and values.
LayerShape plain_shape(const JsonConfig& config, const std::string& hidden_key,
                       const std::string& heads_key) {
  LayerShape shape;
  shape.hidden = config.integer(hidden_key, {1, kMostHidden});
  shape.heads = config.integer(heads_key, {1, kMostHeads});
  if (shape.hidden % shape.heads != 0)
    config.fail(heads_key, "a divisor of " + hidden_key + " " + std::to_string(shape.hidden));
  shape.kv_heads = shape.heads;
  shape.head_dim = shape.hidden / shape.heads;
  shape.ffn = 4 * shape.hidden;
  return shape;
}

std::string first_present(const JsonConfig& config, const std::string& usual, const std::string& old) {
  return !config.has(usual) && config.has(old) ? old : usual;
}

ModelSpec stack(const JsonConfig& config, const LayerShape& shape, const std::string& layers_key) {
  ModelSpec model;
  model.hidden = shape.hidden;
  model.vocabulary = config.integer("vocab_size", {1, kMostVocabulary});
  model.final_norm = shape.norm;
  append_layers(model, shape, config.integer(layers_key, {1, kMostLayers}));
  return model;
}

// transformers reads num_kv_heads only in the new architecture; otherwise multi_query means one.
std::int64_t falcon_kv_heads(const JsonConfig& config, std::int64_t heads, bool new_architecture) {
  if (!new_architecture) return config.find_boolean("multi_query").value_or(true) ? 1 : heads;
  const std::int64_t kv_heads = config.find_integer("num_kv_heads", {1, kMostHeads}).value_or(heads);
  if (heads % kv_heads != 0)
    config.fail("num_kv_heads", "a divisor of num_attention_heads " + std::to_string(heads));
  return kv_heads;
}

// ChatGLM-6B, the first, is a GPT with tied embeddings; it has inner_hidden_size and no ffn_hidden_size.
ModelSpec read_first_chatglm(const JsonConfig& config) {
  LayerShape shape = plain_shape(config, "hidden_size", "num_attention_heads");
  shape.ffn = config.integer("inner_hidden_size", {1, kMostFfn});
  shape.rotary = true;
  ModelSpec model = stack(config, shape, "num_layers");
  model.default_sequence = sequence_of(config, "max_sequence_length");
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(true);
  return model;
}

void read_glm_attention(const JsonConfig& config, LayerShape& shape) {
  shape.heads = config.integer("num_attention_heads", {1, kMostHeads});
  shape.kv_heads = shape.heads;
  if (config.find_boolean("multi_query_attention").value_or(false))
    shape.kv_heads = config.integer("multi_query_group_num", {1, kMostHeads});
  if (shape.heads % shape.kv_heads != 0)
    config.fail("multi_query_group_num", "a divisor of num_attention_heads " + std::to_string(shape.heads));
  const auto head_dim = config.find_integer("kv_channels", {1, kMostHeadDim});
  if (!head_dim && shape.hidden % shape.heads != 0)
    config.fail("num_attention_heads",
                "a divisor of hidden_size " + std::to_string(shape.hidden) + ", or kv_channels");
  shape.head_dim = head_dim.value_or(shape.hidden / shape.heads);
}

}  // namespace

ModelSpec read_gpt2(const JsonConfig& config) {
  LayerShape shape = plain_shape(config, "n_embd", "n_head");
  shape.ffn = config.find_integer("n_inner", {1, kMostFfn}).value_or(shape.ffn);
  if (config.text("model_type") == "gpt_bigcode" && config.find_boolean("multi_query").value_or(true))
    shape.kv_heads = 1;
  ModelSpec model = stack(config, shape, "n_layer");
  model.learned_positions = config.integer("n_positions", {1, kMostSequence});
  model.default_sequence = model.learned_positions;
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(true);
  return model;
}

// Attention and MLP side by side read one norm; the MLP and the logits have biases.
ModelSpec read_gptj(const JsonConfig& config) {
  LayerShape shape = plain_shape(config, "n_embd", "n_head");
  shape.ffn = config.find_integer("n_inner", {1, kMostFfn}).value_or(shape.ffn);
  shape.linear_bias = false;
  shape.mlp_bias = shape.rotary = shape.parallel_residual = true;
  shape.norms = 1;
  ModelSpec model = stack(config, shape, "n_layer");
  model.default_sequence = sequence_of(config, "n_positions");
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(false);
  model.head_bias = true;
  return model;
}

// Layers by turns see all tokens and those within window_size, unless attention_layers says otherwise.
ModelSpec read_gpt_neo(const JsonConfig& config) {
  LayerShape shape = plain_shape(config, "hidden_size", "num_heads");
  shape.ffn = config.find_integer("intermediate_size", {1, kMostFfn}).value_or(shape.ffn);
  shape.linear_bias = false;
  shape.projection_bias = shape.mlp_bias = true;
  const std::int64_t layers = config.integer("num_layers", {1, kMostLayers});
  const std::int64_t window = config.find_integer("window_size", {1, kMostSequence}).value_or(256);
  const std::vector<std::string> kinds = config.find_texts("attention_layers");
  if (!kinds.empty() && static_cast<std::int64_t>(kinds.size()) != layers)
    config.fail("attention_layers", "one for each of num_layers = " + std::to_string(layers));
  ModelSpec model;
  model.hidden = shape.hidden;
  model.vocabulary = config.integer("vocab_size", {1, kMostVocabulary});
  model.learned_positions = config.integer("max_position_embeddings", {1, kMostSequence});
  model.default_sequence = model.learned_positions;
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(true);
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool local = kinds.empty() ? i % 2 == 1 : kinds[static_cast<std::size_t>(i)] == "local";
    shape.attention_window = local ? 2 * window : 0;  // a block with as many pairs as the band
    append_layers(model, shape, 1);
  }
  return model;
}

// With no_bias its LayerNorms have none either, which counts and costs as RMSNorm.
ModelSpec read_mpt(const JsonConfig& config) {
  LayerShape shape = plain_shape(config, "d_model", "n_heads");
  constexpr std::int64_t kWidest = 64;
  shape.ffn = shape.hidden * config.find_integer("expansion_ratio", {1, kWidest}).value_or(4);
  bool alibi = true;
  if (const auto attention = config.find_object("attn_config")) {
    if (attention->find_text("attn_type").value_or("multihead_attention") != "multihead_attention")
      attention->fail("attn_type", "multihead_attention");
    if (attention->find_boolean("qk_ln").value_or(false))
      attention->fail("qk_ln", "false: no published model of this family has it");
    alibi = attention->find_boolean("alibi").value_or(true);
  }
  shape.linear_bias = !config.find_boolean("no_bias").value_or(true);
  if (!shape.linear_bias) shape.norm = NormKind::rms_norm;
  ModelSpec model = stack(config, shape, "n_layers");
  model.default_sequence = sequence_of(config, "max_seq_len");
  if (!alibi) model.learned_positions = config.integer("max_seq_len", {1, kMostSequence});
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(true);
  model.alibi = alibi;
  if (!shape.linear_bias) model.beyond_megatron = "LayerNorm without biases";
  return model;
}

ModelSpec read_gpt_neox(const JsonConfig& config) {
  LayerShape shape = plain_shape(config, "hidden_size", "num_attention_heads");
  shape.ffn = config.integer("intermediate_size", {1, kMostFfn});
  shape.rotary = true;
  shape.parallel_residual = config.find_boolean("use_parallel_residual").value_or(true);
  if (!config.find_boolean("attention_bias").value_or(true)) {
    shape.linear_bias = false;
    shape.mlp_bias = true;
  }
  ModelSpec model = stack(config, shape, "num_hidden_layers");
  model.default_sequence = sequence_of(config, "max_position_embeddings");
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(false);
  return model;
}

ModelSpec read_opt(const JsonConfig& config) {
  LayerShape shape = plain_shape(config, "hidden_size", "num_attention_heads");
  shape.ffn = config.integer("ffn_dim", {1, kMostFfn});
  shape.linear_bias = config.find_boolean("enable_bias").value_or(true);
  // OPT-350M alone projects its embedding and normalises after the layers.
  if (config.integer("word_embed_proj_dim", {1, kMostHidden}) != shape.hidden)
    config.fail("word_embed_proj_dim", "the hidden_size " + std::to_string(shape.hidden) +
                                           "; a projected embedding cannot be expressed");
  if (!config.find_boolean("do_layer_norm_before").value_or(true))
    config.fail("do_layer_norm_before", "true; a model without a final norm cannot be expressed");
  ModelSpec model = stack(config, shape, "num_hidden_layers");
  model.default_sequence = config.integer("max_position_embeddings", {1, kMostSequence});
  model.learned_positions = model.default_sequence + 2;  // two rows are kept for padding
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(true);
  return model;
}

ModelSpec read_bloom(const JsonConfig& config) {
  const LayerShape shape = plain_shape(config, first_present(config, "hidden_size", "n_embed"),
                                       first_present(config, "n_head", "num_attention_heads"));
  ModelSpec model = stack(config, shape, first_present(config, "n_layer", "num_hidden_layers"));
  model.default_sequence = config.find_integer("seq_length", {1, kMostSequence}).value_or(2048);
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(true);
  model.embedding_norm = true;
  return model;
}

ModelSpec read_falcon(const JsonConfig& config) {
  LayerShape shape = plain_shape(config, "hidden_size", "num_attention_heads");
  const bool new_architecture = config.find_boolean("new_decoder_architecture").value_or(false);
  const bool parallel = new_architecture || config.find_boolean("parallel_attn").value_or(true);
  shape.kv_heads = falcon_kv_heads(config, shape.heads, new_architecture);
  shape.ffn = config.find_integer("ffn_hidden_size", {1, kMostFfn}).value_or(shape.ffn);
  shape.linear_bias = config.find_boolean("bias").value_or(false);
  shape.rotary = !config.find_boolean("alibi").value_or(false);
  shape.parallel_residual = parallel;
  const std::int64_t parallel_norms =
      config.find_integer("num_ln_in_parallel_attn", {1, 2}).value_or(new_architecture ? 2 : 1);
  shape.norms = parallel ? static_cast<int>(parallel_norms) : 2;
  ModelSpec model = stack(config, shape, "num_hidden_layers");
  model.default_sequence = config.find_integer("max_position_embeddings", {1, kMostSequence}).value_or(2048);
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(true);
  return model;
}

ModelSpec read_chatglm(const JsonConfig& config) {
  if (!config.has("ffn_hidden_size") && config.has("inner_hidden_size")) return read_first_chatglm(config);
  LayerShape shape;
  shape.hidden = config.integer("hidden_size", {1, kMostHidden});
  read_glm_attention(config, shape);
  shape.ffn = config.integer("ffn_hidden_size", {1, kMostFfn});
  shape.mlp = MlpKind::gated;
  shape.norm = config.find_boolean("rmsnorm").value_or(true) ? NormKind::rms_norm : NormKind::layer_norm;
  shape.linear_bias = config.find_boolean("add_bias_linear").value_or(false);
  shape.qkv_bias = config.find_boolean("add_qkv_bias").value_or(false);
  shape.rotary = true;
  ModelSpec model;
  model.hidden = shape.hidden;
  model.vocabulary =
      config.integer(first_present(config, "padded_vocab_size", "vocab_size"), {1, kMostVocabulary});
  model.default_sequence = sequence_of(config, "seq_length");
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(false);
  model.final_norm = shape.norm;
  append_layers(model, shape, config.integer("num_layers", {1, kMostLayers}));
  return model;
}

}  // namespace orrery
