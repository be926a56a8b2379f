#include "strategies/megatron.hpp"

#include <algorithm>
#include <string_view>

#include "platforms/errors.hpp"
#include "strategies/megatron_parts.hpp"

namespace orrery {

int widest_tensor(const ParallelStrategy& strategy) {
  int widest = 1;
  for (const StageDevices& stage : strategy.stages) widest = std::max(widest, stage.tensor);
  return widest;
}

namespace {

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

// Narrower types are those of matrices; the rest trains in bf16.
bool is_bf16(DataType type) {
  return type == DataType::bf16 || type == DataType::fp8 || type == DataType::fp4;
}

bool is_full(const Strategy& s) {
  return s.recompute.granularity == RecomputeGranularity::full;
}

Argument granularity(const Strategy& s) {
  if (s.recompute.granularity == RecomputeGranularity::none) return kNone;
  return text(to_text(s.recompute.granularity));
}

Argument modules(const Strategy& s) {
  const bool selective = s.recompute.granularity == RecomputeGranularity::selective;
  return selective ? text(to_text(s.recompute.modules)) : Argument(kNone);
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
      {"expert_tensor_parallel_size", [](M, S s) { return number(s.tensor_of_experts(0)); }},
      {"num_virtual_stages_per_pipeline_rank", [](M, S s) { return number_or_none(s.chunks > 1, s.chunks); }},
      {"num_layers_per_virtual_pipeline_stage", [](M, S s) { return layers_of_virtual_stage(s); }},
      {"pipeline_model_parallel_layout", [](M, S s) { return layout(s); }},
      // Megatron-LM turns the overlap off where nothing is interleaved.
      {"overlap_p2p_comm",
       [](M, S s) -> Argument { return s.chunks > 1 && s.transfers != TransferMode::blocking; }},
      {"use_tp_pp_dp_mapping", [](M, S s) -> Argument { return s.order == RankOrder::cp_pp_dp; }},
      {"sequence_parallel", [](M, S s) -> Argument { return s.sequence_parallel; }},
      {"use_distributed_optimizer", [](M, S s) -> Argument { return s.distributed_optimizer; }},
      {"num_distributed_optimizer_instances",
       [](M, S s) { return number_or_none(s.optimizer_instances > 1, s.optimizer_instances); }},
      {"use_megatron_fsdp", [](M, S s) -> Argument { return s.fully_sharded; }},
      // Nothing was sharded by default until 2026. Its documentation builds the model in shards, for what is
      // too large for one GPU; gradients are added up in fp32, as priced, not in the weights' type.
      {"data_parallel_sharding_strategy",
       [](M, S s) { return s.fully_sharded ? text("optim_grads_params") : Argument(kNone); }},
      {"init_model_with_meta_device", [](M, S s) -> Argument { return s.fully_sharded; }},
      {"megatron_fsdp_main_grads_dtype",
       [](M, S s) { return s.fully_sharded ? text("fp32") : Argument(kNone); }},
      // Transformer Engine before 2.10 cannot add to gradients that are sharded.
      {"gradient_accumulation_fusion", [](M, S s) -> Argument { return !s.fully_sharded; }},
      {"ckpt_format", [](M, S s) { return s.fully_sharded ? text("fsdp_dtensor") : Argument(kNone); }},
      // Fully sharded weights are priced as gathered, and their gradients as reduced, beside the layers.
      {"overlap_grad_reduce", [](M, S s) -> Argument { return s.overlap_grad_reduce || s.fully_sharded; }},
      {"overlap_param_gather", [](M, S s) -> Argument { return s.overlap_param_gather || s.fully_sharded; }},
      {"micro_batch_size", [](M, S s) { return number(s.micro_batch); }},
      {"global_batch_size", [](M, S s) { return number(s.global_batch); }},
      {"seq_length", [](M, S s) { return number(s.sequence); }},
      {"bf16", [](M, S s) -> Argument { return is_bf16(s.type); }},
      {"fp16", [](M, S s) -> Argument { return s.type == DataType::fp16; }},
      // Megatron-LM names the format: hybrid is E4M3 forward and E5M2 backward.
      {"fp8_format", [](M, S s) { return s.type == DataType::fp8 ? text("hybrid") : Argument(kNone); }},
      {"fp4_format", [](M, S s) { return s.type == DataType::fp4 ? text("e2m1") : Argument(kNone); }},
      {"recompute_granularity", [](M, S s) { return granularity(s); }},
      {"recompute_modules", [](M, S s) { return modules(s); }},
      {"recompute_method",
       [](M, S s) { return is_full(s) ? text(to_text(s.recompute.method)) : Argument(kNone); }},
      {"recompute_num_layers", [](M, S s) { return number_or_none(is_full(s), s.recompute.layers); }},
      // False where the plan leaves it to the software stack, as Megatron-LM does by default.
      {"tp_comm_overlap", [](M, S s) -> Argument { return s.tensor_overlap.value_or(false); }},
      {"optimizer_cpu_offload", [](M, S s) -> Argument { return s.optimizer_offload > 0; }},
      {"optimizer_offload_fraction",
       [](M, S s) { return s.optimizer_offload > 0 ? Argument(s.optimizer_offload) : Argument(kNone); }},
      // What the offloaded optimizer is built on.
      {"use_precision_aware_optimizer", [](M, S s) -> Argument { return s.optimizer_offload > 0; }},
      {"use_flash_attn", [](M, S s) -> Argument { return s.flash_attention; }},
      // As plans are priced where no software stack is named. Megatron-LM drops a tenth when nothing is said.
      {"attention_dropout", [](M, S) { return number(0); }},
      {"hidden_dropout", [](M, S) { return number(0); }},
      {"cross_entropy_loss_fusion", [](M, S) -> Argument { return true; }},
  };
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
  first.rotary = second.rotary = true;
  ModelSpec model;
  model.shapes = {first, second};
  model.layers = {0, 1, 1, 1};
  model.vocabulary = 1000;
  model.rotary_positions = {.base = 500'000,
                            .share = 0.5,
                            .stretch = hybrid ? RotaryStretch::llama3 : RotaryStretch::yarn,
                            .factor = 8};
  model.router = {.sigmoid = true, .scaling = 2.5, .groups = 4, .chosen_groups = 2, .balance_loss = 0.001};
  return model;
}

// Every argument has a value in one of these: an interleaved plan in 8 bits, fully recomputed, and an uneven
// one of a hybrid model in 4.
ArgumentTable example_of(bool uneven) {
  const ModelSpec model = example_model(uneven);
  ParallelStrategy strategy;
  strategy.pipeline = 2;
  strategy.chunks = uneven ? 1 : 2;
  strategy.type = uneven ? DataType::fp4 : DataType::fp8;
  strategy.recompute.granularity = uneven ? RecomputeGranularity::selective : RecomputeGranularity::full;
  strategy.optimizer_instances = 2;
  strategy.optimizer_offload = 0.5;
  strategy.fully_sharded = uneven;
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
    const std::vector<ArgumentRow> more = model_argument_rows();
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
