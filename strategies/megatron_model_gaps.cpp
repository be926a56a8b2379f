// What of a model Megatron-LM's arguments cannot say, and why.
#include <algorithm>
#include <cmath>

#include "strategies/megatron_parts.hpp"

namespace orrery {
namespace {

LayerShape without_experts(LayerShape shape) {
  shape.experts = shape.experts_per_token = 1;
  shape.ffn = shape.shared_ffn = shape.expert_hidden = 0;
  shape.shared_gate = shape.router_bias = false;
  return shape;
}

// Megatron-LM's hybrid stack: one part and one norm a layer, all layers of a kind alike.
Gaps hybrid_gaps(const ModelSpec& model) {
  for (const LayerShape& shape : model.shapes) {
    const int parts = int{shape.has_state_space()} + int{shape.has_attention()} + int{shape.has_mlp()};
    if (parts != 1 || shape.norms != 1)
      return {"a layer has " + std::to_string(parts) + " parts and " + std::to_string(shape.norms) +
              " norms; Megatron-LM's hybrid stack has one of each a layer"};
    for (const LayerShape& other : model.shapes) {
      const bool alike = shape.has_state_space() == other.has_state_space() &&
                         shape.has_attention() == other.has_attention() && shape.experts == other.experts;
      if (alike && shape != other)
        return {"the model has layers of one kind and different width; Megatron-LM builds each kind alike"};
    }
  }
  return {};
}

Gaps layer_gaps(const ModelSpec& model) {
  if (std::any_of(model.shapes.begin(), model.shapes.end(),
                  [](const LayerShape& shape) { return shape.predicts_more(); }))
    return {
        "the model has layers that predict further tokens; Megatron-LM takes them as --mtp-num-layers, "
        "beside "
        "the others, which these files do not write"};
  if (model.is_hybrid()) return hybrid_gaps(model);
  Gaps gaps;
  const LayerShape& first = model.layer(0);
  for (const LayerShape& shape : model.shapes)
    if (without_experts(shape) != without_experts(first)) {
      gaps.push_back(
          "the model has layers of different width, heads or form; Megatron-LM builds all layers alike");
      break;
    }
  if (first.parallel_residual)
    gaps.push_back("attention and MLP run side by side; Megatron-LM runs one after the other");
  if (first.norms != 2)
    gaps.push_back("a layer has " + std::to_string(first.norms) + " norms; Megatron-LM's GPT layer has 2");
  if (!first.linear_bias && (first.projection_bias || first.mlp_bias))
    gaps.emplace_back(
        "some linear layers beside the QKV projection have a bias; Megatron-LM has all or QKV only");
  if (first.attention_sinks)
    gaps.emplace_back("scores have sinks beside them; these files do not write --softmax-type learnable");
  if (first.position_bias)
    gaps.emplace_back(
        "scores have learned biases of their positions; Megatron-LM's models of one decoder do not");
  if (first.capped_scores || model.capped_logits)
    gaps.emplace_back("scores or logits are capped by tanh; Megatron-LM's arguments have no such caps");
  if (first.attention_window > 0)
    gaps.emplace_back("attention stays within blocks; Megatron-LM has no such windows");
  return gaps;
}

// Megatron-LM training/arguments.py has --swiglu, --quick-geglu and --squared-relu, and GELU without them.
Gaps activation_gaps(const ModelSpec& model) {
  for (const LayerShape& shape : model.shapes) {
    if (!shape.has_mlp()) continue;
    const bool gated = shape.mlp == MlpKind::gated;
    if (shape.activation == (gated ? Activation::silu : Activation::gelu)) continue;
    if (gated && shape.activation == Activation::gelu)
      return {"MLPs are gated by GELU (GeGLU); Megatron-LM's arguments have SwiGLU, and GeGLU only roughly"};
    if (gated) return {"MLPs are not gated by SiLU; Megatron-LM's arguments have SwiGLU"};
    if (shape.activation != Activation::squared_relu)
      return {"MLPs have neither GELU nor squared ReLU; Megatron-LM's arguments have no other"};
  }
  return {};
}

Gaps position_gaps(const ModelSpec& model) {
  Gaps gaps;
  if (model.alibi)
    gaps.emplace_back("attention falls with distance (ALiBi); Megatron-LM has rotary and learned positions");
  if (std::none_of(model.shapes.begin(), model.shapes.end(), [](const LayerShape& s) { return s.rotary; }))
    return gaps;
  const RotaryPositions& rotary = model.rotary_positions;
  if (rotary.base != std::floor(rotary.base))
    gaps.emplace_back("the base of rotary positions is no whole number, as Megatron-LM's --rotary-base is");
  const RotaryStretch usual = model.has_latent_attention() ? RotaryStretch::yarn : RotaryStretch::llama3;
  if (rotary.stretch != RotaryStretch::none && rotary.stretch != usual)
    gaps.emplace_back(
        "rotary positions are stretched (rope_scaling) as these arguments cannot say; they say Llama 3.1's "
        "rule, and with latent attention YaRN over 4,096 tokens");
  return gaps;
}

// Megatron-LM core/transformer/transformer_config.py and moe/moe_utils.py.
Gaps expert_gaps(const ModelSpec& model) {
  if (!model.has_experts()) return {};
  Gaps gaps;
  const bool biased = std::any_of(model.shapes.begin(), model.shapes.end(),
                                  [](const LayerShape& shape) { return shape.router_bias; });
  if (biased && !model.router.sigmoid)
    gaps.emplace_back("the router has a bias beside softmax; Megatron-LM has one beside sigmoid only");
  if (model.router.sigmoid && !model.router.normalised)
    gaps.emplace_back("experts are weighted by a sigmoid that is not normalised; Megatron-LM normalises it");
  return gaps;
}

}  // namespace

Gaps megatron_model_gaps(const ModelSpec& model) {
  Gaps gaps = layer_gaps(model);
  for (const Gaps& more : {activation_gaps(model), position_gaps(model), expert_gaps(model)})
    gaps.insert(gaps.end(), more.begin(), more.end());
  if (model.vocabulary == 0)
    gaps.emplace_back("the model has no vocabulary; pretrain_gpt.py trains on tokens");
  if (model.outputs > 0)
    gaps.emplace_back("the model's head has " + std::to_string(model.outputs) +
                      " outputs; pretrain_gpt.py predicts words");
  if (model.predicted_tokens > 0)
    gaps.emplace_back("the head sees a part of the tokens; pretrain_gpt.py predicts all");
  if (!model.causal) gaps.emplace_back("the model is not causal; pretrain_gpt.py trains causal models");
  if (!model.beyond_megatron.empty())
    gaps.push_back("the model has " + model.beyond_megatron +
                   ", which these files do not say to Megatron-LM");
  if (model.embedding_norm) gaps.emplace_back("a norm follows the embedding; Megatron-LM has none there");
  return gaps;
}

}  // namespace orrery
