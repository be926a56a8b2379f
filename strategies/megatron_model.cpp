// The arguments that say what the model is.
#include <algorithm>
#include <string>
#include <string_view>

#include "strategies/megatron_parts.hpp"

namespace orrery {
namespace {

using Strategy = ParallelStrategy;

// The first shape that `wanted` finds, or the first layer's.
template <class Wanted>
const LayerShape& shape_with(const ModelSpec& model, Wanted wanted) {
  const auto found = std::find_if(model.shapes.begin(), model.shapes.end(), wanted);
  return found == model.shapes.end() ? model.layer(0) : *found;
}

const LayerShape& mlp_shape(const ModelSpec& model) {
  return shape_with(model, [](const LayerShape& shape) { return shape.has_mlp(); });
}

std::int64_t dense_ffn(const ModelSpec& model) {
  for (const LayerShape& shape : model.shapes)
    if (shape.experts == 1 && shape.has_mlp()) return shape.ffn;
  return mlp_shape(model).ffn;
}

const LayerShape& widest_shape(const ModelSpec& model) {
  return shape_with(model, [](const LayerShape& shape) { return shape.experts > 1; });
}

// One character a layer (Megatron-LM core/ssm/mamba_hybrid_layer_allocation.py).
std::string hybrid_pattern(const ModelSpec& model) {
  std::string pattern;
  for (int i = 0; i < model.layer_count(); ++i) {
    const LayerShape& shape = model.layer(i);
    pattern += shape.has_state_space() ? 'M' : shape.has_attention() ? '*' : shape.experts > 1 ? 'E' : '-';
  }
  return pattern;
}

// "[0,1,1,1]", one entry a layer, where some layers are dense and some have experts.
Argument expert_layers(const ModelSpec& model) {
  std::string pattern;
  if (model.is_hybrid()) return kNone;  // its pattern says so
  bool dense = false;
  bool sparse = false;
  for (int i = 0; i < model.layer_count(); ++i) {
    const bool experts = model.layer(i).experts > 1;
    (experts ? sparse : dense) = true;
    pattern += (pattern.empty() ? "[" : ",") + std::string(experts ? "1" : "0");
  }
  return dense && sparse ? text(pattern + "]") : Argument(kNone);
}

template <class Count>
Argument of_experts(const ModelSpec& model, Count LayerShape::*count) {
  const LayerShape& shape = widest_shape(model);
  return number_or_none(shape.experts > 1, shape.*count);
}

// Of how the router chooses; most is said only where it is not Megatron-LM's own choice.
std::vector<ArgumentRow> router_rows() {
  using M = const ModelSpec&;
  using S = const Strategy&;
  return {
      // Megatron-LM balances by a bias only where scores are sigmoids.
      {"moe_router_enable_expert_bias", [](M m, S) -> Argument { return widest_shape(m).router_bias; }},
      {"moe_router_score_function",
       [](M m, S) { return m.has_experts() && m.router.sigmoid ? text("sigmoid") : Argument(kNone); }},
      // Softmax over all experts is softmax over the chosen ones with another sum; of one it is a constant,
      // which Megatron-LM refuses.
      {"moe_router_pre_softmax",
       [](M m, S) -> Argument {
         const bool constant = widest_shape(m).experts_per_token == 1;
         return m.has_experts() && !m.router.sigmoid && (constant || !m.router.normalised);
       }},
      {"moe_router_num_groups", [](M m, S) { return number_or_none(m.router.groups > 1, m.router.groups); }},
      {"moe_router_group_topk",
       [](M m, S) { return number_or_none(m.router.groups > 1, m.router.chosen_groups); }},
      {"moe_router_topk_scaling_factor", [](M m, S) { return unless(1, m.router.scaling); }},
      {"moe_router_load_balancing_type",
       [](M m, S) {
         if (m.router.balance_loss == 0) return Argument(kNone);
         return text(m.router.balances_sequences ? "seq_aux_loss" : "aux_loss");
       }},
      {"moe_aux_loss_coeff", [](M m, S) { return unless(0, m.router.balance_loss); }},
  };
}

std::vector<ArgumentRow> expert_rows() {
  using M = const ModelSpec&;
  using S = const Strategy&;
  return {
      {"num_experts", [](M m, S) { return of_experts(m, &LayerShape::experts); }},
      {"moe_router_topk", [](M m, S) { return of_experts(m, &LayerShape::experts_per_token); }},
      {"moe_ffn_hidden_size", [](M m, S) { return of_experts(m, &LayerShape::ffn); }},
      {"moe_layer_freq", [](M m, S) { return expert_layers(m); }},
      {"moe_shared_expert_intermediate_size",
       [](M m, S) { return number_or_none(widest_shape(m).shared_ffn > 0, widest_shape(m).shared_ffn); }},
      {"moe_shared_expert_gate", [](M m, S) -> Argument { return widest_shape(m).shared_gate; }},
      {"moe_latent_size",
       [](M m, S) {
         return number_or_none(widest_shape(m).expert_hidden > 0, widest_shape(m).expert_hidden);
       }},
      // As priced: experts' matrices in groups, tokens by an all-to-all exchange.
      {"moe_grouped_gemm", [](M m, S) -> Argument { return m.has_experts(); }},
      {"moe_token_dispatcher_type",
       [](M m, S) { return m.has_experts() ? text("alltoall") : Argument(kNone); }},
  };
}

const LayerShape& attention_shape(const ModelSpec& model) {
  return shape_with(model, [](const LayerShape& one) { return one.has_attention(); });
}
bool is_latent(const ModelSpec& model) {
  return attention_shape(model).latent.kv_rank > 0;
}

std::vector<ArgumentRow> latent_rows() {
  using M = const ModelSpec&;
  using S = const Strategy&;
  return {
      {"multi_latent_attention", [](M m, S) -> Argument { return is_latent(m); }},
      {"q_lora_rank",
       [](M m, S) {
         const std::int64_t rank = attention_shape(m).latent.query_rank;
         return number_or_none(rank > 0, rank);
       }},
      {"kv_lora_rank",
       [](M m, S) { return number_or_none(is_latent(m), attention_shape(m).latent.kv_rank); }},
      {"qk_head_dim",
       [](M m, S) {
         const LayerShape& shape = attention_shape(m);
         return number_or_none(is_latent(m), shape.head_dim - shape.latent.rope_dim);
       }},
      {"qk_pos_emb_head_dim",
       [](M m, S) { return number_or_none(is_latent(m), attention_shape(m).latent.rope_dim); }},
      {"v_head_dim", [](M m, S) { return number_or_none(is_latent(m), attention_shape(m).value_width()); }},
  };
}

Argument of_state_space(const ModelSpec& model, std::int64_t StateSpace::*count) {
  const StateSpace& space =
      shape_with(model, [](const LayerShape& shape) { return shape.has_state_space(); }).state_space;
  return number_or_none(model.is_hybrid(), space.*count);
}

std::vector<ArgumentRow> hybrid_rows() {
  using M = const ModelSpec&;
  using S = const Strategy&;
  return {
      {"is_hybrid_model", [](M m, S) -> Argument { return m.is_hybrid(); }},
      {"hybrid_override_pattern",
       [](M m, S) { return m.is_hybrid() ? text(hybrid_pattern(m)) : Argument(kNone); }},
      {"mamba_num_heads", [](M m, S) { return of_state_space(m, &StateSpace::heads); }},
      {"mamba_head_dim", [](M m, S) { return of_state_space(m, &StateSpace::head_dim); }},
      {"mamba_num_groups", [](M m, S) { return of_state_space(m, &StateSpace::groups); }},
      {"mamba_state_dim", [](M m, S) { return of_state_space(m, &StateSpace::state); }},
  };
}

bool is_rotary(const ModelSpec& model) {
  return attention_shape(model).rotary;
}
bool is_stretched(const ModelSpec& model, RotaryStretch stretch) {
  return is_rotary(model) && model.rotary_positions.stretch == stretch;
}

// With latent attention Megatron-LM turns by YaRN, which without a factor is no stretch.
std::vector<ArgumentRow> rotary_rows() {
  using M = const ModelSpec&;
  using S = const Strategy&;
  constexpr auto llama3 = RotaryStretch::llama3;
  constexpr auto yarn = RotaryStretch::yarn;
  return {
      {"rotary_base",
       [](M m, S) { return is_rotary(m) ? Argument(m.rotary_positions.base) : Argument(kNone); }},
      {"rotary_percent",
       [](M m, S) { return is_rotary(m) ? unless(1, m.rotary_positions.share) : Argument(kNone); }},
      {"use_rope_scaling", [](M m, S) -> Argument { return is_stretched(m, llama3); }},
      {"rope_scaling_factor",
       [](M m, S) {
         return is_stretched(m, llama3) ? Argument(m.rotary_positions.factor) : Argument(kNone);
       }},
      {"rotary_scaling_factor",
       [](M m, S) { return is_stretched(m, yarn) ? Argument(m.rotary_positions.factor) : Argument(kNone); }},
      {"mscale",
       [](M m, S) { return is_stretched(m, yarn) ? Argument(m.rotary_positions.mscale) : Argument(kNone); }},
      {"mscale_all_dim",
       [](M m, S) {
         return is_stretched(m, yarn) ? Argument(m.rotary_positions.mscale_all_dim) : Argument(kNone);
       }},
  };
}

std::string_view position_embedding(const ModelSpec& model) {
  if (is_rotary(model)) return "rope";
  return model.learned_positions > 0 ? "learned_absolute" : "none";
}

std::vector<ArgumentRow> model_rows() {
  using M = const ModelSpec&;
  using S = const Strategy&;
  constexpr auto& shape = attention_shape;
  return {
      {"num_layers", [](M m, S) { return number(m.layer_count()); }},
      {"hidden_size", [](M m, S) { return number(shape(m).hidden); }},
      {"ffn_hidden_size", [](M m, S) { return number(dense_ffn(m)); }},
      {"num_attention_heads", [](M m, S) { return number(shape(m).heads); }},
      {"kv_channels", [](M m, S) { return number_or_none(!is_latent(m), shape(m).head_dim); }},
      {"group_query_attention", [](M m, S) -> Argument { return shape(m).kv_heads != shape(m).heads; }},
      {"num_query_groups", [](M m, S) { return number(shape(m).kv_heads); }},
      {"swiglu", [](M m, S) -> Argument { return mlp_shape(m).mlp == MlpKind::gated; }},
      {"squared_relu",
       [](M m, S) -> Argument { return mlp_shape(m).activation == Activation::squared_relu; }},
      // Which adds the bias in one kernel with GELU; Megatron-LM refuses it beside another activation.
      {"bias_gelu_fusion",
       [](M m, S) -> Argument {
         return mlp_shape(m).activation != Activation::squared_relu || !mlp_shape(m).linear_bias;
       }},
      {"normalization",
       [](M m, S) { return text(shape(m).norm == NormKind::rms_norm ? "RMSNorm" : "LayerNorm"); }},
      {"add_bias_linear", [](M m, S) -> Argument { return shape(m).linear_bias; }},
      {"add_qkv_bias", [](M m, S) -> Argument { return shape(m).linear_bias || shape(m).qkv_bias; }},
      // With latent attention: the norms of its narrow vectors.
      {"qk_layernorm", [](M m, S) -> Argument { return shape(m).qk_norm || is_latent(m); }},
      {"position_embedding_type", [](M m, S) { return text(position_embedding(m)); }},
      {"max_position_embeddings", [](M m, S s) { return number(std::max(m.default_sequence, s.sequence)); }},
      {"untie_embeddings_and_output_weights", [](M m, S) -> Argument { return !m.tied_embeddings; }},
      {"padded_vocab_size",
       [](M m, S s) { return number(padded_vocabulary(m.vocabulary, widest_tensor(s))); }},
  };
}

}  // namespace

std::vector<ArgumentRow> model_argument_rows() {
  std::vector<ArgumentRow> rows = model_rows();
  for (const auto& more : {rotary_rows(), latent_rows(), expert_rows(), router_rows(), hybrid_rows()})
    rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

}  // namespace orrery
