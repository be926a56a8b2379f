#include "costmodels/layers/layer_parts.hpp"

namespace orrery {
namespace {

constexpr Traffic kGelu{4.0, 6.0};
constexpr Traffic kSwiglu{6.0, 10.0};  // of ffn / T, not of the doubled width
// The same by PyTorch's kernels: silu (4), product (6); backward two products (6 each), silu's (6), the
// halves joined (8). Of experts the result times the router's probability (4); backward the gradient times
// the probability (4), and times the result (6), summed for each token (2).
constexpr Traffic kEagerSwiglu{10.0, 26.0};
constexpr Traffic kEagerWeights{4.0, 12.0};
// Tokens are copied into expert order or into padded rows, and back: one read and one write for each copy of
// a token.
constexpr Traffic kPermute{4.0, 4.0};

// TEGroupedMLP._apply_bias of Megatron-LM, one expert after another in eager kernels: each row's bias times
// its probability in fp32 (4), added to the output (2 + 4 + 4), experts joined (4 + 4), back to 16 bits (4 +
// 2). Backward the gradient to fp32 (2 + 4), each expert's back to 16 bits (4 + 2), joined (2 + 2), times
// probability and times bias (4 + 4 each), both summed (4 each). Kernels that broadcast, or mix types, move a
// third of what copies do: fitted, with those of the clamp, to GPT-OSS of two sources (together-gb200 -0004
// to -0006, bridge-cards-004).
constexpr double kPiecewise = 3;
constexpr Traffic kExpertBias{28.0 * kPiecewise, 40.0 * kPiecewise};
// Of an element of the down GEMM's input: experts with biases are GPT-OSS's, which clamp what they activate.
// weighted_bias_quick_geglu_impl does so in eager kernels: both halves (8), joined (8); backward 12 and 8.
constexpr Traffic kExpertClamp{16.0 * kPiecewise, 20.0 * kPiecewise};

// Of one element of the down GEMM's input.
Traffic activation_traffic(const LayerShape& shape, const SoftwareStack& stack) {
  const bool gated = shape.mlp == MlpKind::gated;
  Traffic traffic = !gated ? kGelu : stack.kernels.eager_activation ? kEagerSwiglu : kSwiglu;
  if (has_eager_gelu(shape, stack)) traffic = {stack.kernels.gelu->forward, stack.kernels.gelu->backward};
  if (has_mlp_bias(shape)) traffic.backward += kBias.backward * (gated ? 2 : 1);
  return traffic;
}

// The experts of one GPU. Tokens arrive in 16 bits, whoever normed them. Fused, the kernel of the first
// matrix activates and casts what it wrote; its backward likewise (cuDNN's grouped GEMM + SwiGLU +
// quantisation, NVTE_CUTEDSL_FUSED_GROUPED_MLP of Transformer Engine), in 8 bits alone
// (ForwardGroupedMLP_CuTeGEMMSwiGLU_MXFP8).
void add_expert_mlp(BlockBuilder& block, const Layer& layer) {
  const LayerShape& shape = layer.shape;
  const LocalLayer& local = layer.local;
  const DataType type = layer.sharding.type;
  const bool fused = layer.sharding.stack.experts.fused && type == DataType::fp8;
  const std::int64_t rows = local.routed_tokens * local.experts;
  const bool padded = layer.sharding.stack.experts.pads_rows && outside_fp8(type) != type;
  if (padded) add(block, MemoryKernel::copy, count(rows, shape.routed_hidden()), kPermute);
  block.begin_experts(local.experts);
  block.linear({.m = local.routed_tokens,
                .n = local.up_width,
                .k = shape.routed_hidden(),
                .batch = local.experts,
                .type = type},
               InputCast::separate, fused ? InputCast::none : InputCast::separate);
  block.enter(RecomputeModule::moe_act);
  if (!fused) {
    const SoftwareStack& stack = layer.sharding.stack;
    add(block, MemoryKernel::activation, count(rows, local.ffn), activation_traffic(shape, stack));
    if (stack.kernels.eager_activation && shape.mlp == MlpKind::gated)
      add(block, MemoryKernel::activation, count(rows, local.ffn), kEagerWeights);
  }
  if (!fused && has_mlp_bias(shape)) add(block, MemoryKernel::copy, count(rows, local.ffn), kExpertClamp);
  block.enter(RecomputeModule::moe);
  block.linear({.m = local.routed_tokens,
                .n = shape.routed_hidden(),
                .k = local.ffn,
                .batch = local.experts,
                .type = type},
               fused ? InputCast::none : InputCast::separate);
  if (!fused && has_mlp_bias(shape))
    add(block, MemoryKernel::copy, count(rows, shape.routed_hidden()), kExpertBias);
  const ExpertCost& experts = layer.sharding.stack.experts;
  if (experts.indexed_biases > 0 && has_mlp_bias(shape))
    add(block, MemoryKernel::copy, count(rows, local.up_width + shape.routed_hidden()),
        {0, experts.indexed_biases});
  block.end_experts();
  if (experts.eager_forward + experts.eager_backward > 0)
    add(block, MemoryKernel::copy, count(rows, shape.routed_hidden()),
        {experts.eager_forward, experts.eager_backward});
  if (padded) add(block, MemoryKernel::copy, count(rows, shape.routed_hidden()), kPermute);
}

// Of one-hot matrices that are `rows` by `columns`, with that many rows of hidden states.
Gemm one_hot_product(const Layer& layer, std::int64_t rows, std::int64_t columns) {
  return {.m = rows,
          .n = layer.shape.routed_hidden(),
          .k = columns,
          .batch = layer.local.one_hot.count,
          .type = layer.sharding.type};
}

// Tokens to experts' rows: by copies, or by the product of the one-hot matrices, which need no gradient, with
// the tokens.
void add_dispatch(BlockBuilder& block, const Layer& layer, double routed) {
  const OneHotMatrices& one_hot = layer.local.one_hot;
  if (one_hot.count == 0) return add(block, MemoryKernel::copy, routed, kPermute);
  const OneHotBytes& bytes = layer.sharding.stack.experts.one_hot_bytes;
  add(block, MemoryKernel::copy, one_hot.elements(), {bytes.forward, bytes.backward});
  block.product(one_hot_product(layer, one_hot.places, one_hot.tokens), ProductGradients::of_one);
}
// And back, weighed by the router.
void add_combination(BlockBuilder& block, const Layer& layer, double routed) {
  const OneHotMatrices& one_hot = layer.local.one_hot;
  if (one_hot.count == 0) return add(block, MemoryKernel::copy, routed, kPermute);
  block.product(one_hot_product(layer, one_hot.tokens, one_hot.places), ProductGradients::of_both);
}

// Between the hidden state and a narrower one that experts work on; every tensor rank has the whole matrix
// (Megatron-LM core/transformer/moe/moe_layer.py, moe_latent_size).
struct RoutedProjection {
  std::int64_t from, to;
};
void add_routed_projection(BlockBuilder& block, const Layer& layer, const RoutedProjection& projection) {
  if (layer.shape.expert_hidden == 0) return;
  block.linear(
      {.m = layer.local.owned_tokens, .n = projection.to, .k = projection.from, .type = layer.sharding.type},
      InputCast::separate);
}

// What the all-to-all brings is in the order of its senders: several experts sort it by expert, and their
// results back (sort_chunks_by_idxs of Megatron-LM core/transformer/moe/token_dispatcher.py, d98e8a64,
// permutation 2). Libraries of their own deliver it in the order of experts.
double sorted_elements(const Layer& layer) {
  const ExpertCost& experts = layer.sharding.stack.experts;
  const bool sorts =
      layer.sharding.expert > 1 && layer.local.experts > 1 && !experts.dispatch && experts.gathered_sums == 0;
  return sorts ? count(layer.local.routed_tokens * layer.local.experts, layer.shape.routed_hidden()) : 0;
}
}  // namespace

void add_mlp(BlockBuilder& block, const Layer& layer, const MlpSize& mlp) {
  const std::int64_t rows = layer.local.tokens, hidden = layer.shape.hidden;
  const DataType type = layer.sharding.type;
  const SoftwareStack& stack = layer.sharding.stack;
  const bool apart = stack.separate_gate || stack.separate_inputs;
  const bool two = apart && layer.shape.mlp == MlpKind::gated;
  const Gemm up{.m = rows, .n = mlp.up_width / (two ? 2 : 1), .k = hidden, .type = type};
  block.linear(up, InputCast::after_norm);
  if (two) {
    if (!layer.sharding.sequence_parallel || stack.separate_inputs)
      block.enter_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
    block.linear(up, InputCast::after_norm);
  }
  // Kernels of GELU's formula are PyTorch's, counted one by one.
  const auto kernel = has_eager_gelu(layer.shape, stack) ? MemoryKernel::copy : MemoryKernel::activation;
  add(block, kernel, count(rows, mlp.ffn), activation_traffic(layer.shape, stack));
  block.linear({.m = rows, .n = hidden, .k = mlp.ffn, .type = type}, InputCast::separate,
               InputCast::own_tokens);
}

// Megatron-LM core/transformer/moe, all-to-all and all-gather dispatchers. With sequence parallelism a rank
// routes its own tokens; where the tensor group splits experts it gathers them after the exchange. What the
// busiest GPU receives, and sends back, is the whole group's exchange.
void add_experts(BlockBuilder& block, const Layer& layer) {
  const LayerShape& shape = layer.shape;
  const LocalLayer& local = layer.local;
  const Sharding& sharding = layer.sharding;
  const ExpertChoice choice{.experts = shape.experts,
                            .per_token = shape.experts_per_token,
                            .groups = sharding.router.groups,
                            .chosen_groups = sharding.router.chosen_groups};
  const auto copies = static_cast<double>(choice.per_token);
  const double routed = count(local.owned_tokens, shape.routed_hidden()) * copies;
  const double sums = sharding.expert > 1 ? sharding.stack.experts.gathered_sums : 0;
  const double gathered =
      count(local.tokens, shape.routed_hidden()) *
      (sums > 0 ? sharding.expert : (sharding.sequence_parallel ? copies : 1.0) * local.busiest_load);
  // A GPU sorts its own tokens before they are exchanged, or of gathered ones those of its experts.
  const double ordered = sums > 0 ? routed * local.busiest_load : routed;
  const bool split = splits_experts(sharding);
  block.enter(RecomputeModule::moe);
  block.linear(
      {.m = local.owned_tokens, .n = shape.experts, .k = shape.hidden, .type = outside_fp8(sharding.type)},
      InputCast::after_norm);
  add_routed_projection(block, layer, {.from = shape.hidden, .to = shape.expert_hidden});
  const double all = count(local.owned_tokens, shape.routed_hidden()) * sharding.expert;
  if (sums > 0) block.expert_gather(all);
  add_dispatch(block, layer, ordered);
  if (sums == 0) block.expert_exchange(routed * local.busiest_load, choice);
  if (split) block.enter_tensor_region(gathered, TensorInput::of_experts);
  const double sorted = sorted_elements(layer);
  if (sorted > 0) add(block, MemoryKernel::copy, sorted, kPermute);
  add_expert_mlp(block, layer);
  if (sorted > 0) add(block, MemoryKernel::copy, sorted, kPermute);
  if (split) block.leave_tensor_region(gathered, TensorInput::of_experts);
  if (sums == 0) block.expert_exchange(routed * local.busiest_load, choice);
  add_combination(block, layer, ordered);
  if (sums > 0) {
    // Zeros for every token, to which rows are added, and to and from the type of the sums.
    const double cast = sums > 2 ? 2 + sums : 0;
    add(block, MemoryKernel::copy, all, {2 + cast, cast});
    block.expert_sums(all, sums);
  }
  add_routed_projection(block, layer, {.from = shape.expert_hidden, .to = shape.hidden});
  if (shape.shared_ffn > 0) {
    block.enter(RecomputeModule::shared_experts);
    block.enter_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
    add_mlp(block, layer, {.up_width = local.shared_up_width, .ffn = local.shared_ffn});
    block.leave_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
  }
  block.enter(std::nullopt);
}

}  // namespace orrery
