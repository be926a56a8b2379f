#include "costmodels/layers/layer_operators.hpp"

#include "costmodels/layers/layer_parts.hpp"
#include "costmodels/layers/stage_parts.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr Traffic kResidual{6.0, 6.0};
// Dropout writes a one-byte mask, and backward reads gradient and mask and writes: 2 + 1 + 2.
constexpr Traffic kDropout{1.0, 5.0};

// Traffic of one logit, without the GEMM. Fused: FIDELITY B.9.3, which reproduces recipes that fuse it.
// Separate: the kernels of Megatron-LM's vocab_parallel_cross_entropy, 36 and 14 B at data-sheet bandwidth
// (FIDELITY A.6) of which memory-bound kernels reach 0.8.
constexpr Traffic kLossFused{14.0, 10.0};
// Online: measured here, 3.6 to 5.1 and 3.8 to 4.6 B of copies (costmodels/measured/own, compiled steps).
constexpr Traffic kLossSeparate{29.0, 11.0}, kLossOnline{4.0, 4.0};

Traffic loss_traffic(CrossEntropyKernel kernel) {
  switch (kernel) {
    case CrossEntropyKernel::fused:
      return kLossFused;
    case CrossEntropyKernel::online:
      return kLossOnline;
    case CrossEntropyKernel::separate:
      return kLossSeparate;
  }
  ORRERY_ENSURE(false);
}

// A table's dense gradient is added to the fp32 sum by a kernel of its own: 2 + 4 + 4 (FIDELITY A.6).
constexpr double kTableGradientFp32 = 10.0, kTableGradientFp16 = 6.0;

void add_norms(BlockBuilder& block, const Layer& layer, int norms) {
  for (int norm = 0; norm < norms; ++norm) add(block, MemoryKernel::norm, layer.owned_elements(), kNorm);
}

enum class LogitCap { none, apart };  // from the kernels of the loss
enum class Bias { absent, present };
Bias bias_if(bool present) {
  return present ? Bias::present : Bias::absent;
}

void add_residual(BlockBuilder& block, const Layer& layer, Bias bias) {
  Traffic traffic = kResidual;
  if (drops_out(layer)) {
    traffic.forward += kDropout.forward;
    traffic.backward += kDropout.backward;
  }
  if (bias == Bias::present) traffic.backward += kBias.backward;
  add(block, MemoryKernel::residual, layer.owned_elements(), traffic);
}

// Rows of the output matrix on one tensor rank.
std::int64_t head_rows(std::int64_t vocabulary, const Sharding& sharding) {
  if (!sharding.stack.pads_vocabulary) return divide_up(vocabulary, std::int64_t{sharding.tensor});
  return padded_rows(vocabulary, sharding.tensor);
}

void add_loss(BlockBuilder& block, double logits, Traffic loss, LogitCap cap) {
  if (cap == LogitCap::apart) add(block, MemoryKernel::cross_entropy, logits, kCap);
  add(block, MemoryKernel::cross_entropy, logits, loss);
}

// Final norm, vocabulary-parallel logits and their loss.
void add_prediction(BlockBuilder& block, const Layer& layer, std::int64_t vocabulary, LogitCap cap) {
  const Sharding& sharding = layer.sharding;
  const std::int64_t logits = head_rows(vocabulary, sharding);
  add(block, MemoryKernel::norm, layer.owned_elements(), kNorm);
  block.enter_tensor_region(layer.hidden_elements(), TensorInput::of_wide_matrix);
  block.linear(
      {.m = layer.local.tokens, .n = logits, .k = layer.shape.hidden, .type = outside_fp8(sharding.type)},
      InputCast::after_norm);
  const Traffic loss = loss_traffic(sharding.stack.cross_entropy);
  if (sharding.stack.gathered_logits) {
    block.gather_outputs(count(layer.local.tokens, logits));
    add_loss(block, count(layer.local.tokens, logits * sharding.tensor), loss, cap);
    return;
  }
  add_loss(block, count(layer.local.tokens, logits), loss, cap);
  // Maximum, predicted logit and sum of exponentials of each token, in fp32 (vocab_parallel_cross_entropy).
  for (int statistic = 0; statistic < 3; ++statistic)
    block.reduce_statistic(4.0 * static_cast<double>(layer.local.tokens));
}

// Megatron-LM core/transformer/multi_token_prediction.py: a column-parallel projection whose output is
// gathered.
void add_joined_embedding(BlockBuilder& block, const Layer& layer) {
  const LayerShape& shape = layer.shape;
  add_norms(block, layer, 2);
  block.enter_tensor_region(2 * layer.hidden_elements(), TensorInput::of_matrix);
  block.linear({.m = layer.local.tokens,
                .n = layer.local.joined_width,
                .k = 2 * shape.hidden,
                .type = layer.sharding.type},
               InputCast::after_norm);
  block.leave_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
}

// Those with gated MLPs have queries, keys, values, gate and up each by themselves (transformers'
// modeling_llama.py), others one matrix for the first three (modeling_gpt2.py).
double matrices_of_modules(const LayerShape& shape) {
  const bool gated = shape.mlp == MlpKind::gated;
  double matrices = 0;
  if (shape.has_attention()) matrices += shape.latent.kv_rank > 0 ? 5 : gated ? 4 : 2;
  if (shape.has_mlp() && shape.experts <= 1) matrices += gated ? 3 : 2;
  return matrices;
}

Layer layer_of(const LayerShape& shape, const Sharding& sharding) {
  return {.shape = shape, .sharding = sharding, .local = local_layer(shape, split_of(sharding))};
}

}  // namespace

LayerSplit split_of(const Sharding& sharding) {
  return {.tensor = sharding.tensor,
          .context = sharding.context,
          .expert = sharding.expert,
          .expert_tensor = sharding.expert_tensor,
          .micro_batch = sharding.micro_batch,
          .sequence = sharding.sequence,
          .sequence_parallel = sharding.sequence_parallel,
          .expert_load = sharding.stack.experts.load};
}

BlockOperators layer_operators(const LayerShape& shape, bool causal, const Sharding& of_model) {
  Sharding sharding = of_model;
  if (shape.sixteen_bit) sharding.type = outside_fp8(sharding.type);
  const Layer layer = layer_of(shape, sharding);
  const LocalLayer& local = layer.local;
  const bool dense = shape.experts == 1;
  // Parallel attention and MLP enter and leave the tensor group together (GPT-NeoX, gpt_j_residual).
  const bool together = shape.parallel_residual && dense;
  BlockBuilder block(sharding);
  if (shape.joins_embedding) add_joined_embedding(block, layer);
  const bool mixes = shape.has_attention() || shape.has_state_space();
  const int after_mixer = !mixes ? shape.norms : shape.has_mlp() ? shape.norms / 2 : 0;
  if (shape.latent.kv_rank > 0) block.enter(RecomputeModule::layernorm);
  add_norms(block, layer, shape.norms - after_mixer);
  block.enter(std::nullopt);
  if (mixes) {
    if (shape.has_attention()) add_attention(block, layer, causal);
    if (shape.has_state_space()) add_state_space(block, layer);
    if (!together) block.leave_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
    add_residual(block, layer, bias_if(has_projection_bias(shape)));
  }
  if (!dense) block.enter(RecomputeModule::layernorm);
  add_norms(block, layer, after_mixer);
  block.enter(std::nullopt);
  if (shape.has_mlp()) {
    if (dense) {
      block.enter(RecomputeModule::mlp);
      if (!together) block.enter_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
      const std::size_t first = block.forward_kernels();
      add_mlp(block, layer, {.up_width = local.up_width, .ffn = local.ffn});
      if (sharding.stack.tiled_mlp) block.repeat_in_backward(first);
      block.leave_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
      block.enter(std::nullopt);
    } else {
      add_experts(block, layer);
    }
    add_residual(block, layer, bias_if(has_mlp_bias(shape)));
  }
  // What drops elements, norms or weighs the result of the last matrix keeps something of it.
  const bool keeps_result = drops_out(layer) || shape.norms > 2 || shape.predicted_vocabulary > 0;
  if (sharding.stack.stops_recomputation && dense && shape.has_mlp() && !keeps_result)
    block.stop_repeating_before_last_matrix();
  const bool predicts = shape.predicted_vocabulary > 0;
  if (predicts) add_prediction(block, layer, shape.predicted_vocabulary, LogitCap::none);
  const LocalParameters parameters = local_parameters(shape, local);
  // The head's matrix is the model's own; its gradient is added here once more.
  const double head = predicts ? count(head_rows(shape.predicted_vocabulary, sharding), shape.hidden) : 0.0;
  block.accumulate_gradients(parameters.dense + parameters.expert + head);
  BlockOperators operators = block.take();
  for (PassOperators* pass : {&operators.forward, &operators.backward}) {
    pass->launched_layers = (mixes ? 0.5 : 0.0) + (shape.has_mlp() ? 0.5 : 0.0);
    pass->launched_matrices = matrices_of_modules(shape);
  }
  return operators;
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
  block.leave_tensor_region(layer.hidden_elements(), TensorInput::of_wide_matrix);
  if (model.embedding_norm) add(block, MemoryKernel::norm, layer.owned_elements(), kNorm);
  const std::int64_t rows = padded_rows(model.vocabulary, sharding.tensor);
  const double per_parameter = gradient_bytes(sharding.type) == 4.0 ? kTableGradientFp32 : kTableGradientFp16;
  block.weight_gradient(MemoryKernel::copy,
                        per_parameter * count(rows + model.learned_positions, model.hidden));
  return block.take();
}

BlockOperators head_operators(const ModelSpec& model, const Sharding& sharding) {
  if (model.vocabulary == 0) return {};
  const LayerShape shape{.hidden = model.hidden, .sequence = model.head_tokens(sharding.sequence)};
  const Layer layer = layer_of(shape, sharding);
  BlockBuilder block(sharding);
  add_prediction(block, layer, model.head_width(),
                 caps_apart(model, sharding.stack) ? LogitCap::apart : LogitCap::none);
  block.accumulate_gradients(count(head_rows(model.head_width(), sharding), model.hidden));
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
