#include "costmodels/layer_operators.hpp"

#include <algorithm>
#include <utility>

#include "costmodels/block_builder.hpp"
#include "costmodels/local_layer.hpp"

namespace orrery {
namespace {

// Bytes of memory-bound kernels for each element of 16 bits, forward and backward (FIDELITY B.9.3; the sums
// of reads and writes are spelled out where they are not two or three passes).
struct Traffic {
  double forward = 0.0;
  double backward = 0.0;
};
constexpr Traffic kNorm{4.0, 8.0};
constexpr Traffic kGelu{4.0, 6.0};
constexpr Traffic kSwiglu{6.0, 10.0};  // of ffn / T, not of the doubled width
constexpr Traffic kRope{4.0, 4.0};     // of Q, K and V: splitting the fused projection is part of it
constexpr Traffic kResidual{6.0, 6.0};
// Dropout writes a one-byte mask, and backward reads gradient and mask and writes: 2 + 1 + 2.
constexpr Traffic kDropout{1.0, 5.0};
// Backward sums the gradient of the output over the tokens.
constexpr Traffic kBias{0.0, 2.0};
// Tokens are copied into expert order, and back: one read and one write for each copy of a token.
constexpr Traffic kPermute{4.0, 4.0};

// TEGroupedMLP._apply_bias of Megatron-LM, one expert after another in eager kernels: each row's bias times
// its probability in fp32 (4), added to the output (2 + 4 + 4), experts joined (4 + 4), back to 16 bits (4 +
// 2). Backward the gradient to fp32 (2 + 4), each expert's back to 16 bits (4 + 2), joined (2 + 2), times
// probability and times bias (4 + 4 each), both summed (4 each).
constexpr Traffic kExpertBias{28.0, 40.0};
// Of an element of the down GEMM's input: experts with biases are GPT-OSS's, which clamp what they activate.
// weighted_bias_quick_geglu_impl does so in eager kernels: both halves (8), joined (8); backward 12 and 8.
constexpr Traffic kExpertClamp{16.0, 20.0};

// Traffic of one logit, without the GEMM. Fused: FIDELITY B.9.3, which reproduces recipes that fuse it.
// Separate: the kernels of Megatron-LM's vocab_parallel_cross_entropy, 36 and 14 B at data-sheet bandwidth
// (FIDELITY A.6) of which memory-bound kernels reach 0.8.
constexpr Traffic kLossFused{14.0, 10.0};
constexpr Traffic kLossSeparate{29.0, 11.0};

// A table's dense gradient is added to the fp32 sum by a kernel of its own: 2 + 4 + 4 (FIDELITY A.6).
constexpr double kTableGradientFp32 = 10.0, kTableGradientFp16 = 6.0;

double count(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

struct Layer {
  const LayerShape& shape;
  const Sharding& sharding;
  LocalLayer local;
  [[nodiscard]] double hidden_elements() const { return count(local.tokens, shape.hidden); }
  [[nodiscard]] double owned_elements() const { return count(local.owned_tokens, shape.hidden); }
};

void add(BlockBuilder& block, MemoryKernel kernel, double elements, Traffic traffic) {
  block.elementwise(kernel, elements, traffic.forward, traffic.backward);
}

void add_norms(BlockBuilder& block, const Layer& layer, int norms) {
  for (int norm = 0; norm < norms; ++norm) add(block, MemoryKernel::norm, layer.owned_elements(), kNorm);
}

enum class Bias { absent, present };
Bias bias_if(bool present) {
  return present ? Bias::present : Bias::absent;
}

void add_residual(BlockBuilder& block, const Layer& layer, Bias bias) {
  Traffic traffic = kResidual;
  if (has_dropout(layer.shape) && layer.sharding.stack.dropout == Dropout::of_model) {
    traffic.forward += kDropout.forward;
    traffic.backward += kDropout.backward;
  }
  if (bias == Bias::present) traffic.backward += kBias.backward;
  add(block, MemoryKernel::residual, layer.owned_elements(), traffic);
}

// Where the layer has attention windows each is a sequence of its own, or the part of it a context rank
// holds.
Attention attention_core(const Layer& layer, bool causal) {
  const LocalLayer& local = layer.local;
  const std::int64_t query_tokens = std::min(local.query_tokens, local.attended_tokens);
  return {.batch = layer.sharding.micro_batch * divide_up(local.query_tokens, query_tokens),
          .heads = local.heads,
          .kv_heads = local.kv_heads,
          .query_tokens = query_tokens,
          .kv_tokens = local.attended_tokens,
          .head_dim = layer.shape.head_dim,
          .causal = causal,
          .kernel = layer.sharding.attention,
          .direction = Direction::forward,
          .type = outside_fp8(layer.sharding.type)};
}

void add_attention(BlockBuilder& block, const Layer& layer, bool causal) {
  const LocalLayer& local = layer.local;
  const LayerShape& shape = layer.shape;
  const DataType type = layer.sharding.type;
  block.linear({.m = local.tokens, .n = local.qkv_width(), .k = shape.hidden, .type = type},
               InputCast::fused);
  const double qkv_elements = count(local.tokens, local.qkv_width());
  if (has_qkv_bias(shape)) add(block, MemoryKernel::residual, qkv_elements, kBias);
  if (shape.qk_norm)
    add(block, MemoryKernel::norm, count(local.tokens, local.query_width + local.kv_width), kNorm);
  if (shape.rotary) add(block, MemoryKernel::rope, qkv_elements, kRope);
  block.attention(attention_core(layer, causal));
  block.context_exchange(local);
  block.linear({.m = local.tokens, .n = shape.hidden, .k = local.query_width, .type = type},
               InputCast::separate);
}

// Of one element of the down GEMM's input.
Traffic activation_traffic(const LayerShape& shape) {
  const bool gated = shape.mlp == MlpKind::gated;
  Traffic traffic = gated ? kSwiglu : kGelu;
  if (has_mlp_bias(shape)) traffic.backward += kBias.backward * (gated ? 2 : 1);
  return traffic;
}

struct MlpSize {
  std::int64_t up_width, ffn;
};

void add_mlp(BlockBuilder& block, const Layer& layer, const MlpSize& mlp) {
  const std::int64_t rows = layer.local.tokens, hidden = layer.shape.hidden;
  const DataType type = layer.sharding.type;
  block.linear({.m = rows, .n = mlp.up_width, .k = hidden, .type = type}, InputCast::fused);
  add(block, MemoryKernel::activation, count(rows, mlp.ffn), activation_traffic(layer.shape));
  block.linear({.m = rows, .n = hidden, .k = mlp.ffn, .type = type}, InputCast::separate);
}

// The experts of one GPU. Tokens arrive in 16 bits, whoever normed them. Fused, the kernel of the first
// matrix activates and casts what it wrote; its backward likewise (cuDNN's grouped GEMM + SwiGLU +
// quantisation, NVTE_CUTEDSL_FUSED_GROUPED_MLP of Transformer Engine).
void add_expert_mlp(BlockBuilder& block, const Layer& layer) {
  const LayerShape& shape = layer.shape;
  const LocalLayer& local = layer.local;
  const DataType type = layer.sharding.type;
  const bool fused = layer.sharding.stack.experts.fused;
  block.begin_experts(local.experts);
  block.linear({.m = local.routed_tokens,
                .n = local.up_width,
                .k = shape.hidden,
                .batch = local.experts,
                .type = type},
               InputCast::separate, fused ? InputCast::fused : InputCast::separate);
  const std::int64_t rows = local.routed_tokens * local.experts;
  if (!fused) add(block, MemoryKernel::activation, count(rows, local.ffn), activation_traffic(shape));
  block.linear(
      {.m = local.routed_tokens, .n = shape.hidden, .k = local.ffn, .batch = local.experts, .type = type},
      fused ? InputCast::fused : InputCast::separate);
  if (!fused && has_mlp_bias(shape)) {
    add(block, MemoryKernel::copy, count(rows, local.ffn), kExpertClamp);
    add(block, MemoryKernel::copy, count(rows, shape.hidden), kExpertBias);
  }
  block.end_experts();
}

// Megatron-LM core/transformer/moe, all-to-all dispatcher, tensor-parallel experts, balanced routing. With
// sequence parallelism a rank routes its own tokens and the tensor group gathers them after the exchange.
void add_experts(BlockBuilder& block, const Layer& layer) {
  const LayerShape& shape = layer.shape;
  const LocalLayer& local = layer.local;
  const auto copies = static_cast<double>(shape.experts_per_token);
  const double routed = layer.owned_elements() * copies;
  const double gathered =
      layer.sharding.sequence_parallel ? layer.hidden_elements() * copies : layer.hidden_elements();
  block.linear({.m = local.owned_tokens,
                .n = shape.experts,
                .k = shape.hidden,
                .type = outside_fp8(layer.sharding.type)},
               InputCast::fused);
  add(block, MemoryKernel::copy, routed, kPermute);
  block.expert_exchange(routed, copies);
  block.enter_tensor_region(gathered, TensorInput::of_experts);
  add_expert_mlp(block, layer);
  block.leave_tensor_region(gathered);
  block.expert_exchange(routed, copies);
  add(block, MemoryKernel::copy, routed, kPermute);
  if (shape.shared_ffn == 0) return;
  block.enter_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
  add_mlp(block, layer, {.up_width = local.shared_up_width, .ffn = local.shared_ffn});
  block.leave_tensor_region(layer.hidden_elements());
}

Layer layer_of(const LayerShape& shape, const Sharding& sharding) {
  return {.shape = shape, .sharding = sharding, .local = local_layer(shape, split_of(sharding))};
}

}  // namespace

LayerSplit split_of(const Sharding& sharding) {
  return {.tensor = sharding.tensor,
          .context = sharding.context,
          .expert = sharding.expert,
          .micro_batch = sharding.micro_batch,
          .sequence = sharding.sequence,
          .sequence_parallel = sharding.sequence_parallel};
}

BlockOperators layer_operators(const LayerShape& shape, bool causal, const Sharding& sharding) {
  const Layer layer = layer_of(shape, sharding);
  const LocalLayer& local = layer.local;
  const bool dense = shape.experts == 1;
  // Parallel attention and MLP enter and leave the tensor group together (GPT-NeoX, gpt_j_residual).
  const bool together = shape.parallel_residual && dense;
  BlockBuilder block(sharding);
  const int before_attention = (shape.norms + 1) / 2;
  add_norms(block, layer, before_attention);
  block.enter_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
  add_attention(block, layer, causal);
  if (!together) block.leave_tensor_region(layer.hidden_elements());
  add_residual(block, layer, bias_if(has_projection_bias(shape)));
  add_norms(block, layer, shape.norms - before_attention);
  if (dense) {
    if (!together) block.enter_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
    add_mlp(block, layer, {.up_width = local.up_width, .ffn = local.ffn});
    block.leave_tensor_region(layer.hidden_elements());
  } else {
    add_experts(block, layer);
  }
  add_residual(block, layer, bias_if(has_mlp_bias(shape)));
  const LocalParameters parameters = local_parameters(shape, local);
  block.accumulate_gradients(parameters.dense + parameters.expert);
  return block.take();
}

BlockOperators embedding_operators(const ModelSpec& model, const Sharding& sharding) {
  if (model.vocabulary == 0) return {};
  const LayerShape shape{.hidden = model.hidden};
  const Layer layer = layer_of(shape, sharding);
  BlockBuilder block(sharding);
  // Backward the gradient is scattered into the word table and the position table: 4 B for each element of 16
  // bits.
  const double bytes = layer.hidden_elements() * stored_bytes(sharding.type) / 2.0;
  block.forward(MemoryKernel::embedding, 4.0 * bytes);
  block.weight_gradient(MemoryKernel::embedding, 4.0 * bytes);
  if (model.learned_positions > 0) {
    block.forward(MemoryKernel::embedding, 6.0 * bytes);  // read the token, read the position, write
    block.weight_gradient(MemoryKernel::embedding, 4.0 * bytes);
  }
  block.leave_tensor_region(layer.hidden_elements());
  if (model.embedding_norm) add(block, MemoryKernel::norm, layer.owned_elements(), kNorm);
  const std::int64_t rows = padded_vocabulary(model.vocabulary, sharding.tensor) / sharding.tensor;
  const double per_parameter = gradient_bytes(sharding.type) == 4.0 ? kTableGradientFp32 : kTableGradientFp16;
  block.weight_gradient(MemoryKernel::copy,
                        per_parameter * count(rows + model.learned_positions, model.hidden));
  return block.take();
}

BlockOperators head_operators(const ModelSpec& model, const Sharding& sharding) {
  if (model.vocabulary == 0) return {};
  const LayerShape shape{.hidden = model.hidden};
  const Layer layer = layer_of(shape, sharding);
  const std::int64_t logits = padded_vocabulary(model.vocabulary, sharding.tensor) / sharding.tensor;
  BlockBuilder block(sharding);
  add(block, MemoryKernel::norm, layer.owned_elements(), kNorm);
  block.enter_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
  block.linear({.m = layer.local.tokens, .n = logits, .k = model.hidden, .type = outside_fp8(sharding.type)},
               InputCast::fused);
  const bool fused = sharding.stack.cross_entropy == CrossEntropyKernel::fused;
  add(block, MemoryKernel::cross_entropy, count(layer.local.tokens, logits),
      fused ? kLossFused : kLossSeparate);
  // Maximum, predicted logit and sum of exponentials of each token, in fp32 (vocab_parallel_cross_entropy).
  for (int statistic = 0; statistic < 3; ++statistic)
    block.reduce_statistic(4.0 * static_cast<double>(layer.local.tokens));
  block.accumulate_gradients(count(logits, model.hidden));
  return block.take();
}

Bytes boundary_message(const ModelSpec& model, const ParallelStrategy& strategy, int layer_before) {
  int stage = 0;
  for (int part = 0; part < strategy.part_count(); ++part) {
    const LayerRange& range = strategy.parts[static_cast<std::size_t>(part)];
    if (layer_before >= range.first && layer_before < range.first + range.count)
      stage = strategy.rank_of_part(part);
  }
  const LayerShape embedding{.hidden = model.hidden};
  const LayerShape& shape = layer_before < 0 ? embedding : model.layer(layer_before);
  const LocalLayer local = local_layer(shape, layer_split(model, strategy, stage));
  return Bytes(count(local.owned_tokens, shape.hidden) * stored_bytes(strategy.type));
}

std::vector<Operator> optimizer_operators(double parameters, DataType type) {
  if (parameters <= 0) return {};
  const auto kernel = [&](MemoryKernel kind, double bytes) -> Operator {
    return MemoryBound{.kernel = kind, .bytes = Bytes(bytes * parameters)};
  };
  // Adam reads gradient, weight and two moments and writes the last three: 7 x 4 B.
  std::vector<Operator> operators{kernel(MemoryKernel::optimizer, 28.0)};
  const bool half = outside_fp8(type) == DataType::bf16 || type == DataType::fp16;
  if (half) operators.push_back(kernel(MemoryKernel::copy, 6.0));  // the fp32 weights back to 16 bits
  if (type == DataType::fp16) {
    // Gradients to fp32 (6), unscale and look for infinities (8), norm and clip (12): FIDELITY A.3.
    operators.push_back(kernel(MemoryKernel::copy, 6.0));
    operators.push_back(kernel(MemoryKernel::optimizer, 8.0));
    operators.push_back(kernel(MemoryKernel::optimizer, 12.0));
  }
  return operators;
}

}  // namespace orrery
