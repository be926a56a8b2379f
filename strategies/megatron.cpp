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

using Strategy = ParallelStrategy;

bool is_full(const Strategy& s) {
  return s.recompute.granularity == RecomputeGranularity::full;
}

Argument granularity(const Strategy& s) {
  if (s.recompute.granularity == RecomputeGranularity::none) return kNone;
  return text(to_text(s.recompute.granularity));
}

Argument layers_of_virtual_stage(const Strategy& s) {
  return number_or_none(s.chunks > 1 && equal_parts(s), s.parts.empty() ? 0 : s.parts.front().count);
}

Argument layout(const Strategy& s) {
  return equal_parts(s) ? Argument(kNone) : text(pipeline_layout(s));
}

// Of the arguments that say how the model is split and run.
std::vector<ArgumentRow> strategy_rows() {
  using M = const ModelSpec&;
  using S = const Strategy&;
  return {
      {"world_size", [](M, S s) { return number(world_size(s)); }},
      {"data_parallel_size", [](M, S s) { return number(s.data); }},
      {"tensor_model_parallel_size", [](M, S s) { return number(widest_tensor(s)); }},
      {"pipeline_model_parallel_size", [](M, S s) { return number(s.pipeline); }},
      {"context_parallel_size", [](M, S s) { return number(s.context); }},
      {"expert_model_parallel_size", [](M, S s) { return number(s.expert); }},
      {"num_virtual_stages_per_pipeline_rank", [](M, S s) { return number_or_none(s.chunks > 1, s.chunks); }},
      {"num_layers_per_virtual_pipeline_stage", [](M, S s) { return layers_of_virtual_stage(s); }},
      {"pipeline_model_parallel_layout", [](M, S s) { return layout(s); }},
      // Megatron-LM turns the overlap off where nothing is interleaved.
      {"overlap_p2p_comm",
       [](M, S s) -> Argument { return s.chunks > 1 && s.transfers != TransferMode::blocking; }},
      {"sequence_parallel", [](M, S s) -> Argument { return s.sequence_parallel; }},
      {"use_distributed_optimizer", [](M, S s) -> Argument { return s.distributed_optimizer; }},
      {"overlap_grad_reduce", [](M, S s) -> Argument { return s.overlap_grad_reduce; }},
      {"overlap_param_gather", [](M, S s) -> Argument { return s.overlap_param_gather; }},
      {"micro_batch_size", [](M, S s) { return number(s.micro_batch); }},
      {"global_batch_size", [](M, S s) { return number(s.global_batch); }},
      {"seq_length", [](M, S s) { return number(s.sequence); }},
      {"bf16", [](M, S s) -> Argument { return s.type == DataType::bf16 || s.type == DataType::fp8; }},
      {"fp16", [](M, S s) -> Argument { return s.type == DataType::fp16; }},
      // Megatron-LM names the format: hybrid is E4M3 forward and E5M2 backward.
      {"fp8_format", [](M, S s) { return s.type == DataType::fp8 ? text("hybrid") : Argument(kNone); }},
      {"recompute_granularity", [](M, S s) { return granularity(s); }},
      {"recompute_method",
       [](M, S s) { return is_full(s) ? text(to_text(s.recompute.method)) : Argument(kNone); }},
      {"recompute_num_layers", [](M, S s) { return number_or_none(is_full(s), s.recompute.layers); }},
      {"use_flash_attn", [](M, S s) -> Argument { return s.flash_attention; }},
  };
}

std::int64_t dense_ffn(const ModelSpec& model) {
  for (const LayerShape& shape : model.shapes)
    if (shape.experts == 1) return shape.ffn;
  return model.layer(0).ffn;
}

const LayerShape& widest_shape(const ModelSpec& model) {
  for (const LayerShape& shape : model.shapes)
    if (shape.experts > 1) return shape;
  return model.layer(0);
}

// "[0,1,1,1]", one entry a layer, where some layers are dense and some have experts.
Argument expert_layers(const ModelSpec& model) {
  std::string pattern;
  bool dense = false;
  bool sparse = false;
  for (int i = 0; i < model.layer_count(); ++i) {
    const bool experts = model.layer(i).experts > 1;
    (experts ? sparse : dense) = true;
    pattern += (pattern.empty() ? "[" : ",") + std::string(experts ? "1" : "0");
  }
  return dense && sparse ? text(pattern + "]") : Argument(kNone);
}

std::string_view position_embedding(const ModelSpec& model) {
  if (model.layer(0).rotary) return "rope";
  return model.learned_positions > 0 ? "learned_absolute" : "none";
}

template <class Count>
Argument of_experts(const ModelSpec& model, Count LayerShape::*count) {
  const LayerShape& shape = widest_shape(model);
  return number_or_none(shape.experts > 1, shape.*count);
}

// Of the arguments that say what the model is.
std::vector<ArgumentRow> model_rows() {
  using M = const ModelSpec&;
  using S = const Strategy&;
  return {
      {"num_layers", [](M m, S) { return number(m.layer_count()); }},
      {"hidden_size", [](M m, S) { return number(m.layer(0).hidden); }},
      {"ffn_hidden_size", [](M m, S) { return number(dense_ffn(m)); }},
      {"num_attention_heads", [](M m, S) { return number(m.layer(0).heads); }},
      {"kv_channels", [](M m, S) { return number(m.layer(0).head_dim); }},
      {"group_query_attention", [](M m, S) -> Argument { return m.layer(0).kv_heads != m.layer(0).heads; }},
      {"num_query_groups", [](M m, S) { return number(m.layer(0).kv_heads); }},
      {"swiglu", [](M m, S) -> Argument { return m.layer(0).mlp == MlpKind::gated; }},
      {"normalization",
       [](M m, S) { return text(m.layer(0).norm == NormKind::rms_norm ? "RMSNorm" : "LayerNorm"); }},
      {"add_bias_linear", [](M m, S) -> Argument { return m.layer(0).linear_bias; }},
      {"add_qkv_bias", [](M m, S) -> Argument { return m.layer(0).linear_bias || m.layer(0).qkv_bias; }},
      {"qk_layernorm", [](M m, S) -> Argument { return m.layer(0).qk_norm; }},
      {"position_embedding_type", [](M m, S) { return text(position_embedding(m)); }},
      {"max_position_embeddings", [](M m, S s) { return number(std::max(m.default_sequence, s.sequence)); }},
      {"untie_embeddings_and_output_weights", [](M m, S) -> Argument { return !m.tied_embeddings; }},
      {"padded_vocab_size", [](M m, S) { return number(m.vocabulary); }},
      {"num_experts", [](M m, S) { return of_experts(m, &LayerShape::experts); }},
      {"moe_router_topk", [](M m, S) { return of_experts(m, &LayerShape::experts_per_token); }},
      {"moe_ffn_hidden_size", [](M m, S) { return of_experts(m, &LayerShape::ffn); }},
      {"moe_layer_freq", [](M m, S) { return expert_layers(m); }},
      {"moe_shared_expert_intermediate_size",
       [](M m, S) { return number_or_none(widest_shape(m).shared_ffn > 0, widest_shape(m).shared_ffn); }},
      {"moe_shared_expert_gate", [](M m, S) -> Argument { return widest_shape(m).shared_gate; }},
  };
}

// "t*3" reads better than "ttt" from four on; Megatron-LM unrolls both.
std::string layers_of(int count) {
  return count > 3 ? "t*" + std::to_string(count) : std::string(static_cast<std::size_t>(count), 't');
}

// Every argument has a value in one of these: an interleaved plan, and an uneven one.
ArgumentTable example_of(bool uneven) {
  LayerShape dense{.hidden = 64, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 256};
  LayerShape sparse = dense;
  sparse.experts = 8;
  sparse.shared_ffn = 64;
  ModelSpec model;
  model.shapes = {dense, sparse};
  model.layers = {0, 1, 1, 1};
  model.vocabulary = 1000;
  ParallelStrategy strategy;
  strategy.pipeline = 2;
  strategy.chunks = uneven ? 1 : 2;
  strategy.type = DataType::fp8;
  strategy.recompute.granularity = RecomputeGranularity::full;
  strategy.stages.resize(2);
  if (uneven)
    strategy.parts = {{0, 1}, {1, 3}};
  else
    strategy.parts = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
  return megatron_arguments(model, strategy);
}

}  // namespace

const std::vector<ArgumentRow>& argument_rows() {
  static const std::vector<ArgumentRow> kRows = [] {
    std::vector<ArgumentRow> rows = strategy_rows();
    const std::vector<ArgumentRow> more = model_rows();
    rows.insert(rows.end(), more.begin(), more.end());
    return rows;
  }();
  return kRows;
}

ArgumentTable megatron_arguments(const ModelSpec& model, const ParallelStrategy& strategy) {
  ORRERY_ENSURE(model.layer_count() > 0);
  ArgumentTable table;
  table.reserve(argument_rows().size());
  for (const ArgumentRow& row : argument_rows())
    table.emplace_back(std::string(row.name), row.value(model, strategy));
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
