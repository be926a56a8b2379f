#include <algorithm>
#include <vector>

#include "costmodels/layers/layer_parts.hpp"

namespace orrery {
namespace {

constexpr Traffic kRope{4.0, 4.0};  // of Q, K and V: splitting the fused projection is part of it
// What _apply_rotary_pos_emb_bshd of Megatron-LM moves beyond that of an element of Q and K in eager kernels.
// Halves negated (2), joined (4), times cosine and sine (8), added (6), joined with what does not turn (4),
// less 4. Backward times both (8), negated (2), joined (4), added (6), the gradients of two slices (6 + 2),
// added (6), less 4.
constexpr Traffic kEagerRope{20.0, 30.0};

// The fused kernel of Megatron-LM and Transformer Engine takes four heads or sequences at once
// (is_kernel_available, megatron/core/fusions/fused_softmax.py).
SoftmaxKernel softmax_kernel(const Layer& layer) {
  constexpr std::int64_t kAtOnce = 4;
  const SoftmaxKernel kernel = layer.sharding.stack.softmax;
  const bool unfused = layer.sharding.attention == AttentionKernel::unfused;
  const bool in_fours = layer.sharding.micro_batch * layer.local.heads % kAtOnce == 0;
  return unfused && kernel == SoftmaxKernel::fused && !in_fours ? SoftmaxKernel::wide : kernel;
}

bool exchanges_heads(const Layer& layer) {
  return layer.sharding.context > 1 && layer.sharding.stack.context_exchange == ContextExchange::heads;
}

// Of what is exchanged: transposed before and after (single_all_to_all of deepspeed/sequence/layer.py).
constexpr Traffic kTransposes{8.0, 8.0};

void exchange_heads(BlockBuilder& block, const Layer& layer, double elements) {
  block.context_heads_exchange(elements);
  add(block, MemoryKernel::copy, elements, kTransposes);
}

// Keys and values of fewer heads than ranks are sent to several of them.
double head_elements(const Layer& layer) {
  const LocalLayer& local = layer.local;
  const std::int64_t copies = divide_up(layer.sharding.context, local.kv_heads);
  return count(local.tokens, local.query_width + copies * (local.key_width + local.value_width));
}

// Where the layer has attention windows each is a sequence of its own, or the part of it a context rank
// holds.
Attention attention_core(const Layer& layer, bool causal) {
  const LocalLayer& local = layer.local;
  const int ways = exchanges_heads(layer) ? layer.sharding.context : 1;
  const std::int64_t tokens = local.query_tokens * ways;
  const std::int64_t query_tokens = std::min(tokens, local.attended_tokens);
  return {.batch = layer.sharding.micro_batch * divide_up(tokens, query_tokens),
          .heads = divide_up(local.heads, ways),
          .kv_heads = divide_up(local.kv_heads, ways),
          .query_tokens = query_tokens,
          .kv_tokens = local.attended_tokens,
          .head_dim = local.head_dim,
          .value_dim = layer.shape.value_dim > 0 ? local.value_dim : 0,
          .causal = causal,
          .kernel = layer.sharding.attention,
          .softmax = softmax_kernel(layer),
          .biased = layer.shape.position_bias,
          .dropout = drops_out(layer),
          .direction = Direction::forward,
          .type = outside_fp8(layer.sharding.type)};
}

// Megatron-LM core/transformer/multi_latent_attention.py: each tensor rank projects its own tokens down, with
// sequence parallelism; what the group gathers are the narrow vectors and the rotary keys.
void add_latent_projections(BlockBuilder& block, const Layer& layer) {
  const LocalLayer& local = layer.local;
  const LayerShape& shape = layer.shape;
  const LatentAttention& latent = shape.latent;
  const DataType type = layer.sharding.type;
  const bool narrow_queries = latent.query_rank > 0;
  const std::int64_t own = local.owned_tokens;
  if (narrow_queries)
    block.linear({.m = own, .n = latent.query_rank, .k = shape.hidden, .type = type},
                 InputCast::ungathered_after_norm);
  block.linear({.m = own, .n = latent.kv_rank + latent.rope_dim, .k = shape.hidden, .type = type},
               InputCast::ungathered_after_norm);
  block.enter(RecomputeModule::mla_up_proj);  // until rope
  add(block, MemoryKernel::norm, count(own, latent.query_rank), kNorm);
  add(block, MemoryKernel::norm, count(own, latent.kv_rank), kNorm);
  const std::int64_t query_input = narrow_queries ? latent.query_rank : shape.hidden;
  block.enter_tensor_region(count(local.tokens, query_input + latent.kv_rank + latent.rope_dim),
                            TensorInput::of_matrix);
  block.linear({.m = local.tokens, .n = local.query_width, .k = query_input, .type = type},
               InputCast::after_norm);
  block.linear({.m = local.tokens, .n = latent_up_width(shape, local), .k = latent.kv_rank, .type = type},
               InputCast::after_norm);
}
}  // namespace

void add_attention(BlockBuilder& block, const Layer& layer, bool causal) {
  const LocalLayer& local = layer.local;
  const LayerShape& shape = layer.shape;
  const DataType type = layer.sharding.type;
  const bool latent = shape.latent.kv_rank > 0;
  if (latent) {
    add_latent_projections(block, layer);
  } else {
    const std::int64_t values = local.qkv_width() - local.query_width - local.key_width;
    const std::vector<std::int64_t> widths = layer.sharding.stack.separate_inputs
                                                 ? std::vector{local.query_width, local.key_width, values}
                                                 : std::vector{local.qkv_width()};
    for (const std::int64_t width : widths) {
      block.enter_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
      block.linear({.m = local.tokens, .n = width, .k = shape.hidden, .type = type}, InputCast::after_norm);
    }
  }
  const double qkv_elements = count(local.tokens, local.qkv_width());
  if (has_qkv_bias(shape)) add(block, MemoryKernel::residual, qkv_elements, kBias);
  if (shape.qk_norm)
    add(block, MemoryKernel::norm, count(local.tokens, local.query_width + local.key_width), kNorm);
  if (shape.rotary) add(block, MemoryKernel::rope, qkv_elements, kRope);
  // Latent attention has a kernel of its own, which takes the factor.
  if (shape.rotary && layer.sharding.scaled_rotation && !layer.sharding.stack.rotation_scales && !latent)
    add(block, MemoryKernel::copy, count(local.tokens, local.query_width + local.key_width), kEagerRope);
  block.enter(RecomputeModule::core_attn);
  if (exchanges_heads(layer)) exchange_heads(block, layer, head_elements(layer));
  const Attention core = attention_core(layer, causal);
  if (shape.capped_scores && core.kernel == AttentionKernel::unfused)
    add(block, MemoryKernel::activation, count(core.batch * core.heads, core.query_tokens * core.kv_tokens),
        kCap);
  block.attention(core);
  block.context_exchange(local);
  if (exchanges_heads(layer)) exchange_heads(block, layer, count(local.tokens, local.output_width));
  block.enter(std::nullopt);
  block.linear({.m = local.tokens, .n = shape.hidden, .k = local.output_width, .type = type},
               InputCast::separate, InputCast::own_tokens);
}

}  // namespace orrery
