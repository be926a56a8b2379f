// Dense models near the Llama form: other norms, biases, MLPs or residuals, as the modelling files of Hugging
// Face transformers, or of the model's own repository, have them.
#include "strategies/huggingface.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
namespace {

ModelSpec frame_of(const JsonConfig& config, const LayerShape& shape) {
  ModelSpec model = modern_frame(config);
  model.final_norm = shape.norm;
  return model;
}

void tie_unless_said(const JsonConfig& config, ModelSpec& model) {
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(true);
}

// Layers that slide have rotary positions, those that see all tokens none (Cohere 2, EXAONE 4).
void append_rotary_where_sliding(const JsonConfig& config, ModelSpec& model, LayerShape shape) {
  ModelSpec endless = model;
  endless.default_sequence = 0;  // a window not smaller than the sequence still tells which layers slide
  const std::vector<std::int64_t> slides = attention_windows(config, endless);
  const std::vector<std::int64_t> windows = attention_windows(config, model);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    shape.attention_window = windows[i];
    shape.rotary = slides[i] > 0;
    append_layers(model, shape, 1);
  }
}

}  // namespace

ModelSpec read_minicpm(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  tie_unless_said(config, model);
  model.beyond_megatron = "scales of embedding, residuals and logits";
  append_windowed(config, model, llama_shape(config));
  return model;
}

// The norms stand behind attention and MLP; queries and keys have one each over all heads.
ModelSpec read_olmo2(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  LayerShape shape = llama_shape(config);
  shape.qk_norm = shape.wide_qk_norm = true;
  model.beyond_megatron = "norms behind attention and MLP";
  append_windowed(config, model, shape);
  return model;
}

// Attention and MLP side by side read one LayerNorm without a bias, which counts and costs as RMSNorm.
ModelSpec read_cohere(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  tie_unless_said(config, model);
  LayerShape shape = llama_shape(config);
  shape.wide_qk_norm = shape.qk_norm;
  shape.parallel_residual = true;
  shape.norms = 1;
  if (config.text("model_type") == "cohere2" && config.has("sliding_window")) {
    append_rotary_where_sliding(config, model, shape);
  } else {
    append_windowed(config, model, shape);
  }
  return model;
}

ModelSpec read_starcoder2(const JsonConfig& config) {
  LayerShape shape = llama_shape(config);
  shape.norm = NormKind::layer_norm;
  shape.mlp = MlpKind::gelu;
  shape.linear_bias = config.find_boolean("use_bias").value_or(true);
  ModelSpec model = frame_of(config, shape);
  tie_unless_said(config, model);
  append_windowed(config, model, shape);
  return model;
}

ModelSpec read_stablelm(const JsonConfig& config) {
  LayerShape shape = llama_shape(config);
  shape.norm = NormKind::layer_norm;
  shape.qkv_bias = config.find_boolean("use_qkv_bias").value_or(false);
  shape.parallel_residual = config.find_boolean("use_parallel_residual").value_or(false);
  shape.norms = shape.parallel_residual ? 1 : 2;
  shape.qk_norm = shape.wide_qk_norm = config.find_boolean("qk_layernorm").value_or(false);
  ModelSpec model = frame_of(config, shape);
  append_windowed(config, model, shape);
  return model;
}

// Phi-1, Phi-1.5, Phi-2.
ModelSpec read_phi(const JsonConfig& config) {
  if (config.find_boolean("qk_layernorm").value_or(false))
    config.fail("qk_layernorm", "false: no published model of this family has it");
  LayerShape shape = llama_shape(config);
  shape.norm = NormKind::layer_norm;
  shape.norms = 1;
  shape.mlp = MlpKind::gelu;
  shape.linear_bias = shape.parallel_residual = true;
  ModelSpec model = frame_of(config, shape);
  model.head_bias = true;
  append_windowed(config, model, shape);
  return model;
}

// `bias` is that of the attention's matrices.
ModelSpec read_internlm(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  LayerShape shape = llama_shape(config);
  const bool first = config.text("model_type") == "internlm";
  shape.qkv_bias = shape.projection_bias = config.find_boolean("bias").value_or(first);
  append_windowed(config, model, shape);
  return model;
}

// The models of 13 billion parameters have ALiBi, and model_max_length alone.
ModelSpec read_baichuan(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  LayerShape shape = llama_shape(config);
  shape.rotary = config.has("max_position_embeddings");
  if (!shape.rotary) {
    model.alibi = true;
    model.default_sequence = sequence_of(config, "model_max_length");
  }
  append_windowed(config, model, shape);
  return model;
}

// no_rope_layers: 1 where a layer has rotary positions.
ModelSpec read_smollm3(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  tie_unless_said(config, model);
  LayerShape shape = llama_shape(config);
  const std::int64_t layers = config.integer("num_hidden_layers", {1, kMostLayers});
  const std::int64_t period = config.find_integer("no_rope_layer_interval", {1, kMostLayers}).value_or(4);
  const std::vector<std::int64_t> rotary = config.find_integers("no_rope_layers", {0, 1});
  if (!rotary.empty() && static_cast<std::int64_t>(rotary.size()) != layers)
    config.fail("no_rope_layers", "one for each of num_hidden_layers = " + std::to_string(layers));
  for (std::int64_t i = 0; i < layers; ++i) {
    shape.rotary = rotary.empty() ? (i + 1) % period != 0 : rotary[static_cast<std::size_t>(i)] == 1;
    append_layers(model, shape, 1);
  }
  return model;
}

// The two numbers a layer that its activation learns are not counted.
ModelSpec read_apertus(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  LayerShape shape = llama_shape(config);
  shape.qk_norm = true;
  shape.mlp = MlpKind::gelu;
  model.beyond_megatron = "the activation xIELU";
  append_windowed(config, model, shape);
  return model;
}

// Nemotron-4, Minitron: squared ReLU; LayerNorm whose weights are kept less one.
ModelSpec read_nemotron(const JsonConfig& config) {
  LayerShape shape = llama_shape(config);
  shape.norm = NormKind::layer_norm;
  shape.mlp = MlpKind::gelu;
  ModelSpec model = frame_of(config, shape);
  append_windowed(config, model, shape);
  return model;
}

// As OLMo 2, but for norms of queries and keys over one head.
ModelSpec read_exaone4(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  LayerShape shape = llama_shape(config);
  shape.qk_norm = true;
  model.beyond_megatron = "norms behind attention and MLP";
  if (config.has("sliding_window")) {
    if (!config.has("layer_types")) config.fail("layer_types", "one for each layer beside sliding_window");
    append_rotary_where_sliding(config, model, shape);
  } else {
    append_windowed(config, model, shape);
  }
  return model;
}

ModelSpec read_hunyuan_dense(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  LayerShape shape = llama_shape(config);
  shape.qk_norm = true;
  model.beyond_megatron = "norms of queries and keys behind their rotary positions";
  append_windowed(config, model, shape);
  return model;
}

// use_bias is that of all matrices, the head's too.
ModelSpec read_ernie(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  tie_unless_said(config, model);
  LayerShape shape = llama_shape(config);
  shape.linear_bias = model.head_bias = config.find_boolean("use_bias").value_or(false);
  append_windowed(config, model, shape);
  return model;
}

// The first Qwen: intermediate_size is that of gate and up together.
ModelSpec read_first_qwen(const JsonConfig& config) {
  if (!config.find_boolean("no_bias").value_or(true))
    config.fail("no_bias",
                "true: no published model of this family has other biases than of queries to values");
  ModelSpec model = modern_frame(config);
  LayerShape shape = llama_shape(config);
  shape.head_dim = config.find_integer("kv_channels", {1, kMostHeadDim}).value_or(shape.head_dim);
  if (shape.ffn % 2 != 0) config.fail("intermediate_size", "an even number");
  shape.ffn /= 2;
  shape.qkv_bias = true;
  append_layers(model, shape, config.integer("num_hidden_layers", {1, kMostLayers}));
  return model;
}

}  // namespace orrery
