#include "costmodels/local_layer.hpp"

#include <algorithm>

namespace orrery {

LayerSplit layer_split(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  return {.tensor = strategy.tensor(stage),
          .context = strategy.context,
          .expert = strategy.expert,
          .micro_batch = strategy.micro_batch,
          .sequence = strategy.sequence > 0 ? strategy.sequence : model.default_sequence,
          .sequence_parallel = strategy.sequence_parallel};
}

LocalLayer local_layer(const LayerShape& shape, const LayerSplit& split) {
  LocalLayer local;
  local.sequence = shape.sequence > 0 ? shape.sequence : split.sequence;
  local.query_tokens = divide_up(local.sequence, split.context);
  local.tokens = split.micro_batch * local.query_tokens;
  local.owned_tokens = split.sequence_parallel ? divide_up(local.tokens, split.tensor) : local.tokens;
  local.attended_tokens =
      shape.attention_window > 0 ? std::min(shape.attention_window, local.sequence) : local.sequence;
  local.heads = divide_up(shape.heads, split.tensor);
  local.kv_heads = std::max<std::int64_t>(1, divide_up(shape.kv_heads, split.tensor));
  local.query_width = local.heads * shape.head_dim;
  local.kv_width = local.kv_heads * shape.head_dim;
  const std::int64_t matrices = shape.mlp == MlpKind::gated ? 2 : 1;
  local.ffn = divide_up(shape.ffn, split.tensor);
  local.up_width = matrices * local.ffn;
  local.shared_ffn = divide_up(shape.shared_ffn, split.tensor);
  local.shared_up_width = matrices * local.shared_ffn;
  local.routed_tokens = local.tokens;
  if (shape.experts > 1) {
    local.experts = divide_up(shape.experts, split.expert);
    // The expert group brings `expert` microbatches together and spreads their assignments over all experts.
    local.routed_tokens = divide_up(local.tokens * split.expert * shape.experts_per_token, shape.experts);
  }
  return local;
}

std::int64_t norm_parameters(NormKind kind, std::int64_t width) {
  return kind == NormKind::layer_norm ? 2 * width : width;
}

LocalParameters local_parameters(const LayerShape& shape, const LocalLayer& local) {
  const auto mlp = [&](std::int64_t up, std::int64_t down) {
    return shape.hidden * (up + down) + (has_mlp_bias(shape) ? up + shape.hidden : 0);
  };
  std::int64_t dense = shape.norms * norm_parameters(shape.norm, shape.hidden);
  dense += shape.hidden * (local.qkv_width() + local.query_width);
  if (has_qkv_bias(shape)) dense += local.qkv_width();
  if (has_projection_bias(shape)) dense += shape.hidden;
  if (shape.qk_norm) dense += 2 * norm_parameters(shape.norm, shape.head_dim);
  if (shape.experts == 1) {
    return {.dense = static_cast<double>(dense + mlp(local.up_width, local.ffn)), .expert = 0.0};
  }
  dense += shape.hidden * shape.experts;  // router
  if (shape.shared_ffn > 0) dense += mlp(local.shared_up_width, local.shared_ffn);
  if (shape.shared_gate) dense += shape.hidden;
  return {.dense = static_cast<double>(dense),
          .expert = static_cast<double>(local.experts * mlp(local.up_width, local.ffn))};
}

std::int64_t padded_vocabulary(std::int64_t vocabulary, int tensor) {
  const std::int64_t multiple = 128 * static_cast<std::int64_t>(tensor);
  return divide_up(vocabulary, multiple) * multiple;
}

DataType outside_fp8(DataType type) {
  return type == DataType::fp8 ? DataType::bf16 : type;
}

double stored_bytes(DataType type) {
  return size_of(outside_fp8(type)).value();
}

double gradient_bytes(DataType type) {
  return type == DataType::fp16 ? 2.0 : 4.0;
}

}  // namespace orrery
