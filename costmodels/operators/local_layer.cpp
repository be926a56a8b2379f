#include "costmodels/operators/local_layer.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {

LayerSplit layer_split(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                       const ExpertLoad& expert_load) {
  return {.tensor = strategy.tensor(stage),
          .context = strategy.context,
          .expert = strategy.expert,
          .expert_tensor = strategy.expert_tensor,
          .micro_batch = strategy.micro_batch,
          .sequence = strategy.sequence > 0 ? strategy.sequence : model.default_sequence,
          .sequence_parallel = strategy.sequence_parallel,
          .expert_load = expert_load};
}

LocalLayer local_layer(const LayerShape& shape, const LayerSplit& split) {
  LocalLayer local;
  local.sequence = shape.sequence > 0 ? shape.sequence : split.sequence;
  local.query_tokens = divide_up(local.sequence, split.context);
  local.tokens = split.micro_batch * local.query_tokens;
  local.owned_tokens = split.sequence_parallel ? divide_up(local.tokens, split.tensor) : local.tokens;
  local.attended_tokens =
      shape.attention_window > 0 ? std::min(shape.attention_window, local.sequence) : local.sequence;
  const int head_ways = shape.splits_head_width ? 1 : split.tensor;
  const int width_ways = shape.splits_head_width ? split.tensor : 1;
  local.heads = divide_up(shape.heads, head_ways);
  local.kv_heads = divide_up(shape.kv_heads, head_ways);
  local.head_dim = divide_up(shape.head_dim, width_ways);
  local.value_dim = divide_up(shape.value_width(), width_ways);
  local.query_width = local.heads * local.head_dim;
  local.key_width = local.kv_heads * local.head_dim;
  local.value_width = local.kv_heads * local.value_dim;
  local.output_width = local.heads * local.value_dim;
  local.state_space = shape.state_space;
  local.state_space.heads = divide_up(shape.state_space.heads, split.tensor);
  local.state_space.groups = divide_up(shape.state_space.groups, split.tensor);
  const std::int64_t matrices = shape.mlp == MlpKind::gated ? 2 : 1;
  local.joined_width = divide_up(shape.hidden, split.tensor);
  local.ffn = divide_up(shape.ffn, split.tensor);
  local.up_width = matrices * local.ffn;
  local.shared_ffn = divide_up(shape.shared_ffn, split.tensor);
  local.shared_up_width = matrices * local.shared_ffn;
  local.routed_tokens = local.tokens;
  if (shape.experts > 1) {
    local.experts = divide_up(shape.experts, split.expert);
    // The expert group brings `expert` microbatches together and spreads their assignments over all experts.
    // Tensor ranks that have experts of their own bring their own tokens.
    const int tensor = split.expert_tensor.value_or(split.tensor);
    local.ffn = divide_up(shape.ffn, tensor);
    local.up_width = matrices * local.ffn;
    const std::int64_t brought = tensor < split.tensor ? local.owned_tokens : local.tokens;
    local.routed_tokens = divide_up(brought * split.expert * shape.experts_per_token, shape.experts);
    const ExpertSpread spread{
        .experts = shape.experts, .per_token = shape.experts_per_token, .ways = split.expert};
    local.busiest_load = busiest_load(spread, split.expert_load);
    local.one_hot = one_hot_matrices(spread, split.expert_load, local.owned_tokens, split.micro_batch);
    const double load = multiplied_load(spread, split.expert_load);
    local.routed_tokens =
        static_cast<std::int64_t>(std::ceil(load * static_cast<double>(local.routed_tokens)));
  }
  return local;
}

std::int64_t norm_parameters(NormKind kind, std::int64_t width) {
  return kind == NormKind::layer_norm ? 2 * width : width;
}

std::int64_t latent_up_width(const LayerShape& shape, const LocalLayer& local) {
  return local.heads * (shape.head_dim - shape.latent.rope_dim) + local.value_width;
}

namespace {

// Down projections and their norms are on every tensor rank (Megatron-LM
// core/transformer/multi_latent_attention.py: parallel_mode duplicated).
std::int64_t latent_parameters(const LayerShape& shape, const LocalLayer& local) {
  const LatentAttention& latent = shape.latent;
  std::int64_t count = shape.hidden * (latent.kv_rank + latent.rope_dim) +
                       latent.kv_rank * latent_up_width(shape, local) +
                       norm_parameters(shape.norm, latent.kv_rank);
  if (latent.query_rank == 0) return count + shape.hidden * local.query_width;
  count += latent.query_rank * (shape.hidden + local.query_width);
  return count + norm_parameters(shape.norm, latent.query_rank);
}

std::int64_t attention_parameters(const LayerShape& shape, const LocalLayer& local) {
  std::int64_t count =
      shape.latent.kv_rank > 0 ? latent_parameters(shape, local) : shape.hidden * local.qkv_width();
  count += shape.hidden * local.output_width;
  if (has_qkv_bias(shape)) count += local.qkv_width();
  if (has_projection_bias(shape)) count += shape.hidden;
  if (shape.wide_qk_norm) {
    count += local.query_width + local.key_width;
  } else if (shape.qk_norm) {
    count += 2 * norm_parameters(shape.norm, shape.head_dim);
  }
  if (shape.attention_sinks) count += local.heads;
  return count;
}

std::int64_t state_space_parameters(const LayerShape& shape, const StateSpace& local) {
  return shape.hidden * (local.projected() + local.inner()) + local.convolved() * (local.convolution + 1) +
         3 * local.heads + local.inner();
}

}  // namespace

LocalParameters local_parameters(const LayerShape& shape, const LocalLayer& local) {
  const auto mlp = [&](std::int64_t hidden, std::int64_t up, std::int64_t down) {
    return hidden * (up + down) + (has_mlp_bias(shape) ? up + hidden : 0);
  };
  std::int64_t dense = shape.norms * norm_parameters(shape.norm, shape.hidden);
  if (shape.has_attention()) dense += attention_parameters(shape, local);
  if (shape.joins_embedding)
    dense += 2 * shape.hidden * local.joined_width + 2 * norm_parameters(shape.norm, shape.hidden);
  if (shape.predicted_vocabulary > 0) dense += norm_parameters(shape.norm, shape.hidden);
  if (shape.has_state_space()) dense += state_space_parameters(shape, local.state_space);
  if (shape.experts == 1) {
    if (shape.has_mlp()) dense += mlp(shape.hidden, local.up_width, local.ffn);
    return {.dense = static_cast<double>(dense), .expert = 0.0};
  }
  dense += shape.hidden * shape.experts + (shape.router_bias ? shape.experts : 0);
  dense += 2 * shape.hidden * shape.expert_hidden;
  if (shape.shared_ffn > 0) dense += mlp(shape.hidden, local.shared_up_width, local.shared_ffn);
  if (shape.shared_gate) dense += shape.hidden;
  return {
      .dense = static_cast<double>(dense),
      .expert = static_cast<double>(local.experts * mlp(shape.routed_hidden(), local.up_width, local.ffn))};
}

DataType outside_fp8(DataType type) {
  return is_cast_from_16_bits(type) ? DataType::bf16 : type;
}

bool is_cast_from_16_bits(DataType type) {
  return type == DataType::fp8 || type == DataType::fp4;
}

double stored_bytes(DataType type) {
  return size_of(outside_fp8(type)).value();
}

double gradient_bytes(DataType type) {
  return type == DataType::fp16 ? 2.0 : 4.0;
}

}  // namespace orrery
