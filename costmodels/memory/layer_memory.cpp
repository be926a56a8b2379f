#include "costmodels/memory/layer_memory.hpp"

#include <algorithm>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

bool gives_32_bits(SoftmaxKernel softmax) {
  return softmax == SoftmaxKernel::stepwise_wide || softmax == SoftmaxKernel::formula_wide;
}

double attention_scores(const LayerShape& shape, const LocalLayer& local, const ParallelStrategy& strategy,
                        const SoftwareStack& stack) {
  if (strategy.flash_attention) return 0.0;
  const double element = stored_bytes(strategy.type);
  // Softmax output; with dropout its mask of one byte and its output too: 5 a s^2 b in 16 bits. Under
  // autocast softmax keeps what it gave in 32 bits.
  double each = drops_out(shape, stack) ? 2 * element + 1 : element;
  if (shape.capped_scores) each += element;  // what tanh gave
  if (gives_32_bits(stack.softmax) && element < 4) each += drops_out(shape, stack) ? 4 - element : 4;
  return each * static_cast<double>(local.tokens * local.attended_tokens * local.heads);
}

// Scores that are there in their backward beside what is kept, in elements: as SoftmaxKernel leaves them.
double scores_in_backward(SoftmaxKernel softmax) {
  switch (softmax) {
    case SoftmaxKernel::fused:
    case SoftmaxKernel::wide:
    case SoftmaxKernel::triangular:
      return 1;
    case SoftmaxKernel::eager:
    case SoftmaxKernel::stepwise:
    case SoftmaxKernel::formula:
      return 2;
    case SoftmaxKernel::stepwise_wide:
    case SoftmaxKernel::formula_wide:
      return 3;
  }
  ORRERY_ENSURE(false);
}

// Bytes of an element that is kept; of a matrix's input, which Transformer Engine keeps in 8 or 4 bits where
// it multiplies in these.
struct KeptElement {
  double any, of_matrix;
};
KeptElement kept_element(DataType type) {
  return {stored_bytes(type), outside_fp8(type) == type ? stored_bytes(type) : size_of(type).value()};
}

double widths(const KeptElement& kept, std::int64_t any, std::int64_t of_matrix) {
  return kept.any * static_cast<double>(any) + kept.of_matrix * static_cast<double>(of_matrix);
}

// What PyTorch's kernels keep of a gated MLP besides: the activated half, or nothing.
std::int64_t kept_half(const LayerShape& shape, bool eager, std::int64_t ffn) {
  return eager && shape.mlp == MlpKind::gated ? ffn : 0;
}

// Outputs of what activates in the experts (and of PyTorch's kernels their products before they are weighed),
// and all that the expert which every token visits keeps.
double expert_activation(const LayerShape& shape, const LocalLayer& local, const KeptElement& kept,
                         const SoftwareStack& stack) {
  const std::int64_t eager = 2 * kept_half(shape, stack.kernels.eager_activation, local.ffn);
  return static_cast<double>(local.routed_tokens * local.experts) * widths(kept, eager, local.ffn);
}
double shared_expert(const LayerShape& shape, const LocalLayer& local, const KeptElement& kept,
                     const SoftwareStack& stack) {
  const std::int64_t half = kept_half(shape, stack.kernels.eager_activation, local.shared_ffn);
  return static_cast<double>(local.tokens) * widths(kept, local.shared_up_width + half, local.shared_ffn);
}

// Width of what an MLP keeps of its projection up, beside what goes into the projection down: ReLU, of dense
// ones, needs its output alone.
std::int64_t kept_up_width(const LayerShape& shape, const LocalLayer& local) {
  const bool relu = shape.mlp == MlpKind::gelu && shape.activation == Activation::relu;
  return relu && shape.experts == 1 ? 0 : local.up_width;
}

// Tokens of which the MLP of a dense layer has its inner tensors at once.
std::int64_t mlp_tokens(const LayerShape& shape, const LocalLayer& local, const SoftwareStack& stack) {
  return stack.tiled_mlp ? std::min(local.tokens, shape.hidden) : local.tokens;
}

// What the MLP keeps between its norm's output and its result.
double mlp_activations(const LayerShape& shape, const LocalLayer& local, const KeptElement& kept,
                       const SoftwareStack& stack) {
  if (shape.experts == 1) {
    const bool eager = stack.kernels.keeps_activated || stack.kernels.eager_activation;
    const std::int64_t any = kept_up_width(shape, local) + kept_half(shape, eager, local.ffn);
    const double gelu = has_eager_gelu(shape, stack) ? stack.kernels.gelu->kept / 2 * kept.any : 0.0;
    return static_cast<double>(mlp_tokens(shape, local, stack)) *
           (widths(kept, any, local.ffn) + gelu * static_cast<double>(local.ffn));
  }
  // Permuted tokens and the MLP of each routed copy, and its output; the shared expert sees every token.
  const auto routed = static_cast<double>(local.routed_tokens * local.experts);
  const std::int64_t outputs = stack.experts.keeps_outputs ? shape.routed_hidden() : 0;
  double bytes = routed * widths(kept, local.up_width + outputs, shape.routed_hidden());
  bytes += expert_activation(shape, local, kept, stack);
  // What is projected down before the experts, and what they give before it is projected up.
  bytes += 2 * kept.any * static_cast<double>(local.owned_tokens * shape.expert_hidden);
  bytes += stack.experts.one_hot_bytes.kept * local.one_hot.elements();
  return bytes + shared_expert(shape, local, kept, stack);
}

// Where kernels rotate queries and keys one by one: the matrix they came from, which the values are a view
// of.
double rotated(const LayerShape& shape, const LocalLayer& local, const SoftwareStack& stack) {
  if (!stack.kernels.keeps_unrotated || !shape.rotary) return 0.0;
  return static_cast<double>(local.tokens * (local.query_width + local.key_width));
}

// Copies of a layer's tokens that a tensor group gathered: one of each norm's output, or one for each matrix.
int gathered_inputs(const LayerShape& shape, const SoftwareStack& stack) {
  const bool each = stack.separate_inputs && shape.has_attention() && shape.has_mlp() &&
                    shape.latent.kv_rank == 0 && shape.experts == 1;
  return each ? 3 + (shape.mlp == MlpKind::gated ? 2 : 1) : shape.norms;
}

// Elements that attention or the state space keeps between its norm's output and its result. Attention: Q, K
// and V, and its output, which is the projection's input; latent attention also its two narrow vectors before
// and after their norms. State space: the output of the first projection, which the convolution and the scan
// start from again in their backward (mamba_ssm, MambaSplitConv1dScanCombinedFn), the scan's output before
// and after the gated norm.
double mixer_elements(const LayerShape& shape, const LocalLayer& local) {
  std::int64_t elements = local.tokens * (local.qkv_width() + local.output_width);
  if (shape.qk_norm) elements += local.tokens * (local.query_width + local.key_width);
  elements += 2 * local.owned_tokens * (shape.latent.query_rank + shape.latent.kv_rank);
  if (shape.has_state_space())
    elements += local.tokens * (local.state_space.projected() + 2 * local.state_space.inner());
  return static_cast<double>(elements);
}

// Of the layer's output, which lives through its backward, and in it: of the wider of the MLP's inner
// tensors, since the narrower one's gradient comes when what was kept of it is gone; then, without what the
// MLP kept, of Q, K, V and the attention's output, or of unfused scores, of which one more is there than was
// kept (Megatron-LM, CoreAttention of 2021 to 2023, whose softmax writes its gradient in place), or two where
// PyTorch's softmax makes a tensor for it.
double backward_gradients(const LayerShape& shape, const LocalLayer& local, const ParallelStrategy& strategy,
                          const SoftwareStack& stack) {
  const double element = stored_bytes(strategy.type);
  const auto tokens = static_cast<double>(local.tokens);
  const double inner = static_cast<double>(shape.experts == 1 ? mlp_tokens(shape, local, stack)
                                                              : local.routed_tokens * local.experts);
  const double mlp = element * inner * static_cast<double>(std::max(local.up_width, local.ffn));
  const double kept_by_mlp = element * inner * static_cast<double>(kept_up_width(shape, local) + local.ffn);
  double mixer = element * tokens * static_cast<double>(local.qkv_width() + local.output_width);
  if (!strategy.flash_attention) {
    const double scores = static_cast<double>(local.tokens * local.attended_tokens * local.heads);
    mixer = std::max(mixer, scores_in_backward(stack.softmax) * element * scores);
  }
  const double output = element * static_cast<double>(local.owned_tokens * shape.hidden);
  const double eager = shape.experts > 1 && !has_mlp_bias(shape) ? stack.experts.eager_memory : 0.0;
  return output + std::max(mlp, mixer - kept_by_mlp) +
         eager * inner * static_cast<double>(shape.routed_hidden());
}

// What the norms of a layer norm, those of queries and keys among them.
double normed_elements(const LayerShape& shape, const LocalLayer& local) {
  std::int64_t elements = shape.norms * local.owned_tokens * shape.hidden;
  if (shape.qk_norm) elements += local.tokens * (local.query_width + local.key_width);
  return static_cast<double>(elements);
}

// Inputs and output gradients of the matrices around attention or the state space, but for those of width
// hidden.
double mixer_matrices(const LayerShape& shape, const LocalLayer& local) {
  std::int64_t elements = local.tokens * local.output_width;
  if (shape.latent.kv_rank == 0) {
    elements += local.tokens * local.qkv_width();
  } else {
    elements += local.tokens * (local.query_width + latent_up_width(shape, local));
    elements +=
        local.owned_tokens * (2 * (shape.latent.query_rank + shape.latent.kv_rank) + shape.latent.rope_dim);
  }
  if (shape.has_state_space())
    elements += local.tokens * (local.state_space.projected() + local.state_space.inner());
  return static_cast<double>(elements);
}

// Each keeps its input; norms, activations and projections up whose output is discarded are made again before
// the matrix or the attention behind them (Megatron-LM core/tensor_parallel/random.py,
// CheckpointWithoutOutput).
void set_modules(LayerActivations& bytes, const LayerShape& shape, const LocalLayer& local,
                 const KeptElement& kept, const SoftwareStack& stack) {
  const auto drop = [&](RecomputeModule module) -> double& { return bytes.modules[index_of(module)]; };
  drop(RecomputeModule::core_attn) = bytes.scores;
  const bool latent = shape.latent.kv_rank > 0, experts = shape.experts > 1;
  // The router reads its norm's output in 16 bits.
  drop(RecomputeModule::layernorm) = ((latent ? kept.of_matrix : 0) + (experts ? kept.any : 0)) *
                                     static_cast<double>(local.owned_tokens * shape.hidden);
  if (latent)
    drop(RecomputeModule::mla_up_proj) = kept.any * static_cast<double>(local.tokens * local.qkv_width());
  if (!shape.has_mlp()) return;
  drop(experts ? RecomputeModule::moe : RecomputeModule::mlp) = mlp_activations(shape, local, kept, stack);
  if (!experts) return;
  drop(RecomputeModule::moe_act) = expert_activation(shape, local, kept, stack);
  drop(RecomputeModule::shared_experts) = shared_expert(shape, local, kept, stack);
}

// What torchtitan's policies keep of a dense layer whose products are in 4 bits, operators that they do not
// know: the attention's output, and inputs of the four matrices in 4 bits with a scale of a byte for sixteen.
// That these inputs stay is found from two peaks (torchtitan-gb200 -001 and -004 would be 19 and 17 % low),
// not read.
double kept_of_narrow_products(const LayerShape& shape, const LocalLayer& local, double element) {
  constexpr double kNarrow = 0.5 + 1.0 / 16;
  const auto tokens = static_cast<double>(local.tokens);
  const std::int64_t inputs = 2 * shape.hidden + local.output_width + local.ffn;
  return tokens * (element * static_cast<double>(local.output_width) + kNarrow * static_cast<double>(inputs));
}

}  // namespace

double dropped_by(const LayerActivations& bytes, const RecomputeModules& modules) {
  double sum = 0.0;
  for (const RecomputeModule module : kRecomputeModules)
    if (modules.repeats(module)) sum += bytes.modules[index_of(module)];
  return sum;
}

LayerActivations layer_activations(const LayerShape& shape, const LocalLayer& local,
                                   const ParallelStrategy& strategy, const SoftwareStack& stack) {
  const DataType type = shape.sixteen_bit ? outside_fp8(strategy.type) : strategy.type;
  const double element = stored_bytes(strategy.type);
  const double hidden = static_cast<double>(local.owned_tokens * shape.hidden);
  const auto tokens = static_cast<double>(local.tokens);
  LayerActivations bytes;
  bytes.input = element * hidden;
  // Every norm keeps its input and leaves one for the matrix behind it; parallel branches share the layer's
  // input, and a layer of one part has but one norm. Two dropout masks of one byte.
  const bool one_part = !shape.has_mlp() || !(shape.has_attention() || shape.has_state_space());
  const int tensors = shape.parallel_residual || one_part ? shape.norms : shape.norms + 1;
  bytes.rest = tensors * element * hidden + (drops_out(shape, stack) ? 2 * hidden : 0.0);
  bytes.rest += element * mixer_elements(shape, local);
  const KeptElement kept = kept_element(type);
  bytes.rest += mlp_activations(shape, local, kept, stack);
  if (stack.keeps_gathered)
    bytes.rest += element * gathered_inputs(shape, stack) *
                  static_cast<double>((local.tokens - local.owned_tokens) * shape.hidden);
  bytes.rest += stack.kernels.kept_by_norm * normed_elements(shape, local);
  bytes.rest += element * rotated(shape, local, stack);
  // Two norms keep their inputs and make the projection's; the last norm and the head keep theirs, and the
  // loss.
  if (shape.joins_embedding) bytes.rest += 4 * element * hidden;
  const std::int64_t logits = divide_up(shape.predicted_vocabulary * local.joined_width, shape.hidden);
  if (logits > 0) bytes.rest += 2 * element * hidden + kLogitKept * tokens * static_cast<double>(logits);
  // Of the norms' outputs, those that only matrices read.
  bytes.rest -= (kept.any - kept.of_matrix) * (shape.norms - (shape.experts > 1 ? 1 : 0)) * hidden;
  // Scaled by the last iterations' largest values the projection's input has a copy in 8 bits, else its
  // matrix keeps the attention's output itself (Megatron-LM, transformer/attention.py,
  // set_save_original_input).
  if (type == DataType::fp8 && stack.fp8_recipe == Fp8Recipe::delayed)
    bytes.rest += kept.of_matrix * tokens * static_cast<double>(local.output_width);
  if (type == DataType::fp4) {
    bytes.outputs = kept_of_narrow_products(shape, local, element);
  } else {
    // Of one matrix for queries, keys and values, and of one for gate and up, half repeat the second.
    const std::int64_t repeated = std::min(local.key_width, local.qkv_width() / 2) + local.up_width / 2;
    const std::int64_t width = local.output_width + local.qkv_width() + local.up_width -
                               (stack.selective == SelectiveRecompute::every_second_gemm ? repeated : 0);
    bytes.outputs = element * tokens * static_cast<double>(width) + element * hidden;
  }
  bytes.scores = attention_scores(shape, local, strategy, stack);
  bytes.gradients = backward_gradients(shape, local, strategy, stack);
  set_modules(bytes, shape, local, kept, stack);
  return bytes;
}

double weight_gradient_inputs(const LayerShape& shape, const LocalLayer& local, double element) {
  const auto tokens = static_cast<double>(local.tokens);
  const auto hidden = static_cast<double>(local.owned_tokens * shape.hidden);
  // Outputs of the norms; gradients of the attention block's and the MLP's result, one where they are
  // parallel.
  const int parts = (shape.has_attention() || shape.has_state_space() ? 1 : 0) + (shape.has_mlp() ? 1 : 0);
  const double results = shape.parallel_residual && shape.experts == 1 ? 1.0 : parts;
  double elements = (shape.norms + results) * hidden;
  elements += mixer_matrices(shape, local);
  // The projection that joins an embedding: two inputs, one gradient. The head: its input; the model's keeps
  // its own.
  elements += ((shape.joins_embedding ? 3.0 : 0.0) + (shape.predicted_vocabulary > 0 ? 1.0 : 0.0)) * hidden;
  if (shape.experts == 1)
    return element * (elements + tokens * static_cast<double>(local.up_width + local.ffn));
  // Each routed copy has an input and a gradient of its own.
  const auto routed = static_cast<double>(local.routed_tokens * local.experts);
  elements += routed * static_cast<double>(2 * shape.routed_hidden() + local.up_width + local.ffn);
  elements += 2.0 * static_cast<double>(local.owned_tokens * shape.expert_hidden);
  elements += tokens * static_cast<double>(local.shared_up_width + local.shared_ffn);
  return element * elements;
}

}  // namespace orrery
