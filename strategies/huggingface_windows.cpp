// Which layers attend to near tokens only; models of which some do by their nature: Llama 4, Gemma 3,
// gpt-oss.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "strategies/huggingface.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
namespace {

std::int64_t layers_of(const JsonConfig& config) {
  return config.integer("num_hidden_layers", {1, kMostLayers});
}

// The block of causal attention that has as many pairs of tokens as a band of `window`.
std::int64_t block_of_band(std::int64_t window) {
  return 2 * window;
}

// Whether layer i slides, as layer_types says, one of "sliding_attention" and "full_attention" a layer.
std::vector<bool> listed_sliding(const JsonConfig& config, std::int64_t layers) {
  const std::string key = "layer_types";
  std::vector<bool> slide;
  for (const std::string& type : config.find_texts(key)) {
    if (type != "sliding_attention" && type != "full_attention")
      config.fail(key, "a list of sliding_attention and full_attention");
    slide.push_back(type == "sliding_attention");
  }
  if (!slide.empty() && static_cast<std::int64_t>(slide.size()) != layers)
    config.fail(key, "one for each of num_hidden_layers = " + std::to_string(layers));
  return slide;
}

// Which layers slide where the file lists none: those from `first` on but every `period`-th (0: but none), as
// the configuration files of Hugging Face transformers say.
struct SlidingRule {
  std::int64_t first = 0;
  std::int64_t period = 0;
};

// Absent where the family has no sliding layers, or the file does not ask for them.
std::optional<SlidingRule> sliding_rule(const JsonConfig& config) {
  const std::string type = config.text("model_type");
  const std::array whole{"mistral", "mixtral", "phi3", "phimoe", "starcoder2", "exaone4"};  // the last lists
  if (std::find(whole.begin(), whole.end(), type) != whole.end()) return SlidingRule{};
  if (type == "gemma2" || type == "gpt_oss") return SlidingRule{.period = 2};
  if (type == "olmo3") return SlidingRule{.period = 4};
  if (type == "gemma3_text" || type == "cohere2") {
    const std::int64_t usual = type == "cohere2" ? 4 : 6;
    return SlidingRule{.period =
                           config.find_integer("sliding_window_pattern", {1, kMostLayers}).value_or(usual)};
  }
  if (type.starts_with("qwen") && config.find_boolean("use_sliding_window").value_or(false)) {
    const std::int64_t first = type == "qwen3_moe" ? 0 : 28;  // their default
    return SlidingRule{.first = config.find_integer("max_window_layers", {0, kMostLayers}).value_or(first)};
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::int64_t> attention_windows(const JsonConfig& config, const ModelSpec& frame) {
  const std::int64_t layers = layers_of(config);
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  const auto rule = sliding_rule(config);
  const std::int64_t window =
      rule ? config.find_integer("sliding_window", {0, kMostSequence}).value_or(0) : 0;
  const bool reaches_all = frame.default_sequence > 0 && window >= frame.default_sequence;
  if (window == 0 || reaches_all) return windows;
  std::vector<bool> slide = listed_sliding(config, layers);
  for (auto i = static_cast<std::int64_t>(slide.size()); i < layers; ++i)
    slide.push_back(i >= rule->first && (rule->period == 0 || (i + 1) % rule->period != 0));
  for (std::size_t i = 0; i < windows.size(); ++i) windows[i] = slide[i] ? block_of_band(window) : 0;
  return windows;
}

void append_windowed(const JsonConfig& config, ModelSpec& model, LayerShape shape) {
  for (const std::int64_t window : attention_windows(config, model)) {
    shape.attention_window = window;
    append_layers(model, shape, 1);
  }
}

// modeling_llama4.py: of every four layers three have rotary positions and attend within chunks; experts
// stand beside a shared one, in every interleave_moe_layer_step-th layer.
ModelSpec read_llama4(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  const std::int64_t layers = layers_of(config);
  LayerShape dense = llama_shape(config);
  dense.qk_norm = false;  // theirs has no weights
  LayerShape sparse =
      with_experts(config, dense, {"num_local_experts", "num_experts_per_tok", "intermediate_size"});
  sparse.shared_ffn = sparse.ffn;
  dense.ffn = config.integer("intermediate_size_mlp", {1, kMostFfn});
  const std::int64_t chunk = config.find_integer("attention_chunk_size", {1, kMostSequence}).value_or(0);
  const std::int64_t step = config.find_integer("interleave_moe_layer_step", {1, kMostLayers}).value_or(1);
  const std::int64_t period = config.find_integer("no_rope_layer_interval", {1, kMostLayers}).value_or(4);
  const std::vector<std::int64_t> listed = config.find_integers("no_rope_layers", {0, 1});  // 1: rotary
  if (!listed.empty() && static_cast<std::int64_t>(listed.size()) != layers)
    config.fail("no_rope_layers", "one for each of num_hidden_layers = " + std::to_string(layers));
  for (std::int64_t i = 0; i < layers; ++i) {
    LayerShape layer = (i + 1) % step == 0 ? sparse : dense;
    layer.rotary = listed.empty() ? (i + 1) % period != 0 : listed[static_cast<std::size_t>(i)] == 1;
    layer.attention_window = layer.rotary ? chunk : 0;
    append_layers(model, layer, 1);
  }
  return model;
}

// modeling_gemma3.py, with the defaults of Gemma3TextConfig, which the files of some sizes leave out.
ModelSpec read_gemma3(const JsonConfig& config) {
  constexpr std::int64_t kVocabulary = 262'208, kSequence = 131'072, kHeads = 8, kKvHeads = 4, kHeadDim = 256;
  ModelSpec model;
  LayerShape shape = modern_shape(config);
  model.hidden = shape.hidden;
  model.vocabulary = config.find_integer("vocab_size", {1, kMostVocabulary}).value_or(kVocabulary);
  model.default_sequence =
      config.find_integer("max_position_embeddings", {1, kMostSequence}).value_or(kSequence);
  model.tied_embeddings = config.find_boolean("tie_word_embeddings").value_or(true);
  model.final_norm = NormKind::rms_norm;
  shape.heads = config.find_integer("num_attention_heads", {1, kMostHeads}).value_or(kHeads);
  shape.kv_heads = config.find_integer("num_key_value_heads", {1, kMostHeads}).value_or(kKvHeads);
  if (shape.heads % shape.kv_heads != 0)
    config.fail("num_key_value_heads", "a divisor of num_attention_heads " + std::to_string(shape.heads));
  shape.head_dim = config.find_integer("head_dim", {1, kMostHeadDim}).value_or(kHeadDim);
  shape.qk_norm = true;
  shape.norms = 4;
  append_windowed(config, model, shape);
  return model;
}

// modeling_gpt_oss.py: biases everywhere, sinks beside the scores; layers slide by turns, the first does.
ModelSpec read_gpt_oss(const JsonConfig& config) {
  ModelSpec model = modern_frame(config);
  LayerShape shape = llama_shape(config);
  shape.linear_bias = shape.attention_sinks = shape.router_bias = true;
  shape.qkv_bias = shape.projection_bias = false;  // linear_bias says it
  shape = with_experts(config, shape, {"num_local_experts", "num_experts_per_tok", "intermediate_size"});
  append_windowed(config, model, shape);
  return model;
}

}  // namespace orrery
