#include "strategies/megatron.hpp"

#include <algorithm>
#include <string_view>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr std::monostate kNone;

Argument number(std::int64_t value) {
  return static_cast<double>(value);
}
Argument number_or_none(bool present, std::int64_t value) {
  return present ? number(value) : Argument(kNone);
}
Argument text(std::string_view value) {
  return std::string(value);
}

int widest_tensor(const ParallelStrategy& strategy) {
  int widest = 1;
  for (const StageDevices& stage : strategy.stages) widest = std::max(widest, stage.tensor);
  return widest;
}

std::int64_t world_size(const ParallelStrategy& strategy) {
  std::int64_t ranks = 0;
  for (const StageDevices& stage : strategy.stages)
    ranks += std::int64_t{stage.tensor} * strategy.context * strategy.data;
  return ranks;
}

bool equal_parts(const ParallelStrategy& strategy) {
  return std::all_of(strategy.parts.begin(), strategy.parts.end(),
                     [&](const LayerRange& part) { return part.count == strategy.parts.front().count; });
}

void append_parallel(ArgumentTable& table, const ParallelStrategy& strategy) {
  const bool interleaved = strategy.chunks > 1;
  const bool even = equal_parts(strategy);
  table.emplace_back("world_size", number(world_size(strategy)));
  table.emplace_back("data_parallel_size", number(strategy.data));
  table.emplace_back("tensor_model_parallel_size", number(widest_tensor(strategy)));
  table.emplace_back("pipeline_model_parallel_size", number(strategy.pipeline));
  table.emplace_back("context_parallel_size", number(strategy.context));
  table.emplace_back("expert_model_parallel_size", number(strategy.expert));
  table.emplace_back("num_virtual_stages_per_pipeline_rank", number_or_none(interleaved, strategy.chunks));
  table.emplace_back(
      "num_layers_per_virtual_pipeline_stage",
      number_or_none(interleaved && even, strategy.parts.empty() ? 0 : strategy.parts.front().count));
  table.emplace_back("pipeline_model_parallel_layout",
                     even ? Argument(kNone) : text(pipeline_layout(strategy)));
  // Megatron-LM turns the overlap off where nothing is interleaved.
  table.emplace_back("overlap_p2p_comm", interleaved && strategy.transfers != TransferMode::blocking);
  table.emplace_back("use_tp_pp_dp_mapping", strategy.order == RankOrder::cp_pp_dp);
  table.emplace_back("sequence_parallel", strategy.sequence_parallel);
  table.emplace_back("use_distributed_optimizer", strategy.distributed_optimizer);
  table.emplace_back("overlap_grad_reduce", strategy.overlap_grad_reduce);
  table.emplace_back("overlap_param_gather", strategy.overlap_param_gather);
}

void append_batch(ArgumentTable& table, const ParallelStrategy& strategy) {
  table.emplace_back("micro_batch_size", number(strategy.micro_batch));
  table.emplace_back("global_batch_size", number(strategy.global_batch));
  table.emplace_back("seq_length", number(strategy.sequence));
  table.emplace_back("bf16", strategy.type == DataType::bf16 || strategy.type == DataType::fp8 ||
                                 strategy.type == DataType::fp4);
  table.emplace_back("fp16", strategy.type == DataType::fp16);
  // Megatron-LM names the format: hybrid is E4M3 forward and E5M2 backward.
  table.emplace_back("fp8_format", strategy.type == DataType::fp8 ? text("hybrid") : Argument(kNone));
  table.emplace_back("fp4_format", strategy.type == DataType::fp4 ? text("e2m1") : Argument(kNone));
}

void append_recompute(ArgumentTable& table, const ParallelStrategy& strategy) {
  const Recompute& recompute = strategy.recompute;
  const bool any = recompute.granularity != RecomputeGranularity::none;
  const bool full = recompute.granularity == RecomputeGranularity::full;
  table.emplace_back("recompute_granularity", any ? text(full ? "full" : "selective") : Argument(kNone));
  const bool block = recompute.method == RecomputeMethod::block;
  table.emplace_back("recompute_method", full ? text(block ? "block" : "uniform") : Argument(kNone));
  table.emplace_back("recompute_num_layers", number_or_none(full, recompute.layers));
  table.emplace_back("use_flash_attn", strategy.flash_attention);
}

// The first shape that `wanted` finds, or the first layer's.
template <class Wanted>
const LayerShape& shape_with(const ModelSpec& model, Wanted wanted) {
  const auto found = std::find_if(model.shapes.begin(), model.shapes.end(), wanted);
  return found == model.shapes.end() ? model.layer(0) : *found;
}

std::int64_t dense_ffn(const ModelSpec& model) {
  for (const LayerShape& shape : model.shapes)
    if (shape.experts == 1 && shape.has_mlp()) return shape.ffn;
  return shape_with(model, [](const LayerShape& shape) { return shape.has_mlp(); }).ffn;
}

const LayerShape& widest_shape(const ModelSpec& model) {
  for (const LayerShape& shape : model.shapes)
    if (shape.experts > 1) return shape;
  return model.layer(0);
}

bool is_hybrid(const ModelSpec& model) {
  return std::any_of(model.shapes.begin(), model.shapes.end(),
                     [](const LayerShape& shape) { return shape.has_state_space(); });
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
  if (is_hybrid(model)) return kNone;  // its pattern says so
  bool dense = false;
  bool sparse = false;
  for (int i = 0; i < model.layer_count(); ++i) {
    const bool experts = model.layer(i).experts > 1;
    (experts ? sparse : dense) = true;
    pattern += (pattern.empty() ? "[" : ",") + std::string(experts ? "1" : "0");
  }
  return dense && sparse ? text(pattern + "]") : Argument(kNone);
}

void append_experts(ArgumentTable& table, const ModelSpec& model) {
  const LayerShape& shape = widest_shape(model);
  const bool experts = shape.experts > 1;
  table.emplace_back("num_experts", number_or_none(experts, shape.experts));
  table.emplace_back("moe_router_topk", number_or_none(experts, shape.experts_per_token));
  table.emplace_back("moe_ffn_hidden_size", number_or_none(experts, shape.ffn));
  table.emplace_back("moe_layer_freq", expert_layers(model));
  table.emplace_back("moe_shared_expert_intermediate_size",
                     number_or_none(shape.shared_ffn > 0, shape.shared_ffn));
  table.emplace_back("moe_shared_expert_gate", shape.shared_gate);
  table.emplace_back("moe_latent_size", number_or_none(shape.expert_hidden > 0, shape.expert_hidden));
  table.emplace_back("moe_router_enable_expert_bias", shape.router_bias);
  // Megatron-LM balances by a bias only where scores are sigmoids.
  table.emplace_back("moe_router_score_function", shape.router_bias ? text("sigmoid") : Argument(kNone));
}

void append_latent(ArgumentTable& table, const LayerShape& shape) {
  const LatentAttention& latent = shape.latent;
  const bool any = latent.kv_rank > 0;
  table.emplace_back("multi_latent_attention", any);
  table.emplace_back("q_lora_rank", number_or_none(latent.query_rank > 0, latent.query_rank));
  table.emplace_back("kv_lora_rank", number_or_none(any, latent.kv_rank));
  table.emplace_back("qk_head_dim", number_or_none(any, shape.head_dim - latent.rope_dim));
  table.emplace_back("qk_pos_emb_head_dim", number_or_none(any, latent.rope_dim));
  table.emplace_back("v_head_dim", number_or_none(any, shape.value_width()));
}

void append_hybrid(ArgumentTable& table, const ModelSpec& model) {
  const bool any = is_hybrid(model);
  const StateSpace& space =
      shape_with(model, [](const LayerShape& shape) { return shape.has_state_space(); }).state_space;
  table.emplace_back("is_hybrid_model", any);
  table.emplace_back("hybrid_override_pattern", any ? text(hybrid_pattern(model)) : Argument(kNone));
  table.emplace_back("mamba_num_heads", number_or_none(any, space.heads));
  table.emplace_back("mamba_head_dim", number_or_none(any, space.head_dim));
  table.emplace_back("mamba_num_groups", number_or_none(any, space.groups));
  table.emplace_back("mamba_state_dim", number_or_none(any, space.state));
  // Of the models with such layers Orrery reads Nemotron's, whose plain MLPs have this activation.
  table.emplace_back("squared_relu", any && model.layer(0).mlp == MlpKind::gelu);
}

std::string_view position_embedding(const ModelSpec& model) {
  if (model.layer(0).rotary) return "rope";
  return model.learned_positions > 0 ? "learned_absolute" : "none";
}

void append_model(ArgumentTable& table, const ModelSpec& model, const ParallelStrategy& strategy) {
  const LayerShape& shape = shape_with(model, [](const LayerShape& one) { return one.has_attention(); });
  const bool latent = shape.latent.kv_rank > 0;
  table.emplace_back("num_layers", number(model.layer_count()));
  table.emplace_back("hidden_size", number(shape.hidden));
  table.emplace_back("ffn_hidden_size", number(dense_ffn(model)));
  table.emplace_back("num_attention_heads", number(shape.heads));
  table.emplace_back("kv_channels", number_or_none(!latent, shape.head_dim));
  table.emplace_back("group_query_attention", shape.kv_heads != shape.heads);
  table.emplace_back("num_query_groups", number(shape.kv_heads));
  table.emplace_back("swiglu", shape.mlp == MlpKind::gated);
  table.emplace_back("normalization", text(shape.norm == NormKind::rms_norm ? "RMSNorm" : "LayerNorm"));
  table.emplace_back("add_bias_linear", shape.linear_bias);
  table.emplace_back("add_qkv_bias", shape.linear_bias || shape.qkv_bias);
  // With latent attention: the norms of its narrow vectors.
  table.emplace_back("qk_layernorm", shape.qk_norm || latent);
  table.emplace_back("position_embedding_type", text(position_embedding(model)));
  table.emplace_back("max_position_embeddings", number(std::max(model.default_sequence, strategy.sequence)));
  table.emplace_back("untie_embeddings_and_output_weights", !model.tied_embeddings);
  table.emplace_back("padded_vocab_size", number(model.vocabulary));
  append_latent(table, shape);
  append_experts(table, model);
  append_hybrid(table, model);
}

// "t*3" reads better than "ttt" from four on; Megatron-LM unrolls both.
std::string layers_of(int count) {
  return count > 3 ? "t*" + std::to_string(count) : std::string(static_cast<std::size_t>(count), 't');
}

LayerShape example_attention() {
  LayerShape shape;
  shape.hidden = 64;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 16;
  return shape;
}

ModelSpec example_model(bool hybrid) {
  LayerShape first = example_attention();
  LayerShape second = first;
  if (hybrid) {
    second = {};
    second.state_space = {
        .heads = 4, .head_dim = 16, .groups = 1, .state = 16, .convolution = 4, .chunk = 16};
  } else {
    first.latent = second.latent = {.query_rank = 16, .kv_rank = 16, .rope_dim = 8};
    first.ffn = 256;
    second.ffn = 32;
    second.experts = 8;
    second.expert_hidden = 32;
    second.router_bias = true;
    second.shared_ffn = 64;
  }
  ModelSpec model;
  model.shapes = {first, second};
  model.layers = {0, 1, 1, 1};
  model.vocabulary = 1000;
  return model;
}

// Every argument has a value in one of these: an interleaved plan in 8 bits, and an uneven one of a hybrid
// model in 4.
ArgumentTable example_of(bool uneven) {
  const ModelSpec model = example_model(uneven);
  ParallelStrategy strategy;
  strategy.pipeline = 2;
  strategy.chunks = uneven ? 1 : 2;
  strategy.type = uneven ? DataType::fp4 : DataType::fp8;
  strategy.recompute.granularity = RecomputeGranularity::full;
  strategy.stages.resize(2);
  if (uneven)
    strategy.parts = {{0, 1}, {1, 3}};
  else
    strategy.parts = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
  return megatron_arguments(model, strategy);
}

}  // namespace

ArgumentTable megatron_arguments(const ModelSpec& model, const ParallelStrategy& strategy) {
  ORRERY_ENSURE(model.layer_count() > 0);
  ArgumentTable table;
  table.reserve(68);
  append_parallel(table, strategy);
  append_batch(table, strategy);
  append_recompute(table, strategy);
  append_model(table, model, strategy);
  return table;
}

const ArgumentTable& argument_examples() {
  static const ArgumentTable kExamples = [] {
    ArgumentTable table = example_of(false);
    const ArgumentTable uneven = example_of(true);
    for (std::size_t i = 0; i < table.size(); ++i)
      if (std::holds_alternative<std::monostate>(table[i].second)) table[i] = uneven[i];
    return table;
  }();
  return kExamples;
}

std::string pipeline_layout(const ParallelStrategy& strategy) {
  ORRERY_ENSURE(!strategy.parts.empty());
  std::string layout;
  const std::size_t last = strategy.parts.size() - 1;
  for (std::size_t i = 0; i <= last;) {
    const int count = strategy.parts[i].count;
    std::size_t repeats = 1;
    // Only parts between the first and the last fold: those carry E and L.
    while (i > 0 && i + repeats < last && strategy.parts[i + repeats].count == count) ++repeats;
    if (i == last) {
      layout += (i == 0 ? "E" : "") + layers_of(count) + "L";
    } else if (i == 0) {
      layout += "E" + layers_of(count) + "|";
    } else if (repeats > 1) {
      layout += "(" + layers_of(count) + "|)*" + std::to_string(repeats) + ",";
    } else {
      layout += layers_of(count) + "|";
    }
    i += repeats;
  }
  return layout;
}

}  // namespace orrery
