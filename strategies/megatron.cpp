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
  table.emplace_back("bf16", strategy.type == DataType::bf16 || strategy.type == DataType::fp8);
  table.emplace_back("fp16", strategy.type == DataType::fp16);
  // Megatron-LM names the format: hybrid is E4M3 forward and E5M2 backward.
  table.emplace_back("fp8_format", strategy.type == DataType::fp8 ? text("hybrid") : Argument(kNone));
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
}

std::string_view position_embedding(const ModelSpec& model) {
  if (model.layer(0).rotary) return "rope";
  return model.learned_positions > 0 ? "learned_absolute" : "none";
}

void append_model(ArgumentTable& table, const ModelSpec& model, const ParallelStrategy& strategy) {
  const LayerShape& shape = model.layer(0);
  table.emplace_back("num_layers", number(model.layer_count()));
  table.emplace_back("hidden_size", number(shape.hidden));
  table.emplace_back("ffn_hidden_size", number(dense_ffn(model)));
  table.emplace_back("num_attention_heads", number(shape.heads));
  table.emplace_back("kv_channels", number(shape.head_dim));
  table.emplace_back("group_query_attention", shape.kv_heads != shape.heads);
  table.emplace_back("num_query_groups", number(shape.kv_heads));
  table.emplace_back("swiglu", shape.mlp == MlpKind::gated);
  table.emplace_back("normalization", text(shape.norm == NormKind::rms_norm ? "RMSNorm" : "LayerNorm"));
  table.emplace_back("add_bias_linear", shape.linear_bias);
  table.emplace_back("add_qkv_bias", shape.linear_bias || shape.qkv_bias);
  table.emplace_back("qk_layernorm", shape.qk_norm);
  table.emplace_back("position_embedding_type", text(position_embedding(model)));
  table.emplace_back("max_position_embeddings", number(std::max(model.default_sequence, strategy.sequence)));
  table.emplace_back("untie_embeddings_and_output_weights", !model.tied_embeddings);
  table.emplace_back("padded_vocab_size", number(model.vocabulary));
  append_experts(table, model);
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

ArgumentTable megatron_arguments(const ModelSpec& model, const ParallelStrategy& strategy) {
  ORRERY_ENSURE(model.layer_count() > 0);
  ArgumentTable table;
  table.reserve(48);
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
