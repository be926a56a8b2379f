// A model as a YAML list of blocks, equal or not (MODELS.md of this folder; built-in `transgan` is an
// example).
#include <algorithm>
#include <string>

#include "platforms/yaml.hpp"
#include "strategies/huggingface.hpp"
#include "strategies/model.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
namespace {

std::int64_t integer_or(const YamlValue& map, const std::string& key, std::int64_t absent,
                        std::int64_t high) {
  const auto value = map.find(key);
  return value ? value->integer(0, high) : absent;
}

bool boolean_or(const YamlValue& map, const std::string& key, bool absent) {
  const auto value = map.find(key);
  return value ? value->boolean() : absent;
}

void read_mlp(const YamlValue& value, LayerShape& shape) {
  const std::string text = value.text();
  const bool two = text == "gelu" || text == "relu" || text == "squared_relu";
  if (!two && text != "gated" && text != "swiglu" && text != "geglu")
    value.fail("gelu, relu or squared_relu (two matrices), gated, swiglu or geglu (three)");
  shape.mlp = two ? MlpKind::gelu : MlpKind::gated;
  shape.activation = Activation::silu;
  if (text == "gelu" || text == "geglu") shape.activation = Activation::gelu;
  if (text == "relu") shape.activation = Activation::relu;
  if (text == "squared_relu") shape.activation = Activation::squared_relu;
}

NormKind norm_kind(const YamlValue& value) {
  const std::string text = value.text();
  if (text == "layer_norm") return NormKind::layer_norm;
  if (text == "rms_norm") return NormKind::rms_norm;
  value.fail("layer_norm or rms_norm");
}

void read_latent(const YamlValue& latent, LayerShape& shape) {
  latent.allow_keys({"query_rank", "kv_rank", "rope_dim"});
  shape.latent = {.query_rank = integer_or(latent, "query_rank", 0, kMostHidden),
                  .kv_rank = latent.at("kv_rank").integer(1, kMostHidden),
                  .rope_dim = latent.at("rope_dim").integer(1, kMostHeadDim)};
  if (shape.latent.rope_dim >= shape.head_dim)
    latent.at("rope_dim").fail("less than head_dim " + std::to_string(shape.head_dim));
  if (shape.kv_heads != shape.heads) latent.fail("no kv_heads beside it: every head has keys of its own");
}

void read_state_space(const YamlValue& space, LayerShape& shape) {
  space.allow_keys({"heads", "head_dim", "groups", "state", "convolution", "chunk"});
  shape.state_space = {.heads = space.at("heads").integer(1, kMostHeads),
                       .head_dim = space.at("head_dim").integer(1, kMostHeadDim),
                       .groups = space.at("groups").integer(1, kMostHeads),
                       .state = space.at("state").integer(1, kMostHeadDim),
                       .convolution = space.at("convolution").integer(1, kMostHeadDim),
                       .chunk = space.at("chunk").integer(1, kMostSequence)};
  if (shape.state_space.heads % shape.state_space.groups != 0)
    space.at("groups").fail("a divisor of heads " + std::to_string(shape.state_space.heads));
}

void read_heads(const YamlValue& block, LayerShape& shape) {
  shape.heads = block.at("heads").integer(1, kMostHeads);
  shape.kv_heads = shape.heads;
  if (const auto kv_heads = block.find("kv_heads")) {
    shape.kv_heads = kv_heads->integer(1, kMostHeads);
    if (shape.heads % shape.kv_heads != 0)
      kv_heads->fail("a divisor of heads " + std::to_string(shape.heads));
  }
  if (const auto head_dim = block.find("head_dim")) {
    shape.head_dim = head_dim->integer(1, kMostHeadDim);
    return;
  }
  if (shape.hidden % shape.heads != 0)
    block.at("heads").fail("a divisor of hidden " + std::to_string(shape.hidden) + ", or a head_dim");
  shape.head_dim = shape.hidden / shape.heads;
}

void read_experts(const YamlValue& block, LayerShape& shape) {
  const auto experts = block.find("experts");
  if (!experts) return;
  if (!block.find("ffn")) experts->fail("an ffn beside it: the width of one expert");
  shape.experts = experts->integer(1, kMostExperts);
  shape.experts_per_token = block.at("experts_per_token").integer(1, shape.experts);
  shape.shared_ffn = integer_or(block, "shared_ffn", 0, kMostFfn);
  shape.expert_hidden = integer_or(block, "expert_hidden", 0, kMostHidden);
  shape.router_bias = boolean_or(block, "router_bias", false);
}

LayerShape read_block(const YamlValue& block) {
  block.allow_keys({"repeat",        "hidden",
                    "heads",         "kv_heads",
                    "head_dim",      "ffn",
                    "mlp",           "norm",
                    "norms",         "bias",
                    "qkv_bias",      "qk_norm",
                    "rotary",        "parallel_residual",
                    "experts",       "experts_per_token",
                    "shared_ffn",    "expert_hidden",
                    "router_bias",   "value_dim",
                    "latent",        "state_space",
                    "sequence",      "attention_window",
                    "position_bias", "splits_head_width",
                    "capped_scores"});
  LayerShape shape;
  shape.hidden = block.at("hidden").integer(1, kMostHidden);
  const auto space = block.find("state_space");
  if (space) read_state_space(*space, shape);
  // A layer of one part has no attention or no MLP.
  if (block.find("heads")) read_heads(block, shape);
  if (!shape.has_attention() && !space && !block.find("ffn")) block.fail("heads, a state_space or an ffn");
  if (const auto value_dim = block.find("value_dim")) shape.value_dim = value_dim->integer(1, kMostHeadDim);
  if (const auto latent = block.find("latent")) read_latent(*latent, shape);
  if (const auto ffn = block.find("ffn")) {
    shape.ffn = ffn->integer(1, kMostFfn);
    read_mlp(block.at("mlp"), shape);
  }
  shape.norm = norm_kind(block.at("norm"));
  if (const auto norms = block.find("norms")) shape.norms = static_cast<int>(norms->integer(0, 4));
  shape.linear_bias = boolean_or(block, "bias", true);
  shape.qkv_bias = boolean_or(block, "qkv_bias", false);
  shape.qk_norm = boolean_or(block, "qk_norm", false);
  shape.rotary = boolean_or(block, "rotary", false);
  shape.parallel_residual = boolean_or(block, "parallel_residual", false);
  shape.splits_head_width = boolean_or(block, "splits_head_width", false);
  shape.sequence = integer_or(block, "sequence", 0, kMostSequence);
  shape.attention_window = integer_or(block, "attention_window", 0, kMostSequence);
  shape.position_bias = boolean_or(block, "position_bias", false);
  shape.capped_scores = boolean_or(block, "capped_scores", false);
  read_experts(block, shape);
  return shape;
}

RotaryPositions read_rotary(const YamlValue& top) {
  RotaryPositions rotary;
  if (const auto base = top.find("rotary_base")) rotary.base = base->number(1, 1e12);
  if (const auto share = top.find("rotary_share")) rotary.share = share->number(0, 1);
  return rotary;
}

void read_blocks(const YamlValue& blocks, ModelSpec& model) {
  for (const YamlValue& block : blocks.items()) {
    const auto repeat = block.find("repeat");
    append_layers(model, read_block(block), repeat ? repeat->integer(1, kMostLayers) : 1);
    if (model.layer_count() > kMostLayers)
      block.fail("at most " + std::to_string(kMostLayers) + " layers in all");
  }
  if (model.layers.empty()) blocks.fail("at least one block");
}

}  // namespace

ModelSpec parse_model_blocks(std::string_view yaml, const std::string& file) {
  const YamlValue top = YamlValue::parse(yaml, file);
  top.allow_keys({"name", "sequence", "vocabulary", "outputs", "predicted_tokens", "hidden",
                  "learned_positions", "input_parameters", "tied_embeddings", "causal", "final_norm", "alibi",
                  "rotary_base", "rotary_share", "capped_logits", "blocks"});
  ModelSpec model;
  model.name = top.at("name").text();
  model.default_sequence = top.at("sequence").integer(1, kMostSequence);
  model.vocabulary = integer_or(top, "vocabulary", 0, kMostVocabulary);
  model.outputs = integer_or(top, "outputs", 0, kMostVocabulary);
  model.predicted_tokens = integer_or(top, "predicted_tokens", 0, kMostSequence);
  model.hidden = top.at("hidden").integer(1, kMostHidden);
  model.learned_positions = integer_or(top, "learned_positions", 0, kMostSequence);
  model.input_parameters = integer_or(top, "input_parameters", 0, kMostInputParameters);
  model.tied_embeddings = boolean_or(top, "tied_embeddings", false);
  if (model.outputs > 0 && (model.tied_embeddings || model.vocabulary == 0))
    top.at("outputs").fail("a vocabulary beside it and embeddings that are not tied: its matrix is its own");
  model.causal = boolean_or(top, "causal", true);
  model.alibi = boolean_or(top, "alibi", false);
  model.capped_logits = boolean_or(top, "capped_logits", false);
  model.rotary_positions = read_rotary(top);
  read_blocks(top.at("blocks"), model);
  const bool turns = std::any_of(model.shapes.begin(), model.shapes.end(),
                                 [](const LayerShape& shape) { return shape.rotary; });
  for (const char* key : {"rotary_base", "rotary_share"}) {
    if (const auto given = top.find(key); given && !turns)
      given->fail("it with a block that has rotary: true");
  }
  // Biases that balance experts go with scores by sigmoid (DeepSeek-V3).
  model.router.sigmoid = std::any_of(model.shapes.begin(), model.shapes.end(),
                                     [](const LayerShape& shape) { return shape.router_bias; });
  const auto final_norm = top.find("final_norm");
  model.final_norm = final_norm ? norm_kind(*final_norm) : model.layer(model.layer_count() - 1).norm;
  return model;
}

}  // namespace orrery
