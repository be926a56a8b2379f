#include <algorithm>

#include "costmodels/layers/stage_parts.hpp"
#include "costmodels/memory/layer_memory.hpp"
#include "costmodels/memory/memory.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

// Of one logit at its peak. Separate kernels: the logit, where it has 16 bits its copy in fp32, its softmax
// and its gradient in fp32: 14 B (torchtitan's published peaks) or 12. Fused: the logit and its softmax in
// fp32, which the gradient overwrites (Megatron-LM core/fusions/fused_cross_entropy.py): 6 or 8. What a stack
// says is of 16 bits: an fp32 logit is 2 B more.
double logit_peak(DataType type, int tensor, const SoftwareStack& stack) {
  const double logit = stored_bytes(type);
  const std::optional<double> sharded = tensor > 1 ? stack.sharded_logit_peak : std::nullopt;
  if (const auto said = sharded ? sharded : stack.logit_peak) return *said + logit - 2;
  if (stack.cross_entropy != CrossEntropyKernel::separate) return logit + 4;
  return logit + (logit < 4 ? 12 : 8);
}

// Of the input of a recomputed layer. With sequence parallelism every tensor rank holds its own part anyway.
double share_on_gpu(SavedInputs saved, const LayerSplit& split) {
  switch (saved) {
    case SavedInputs::gpu:
      return 1.0;
    case SavedInputs::tensor_ranks:
      return split.sequence_parallel ? 1.0 : 1.0 / split.tensor;
    case SavedInputs::host:
      return 0.0;
  }
  ORRERY_ENSURE(false);
}

// `uniform` keeps the input of each group of layers; `block` recomputes the first layers, each on its own,
// and keeps everything of the others (Megatron-LM core/transformer/transformer_block.py,
// _checkpointed_forward).
PartActivations full_recompute(const ModelSpec& model, const ParallelStrategy& strategy,
                               const LayerRange& range, const LayerSplit& split, const SoftwareStack& stack) {
  const bool uniform = strategy.recompute.method == RecomputeMethod::uniform;
  const int group = uniform ? std::max(1, strategy.recompute.layers) : 1;
  const int recomputed_layers = uniform ? range.count : std::min(range.count, strategy.recompute.layers);
  const double kept_share = share_on_gpu(stack.saved_inputs, split);
  PartActivations bytes;
  double brought_back = 0.0;  // by the group the layer belongs to
  int position = 0;
  for_each_run(model, range, [&](const LayerShape& shape, int layers) {
    const LayerActivations one = layer_activations(shape, local_layer(shape, split), strategy, stack);
    for (const int end = position + layers; position < end; ++position) {
      bytes.gradients = std::max(bytes.gradients, one.gradients);
      if (position >= recomputed_layers) {
        bytes.kept += one.all();
        continue;
      }
      const bool first_of_group = position % group == 0;
      if (first_of_group) bytes.kept += one.input * kept_share;
      brought_back = first_of_group ? one.all() - one.input : brought_back + one.all();
      bytes.recomputed = std::max(bytes.recomputed, brought_back);
    }
  });
  return bytes;
}

PartActivations layers_of_part(const ModelSpec& model, const ParallelStrategy& strategy,
                               const LayerRange& range, const LayerSplit& split, const SoftwareStack& stack) {
  if (strategy.recompute.granularity == RecomputeGranularity::full) {
    return full_recompute(model, strategy, range, split, stack);
  }
  const bool selective = strategy.recompute.granularity == RecomputeGranularity::selective;
  PartActivations bytes;
  for_each_run(model, range, [&](const LayerShape& shape, int layers) {
    const LayerActivations one = layer_activations(shape, local_layer(shape, split), strategy, stack);
    double dropped = selective ? dropped_by(one, strategy.recompute.modules) : 0.0;
    const bool own = stack.selective != SelectiveRecompute::attention;
    if (selective && own && strategy.recompute.modules.has(RecomputeModule::core_attn)) {
      dropped = one.all() - one.input - std::min(one.outputs, one.rest);
    }
    bytes.kept += layers * (one.all() - dropped);
    bytes.recomputed = std::max(bytes.recomputed, dropped);
    bytes.gradients = std::max(bytes.gradients, one.gradients);
  });
  return bytes;
}

// Local tokens of the embedding and the head.
LocalLayer boundary_tokens(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  return local_layer(LayerShape{.hidden = model.hidden}, layer_split(model, strategy, stage));
}

// Of one element of a gathered tensor. Transformer Engine has ten buffers of that size, one a matrix and pass
// (initialize_ub, transformer_engine/pytorch/module/base.py), six of them in 8 bits where the matrices are.
double user_buffer_bytes(DataType type) {
  const double wide = stored_bytes(type);
  return type == DataType::fp8 || type == DataType::fp4 ? 6 + 4 * wide : 10 * wide;
}

// Two in flight; or one for each microbatch and each neighbour that sends, but for the inputs of those that
// are alive (of 1f1b), which count as activations.
double messages_held(const ParallelStrategy& strategy, int stage, const SoftwareStack& stack) {
  if (!stack.receives_ahead) return 2.0;
  const auto microbatches = static_cast<double>(strategy.microbatches());
  const double inputs = stage > 0 ? std::max(0.0, microbatches - (strategy.pipeline - stage)) : 0.0;
  return inputs + (stage + 1 < strategy.pipeline ? microbatches : 0.0);
}

// What a context rank receives of the others: blocks of keys and values, the one at work and the next, or
// all; or its heads' queries, keys and values.
double context_elements(const LocalLayer& local, int context, const SoftwareStack& stack) {
  if (context == 1) return 0.0;
  const std::int64_t block = local.tokens * (stack.repeated_keys ? local.query_width + local.output_width
                                                                 : local.key_width + local.value_width);
  switch (stack.context_exchange) {
    case ContextExchange::ring:
      return 2 * static_cast<double>(block);
    case ContextExchange::gathered:
      return context * static_cast<double>(block);
    case ContextExchange::heads:
      return static_cast<double>(local.tokens * local.qkv_width());
  }
  ORRERY_ENSURE(false);
}

// Of a rank's tokens, those that the head sees.
double head_share(const ModelSpec& model, const LayerSplit& split) {
  return static_cast<double>(model.head_tokens(split.sequence)) / static_cast<double>(split.sequence);
}

}  // namespace

LogitBytes logit_bytes(const ModelSpec& model, const ParallelStrategy& strategy, int stage, int alive,
                       int for_weights, const SoftwareStack& stack) {
  if (!holds_head(model, strategy, stage) || alive + for_weights == 0) return {};
  const int tensor = strategy.tensor(stage);
  const double tokens = static_cast<double>(boundary_tokens(model, strategy, stage).tokens) *
                        head_share(model, layer_split(model, strategy, stage));
  const std::int64_t vocabulary = padded_vocabulary(model.head_width(), tensor);
  // A piece of logits, of which their gradient takes the place, the gradient of all hidden states and of the
  // matrix.
  if (stack.chunked_loss) {
    const double hidden = static_cast<double>(model.hidden), element = stored_bytes(strategy.type);
    return {0.0, element * hidden * (2 * tokens + static_cast<double>(vocabulary / tensor))};
  }
  const double logits =
      tokens * static_cast<double>(stack.gathered_logits ? vocabulary : vocabulary / tensor);
  const double capped = caps_apart(model, stack) ? stored_bytes(strategy.type) : 0.0;
  const double peak = logit_peak(strategy.type, tensor, stack) + capped;
  // Pieces of the hidden states are copies; the matrix's gradient adds up in fp32.
  if (stack.loss_pieces > 1) {
    const double hidden = static_cast<double>(model.hidden), element = stored_bytes(strategy.type);
    return {0.0, logits / stack.loss_pieces * peak + (element + 4) * tokens * hidden +
                     4 * hidden * static_cast<double>(vocabulary / tensor)};
  }
  // From its backward to its weight gradient its gradient stays, in its own type.
  const double waiting = std::max(0, alive - 1) * std::min(kLogitKept + capped, peak) +
                         for_weights * stored_bytes(strategy.type);
  const double stale = stack.stale_logits * stored_bytes(strategy.type);
  return {logits * (waiting + stale), alive > 0 ? logits * peak : 0.0};
}

PartActivations part_activations(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                                 int chunk, const SoftwareStack& stack) {
  const LayerSplit split = layer_split(model, strategy, stage, stack.experts.load);
  PartActivations bytes = layers_of_part(model, strategy, strategy.part(stage, chunk), split, stack);
  const bool embedding = chunk == 0 && holds_embedding(model, stage);
  const bool last = chunk == strategy.chunks - 1 && holds_last_part(strategy, stage);
  const bool head = last && model.vocabulary > 0, sends = !last && stack.keeps_stage_outputs;
  if (!embedding && !head && !sends) return bytes;
  const auto hidden =
      static_cast<double>(boundary_tokens(model, strategy, stage).owned_tokens * model.hidden);
  // The embedding dropout of the GPT line keeps a mask (Korthikanti et al., section 4.3).
  if (embedding && model.learned_positions > 0 && stack.dropout == Dropout::of_model) bytes.kept += hidden;
  if (sends) bytes.kept += stored_bytes(strategy.type) * hidden;
  // Inputs of the final norm and of the output matrix.
  if (head) bytes.kept += 2 * stored_bytes(strategy.type) * hidden * head_share(model, split);
  return bytes;
}

Bytes communication_bytes(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                          const SoftwareStack& stack) {
  const LayerSplit split = layer_split(model, strategy, stage);
  double gathered = 0.0, message = 0.0, exchanged = 0.0;
  if (holds_embedding(model, stage) || holds_head(model, strategy, stage)) {
    const LocalLayer local = boundary_tokens(model, strategy, stage);
    gathered = static_cast<double>(local.tokens * model.hidden);
    message = static_cast<double>(local.owned_tokens * model.hidden);
  }
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
    for_each_run(model, strategy.part(stage, chunk), [&](const LayerShape& shape, int) {
      const LocalLayer local = local_layer(shape, split);
      gathered = std::max(gathered, static_cast<double>(local.tokens * shape.hidden));
      message = std::max(message, static_cast<double>(local.owned_tokens * shape.hidden));
      exchanged = std::max(exchanged, context_elements(local, split.context, stack));
    });
  }
  double elements = 0.0, user_buffers = 0.0;
  if (split.sequence_parallel && split.tensor > 1) {
    if (user_buffers_take(strategy.type) && strategy.tensor_overlap.value_or(stack.tensor_overlap > 0))
      user_buffers = user_buffer_bytes(strategy.type) * gathered;
    else
      elements += 4 * gathered;
  }
  if (strategy.pipeline > 1) elements += messages_held(strategy, stage, stack) * message;
  elements += exchanged;
  return Bytes(elements * stored_bytes(strategy.type) + user_buffers);
}

Bytes recorded_bytes(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                     const SoftwareStack& stack) {
  constexpr double kQueue = 1024, kForwardLaunches = 30, kBackwardLaunches = 60;
  if (!stack.records_streams || strategy.tensor(stage) == 1) return {};
  const bool recomputed = strategy.recompute.granularity == RecomputeGranularity::full;
  const LayerSplit split = layer_split(model, strategy, stage);
  double most = 0.0;
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
    const LayerRange range = strategy.part(stage, chunk);
    double widest = 0.0;
    for_each_run(model, range, [&](const LayerShape& shape, int) {
      widest = std::max(widest, static_cast<double>(local_layer(shape, split).tokens * shape.hidden));
    });
    const auto tensors_of = [&](double of_layer, double launches) {
      return of_layer * std::min(static_cast<double>(range.count), kQueue / launches);
    };
    const double forward = tensors_of(2, kForwardLaunches);
    const double backward = recomputed ? tensors_of(4, kForwardLaunches + kBackwardLaunches) : 0.0;
    most = std::max(most, widest * std::max(forward, backward));
  }
  return Bytes(most * stored_bytes(strategy.type));
}

Bytes activation_bytes(const ModelSpec& model, const ParallelStrategy& strategy, int stage, int chunk,
                       const SoftwareStack& stack) {
  return Bytes(part_activations(model, strategy, stage, chunk, stack).kept);
}

Bytes weight_gradient_bytes(const ModelSpec& model, const ParallelStrategy& strategy, int stage, int chunk,
                            const SoftwareStack& stack) {
  const LayerSplit split = layer_split(model, strategy, stage, stack.experts.load);
  const double element = stored_bytes(strategy.type);
  double bytes = 0.0;
  for_each_run(model, strategy.part(stage, chunk), [&](const LayerShape& shape, int layers) {
    bytes += layers * weight_gradient_inputs(shape, local_layer(shape, split), element);
  });
  const auto hidden =
      static_cast<double>(boundary_tokens(model, strategy, stage).owned_tokens * model.hidden);
  // The gradient of the embedding; the input of the output matrix.
  if (chunk == 0 && holds_embedding(model, stage)) bytes += element * hidden;
  if (chunk == strategy.chunks - 1 && holds_head(model, strategy, stage)) bytes += element * hidden;
  return Bytes(bytes);
}

}  // namespace orrery
