#include "costmodels/memory.hpp"

#include <algorithm>

#include "costmodels/layer_memory.hpp"
#include "costmodels/local_layer.hpp"
#include "platforms/errors.hpp"
#include "strategies/placement.hpp"

namespace orrery {
namespace {

// Of one logit of 2 bytes at its peak. Separate kernels: the logits in 16 bits and fp32, their softmax and
// its gradient (torchtitan's published peaks: FIDELITY B.8). Fused: the logits in 16 bits and their softmax
// in fp32, which the gradient overwrites (Megatron-LM core/fusions/fused_cross_entropy.py; FIDELITY B.8 finds
// about 6).
constexpr double kLogitPeak = 14.0, kFusedLogitPeak = 6.0;
// What stays of a logit from its backward to its weight gradient: the gradient in 16 bits.
constexpr double kLogitGradient = 2.0;

// Bytes of one parameter (Megatron Core user guide, distributed optimizer: 18 B in all for bf16 with fp32
// gradients, 20 for fp16 whose gradients the optimizer copies to fp32, 16 for fp32, which needs no master
// copy).
struct StateBytes {
  double weight, gradient, optimizer;
};
StateBytes state_bytes(DataType type) {
  switch (type) {
    case DataType::fp32:
    case DataType::tf32:
      return {.weight = 4, .gradient = gradient_bytes(type), .optimizer = 8};
    case DataType::fp16:
      return {.weight = 2, .gradient = gradient_bytes(type), .optimizer = 16};
    case DataType::bf16:
    case DataType::fp8:
    case DataType::fp4:
      return {.weight = 2, .gradient = gradient_bytes(type), .optimizer = 12};
  }
  ORRERY_ENSURE(false);
}

// Of a parameter whose optimizer is offloaded, on the host: weight, gradient and two moments in fp32, pinned
// (hybrid_optimizer.py as in price_tables.cpp).
constexpr double kHostState = 16.0;

// Calls visit(shape, layers) for each stretch of equal layers of a range: most models have one or two.
template <class Visit>
void for_each_run(const ModelSpec& model, const LayerRange& range, Visit visit) {
  const int end = range.first + range.count;
  for (int layer = range.first; layer < end;) {
    const int first = layer;
    const int shape = model.layers[static_cast<std::size_t>(first)];
    while (layer < end && model.layers[static_cast<std::size_t>(layer)] == shape) ++layer;
    visit(model.shapes[static_cast<std::size_t>(shape)], layer - first);
  }
}

bool holds_embedding(const ModelSpec& model, int stage) {
  return model.vocabulary > 0 && stage == 0;
}
bool holds_head(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  return model.vocabulary > 0 && stage == strategy.rank_of_part(strategy.part_count() - 1);
}

double word_table(const ModelSpec& model, int tensor) {
  return static_cast<double>(padded_vocabulary(model.vocabulary, tensor) / tensor * model.hidden);
}

// Embedding of the first stage and head of the last one.
double boundary_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  const int tensor = strategy.tensor(stage);
  double sum = 0.0;
  if (holds_embedding(model, stage)) {
    sum += word_table(model, tensor) + static_cast<double>(model.learned_positions * model.hidden);
  }
  if (holds_embedding(model, stage) && model.embedding_norm) {
    sum += static_cast<double>(norm_parameters(model.final_norm, model.hidden));
  }
  if (holds_head(model, strategy, stage)) {
    sum += static_cast<double>(norm_parameters(model.final_norm, model.hidden));
    const bool shares_table = model.tied_embeddings && holds_embedding(model, stage);
    if (!shares_table) sum += word_table(model, tensor);
  }
  return sum;
}

LocalParameters chunk_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                                 int chunk) {
  const LayerSplit split = layer_split(model, strategy, stage);
  LocalParameters sum;
  for_each_run(model, strategy.part(stage, chunk), [&](const LayerShape& shape, int layers) {
    const LocalParameters one = local_parameters(shape, local_layer(shape, split));
    sum.dense += layers * one.dense;
    sum.expert += layers * one.expert;
  });
  return sum;
}

LocalParameters stage_split_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  LocalParameters sum{.dense = boundary_parameters(model, strategy, stage), .expert = 0.0};
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
    const LocalParameters one = chunk_parameters(model, strategy, stage, chunk);
    sum.dense += one.dense;
    sum.expert += one.expert;
  }
  return sum;
}

// Of one layer on this GPU, before fully sharded data parallelism divides it.
double largest_layer_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  const LayerSplit split = layer_split(model, strategy, stage);
  double most = 0.0;
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
    for_each_run(model, strategy.part(stage, chunk), [&](const LayerShape& shape, int) {
      const LocalParameters one = local_parameters(shape, local_layer(shape, split));
      most = std::max(most, one.dense + one.expert);
    });
  }
  return most;
}

double optimizer_shard(const ParallelStrategy& strategy, const LocalParameters& parameters) {
  if (!strategy.distributed_optimizer) return parameters.dense + parameters.expert;
  const double copies = static_cast<double>(strategy.data) * strategy.context;
  const double expert_copies = std::max(1.0, copies / strategy.replicas_sharing_experts());
  return parameters.dense / copies + parameters.expert / expert_copies;
}

struct PartActivations {
  double kept = 0.0;        // by each microbatch from its forward to its backward
  double recomputed = 0.0;  // what the backward of one microbatch brings back at most
};

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
                               const LayerRange& range, const LayerSplit& split, SavedInputs saved) {
  const bool uniform = strategy.recompute.method == RecomputeMethod::uniform;
  const int group = uniform ? std::max(1, strategy.recompute.layers) : 1;
  const int recomputed_layers = uniform ? range.count : std::min(range.count, strategy.recompute.layers);
  const double kept_share = share_on_gpu(saved, split);
  PartActivations bytes;
  double brought_back = 0.0;  // by the group the layer belongs to
  int position = 0;
  for_each_run(model, range, [&](const LayerShape& shape, int layers) {
    const LayerActivations one = layer_activations(shape, local_layer(shape, split), strategy);
    for (const int end = position + layers; position < end; ++position) {
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
    return full_recompute(model, strategy, range, split, stack.saved_inputs);
  }
  const bool selective = strategy.recompute.granularity == RecomputeGranularity::selective;
  PartActivations bytes;
  for_each_run(model, range, [&](const LayerShape& shape, int layers) {
    const LayerActivations one = layer_activations(shape, local_layer(shape, split), strategy);
    double dropped = selective ? dropped_by(one, strategy.recompute.modules) : 0.0;
    if (selective && stack.selective == SelectiveRecompute::every_second_gemm) {
      dropped = one.all() - one.input - std::min(one.second_outputs, one.rest);
    }
    bytes.kept += layers * (one.all() - dropped);
    bytes.recomputed = std::max(bytes.recomputed, dropped);
  });
  return bytes;
}

// Local tokens of the embedding and the head.
LocalLayer boundary_tokens(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  return local_layer(LayerShape{.hidden = model.hidden}, layer_split(model, strategy, stage));
}

struct LogitBytes {
  double kept = 0.0;  // of the microbatches that wait for their backward or weight gradients
  double peak = 0.0;  // of the one in its loss
};
LogitBytes logit_bytes(const ModelSpec& model, const ParallelStrategy& strategy, int stage, int alive,
                       int for_weights, const SoftwareStack& stack) {
  if (!holds_head(model, strategy, stage) || alive + for_weights == 0) return {};
  const int tensor = strategy.tensor(stage);
  const auto tokens = static_cast<double>(boundary_tokens(model, strategy, stage).tokens);
  const double logits = tokens * static_cast<double>(padded_vocabulary(model.vocabulary, tensor) / tensor);
  const double scale = stored_bytes(strategy.type) / 2.0;
  const bool fused = stack.cross_entropy == CrossEntropyKernel::fused;
  const double peak = stack.logit_peak.value_or(fused ? kFusedLogitPeak : kLogitPeak);
  const double waiting = std::max(0, alive - 1) * std::min(kLogitKept, peak) + for_weights * kLogitGradient;
  return {scale * logits * waiting, alive > 0 ? scale * logits * peak : 0.0};
}

PartActivations part_activations(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                                 int chunk, const SoftwareStack& stack) {
  const LayerSplit split = layer_split(model, strategy, stage);
  PartActivations bytes = layers_of_part(model, strategy, strategy.part(stage, chunk), split, stack);
  const bool embedding = chunk == 0 && holds_embedding(model, stage);
  const bool head = chunk == strategy.chunks - 1 && holds_head(model, strategy, stage);
  if (!embedding && !head) return bytes;
  const auto hidden =
      static_cast<double>(boundary_tokens(model, strategy, stage).owned_tokens * model.hidden);
  // The embedding dropout of the GPT line keeps a mask (Korthikanti et al., section 4.3).
  if (embedding && model.learned_positions > 0) bytes.kept += hidden;
  // Inputs of the final norm and of the output matrix.
  if (head) bytes.kept += 2 * stored_bytes(strategy.type) * hidden;
  return bytes;
}

// Of one element of a gathered tensor. Transformer Engine has ten buffers of that size, one a matrix and pass
// (initialize_ub, transformer_engine/pytorch/module/base.py), six of them in 8 bits where the matrices are.
double user_buffer_bytes(DataType type) {
  const double wide = stored_bytes(type);
  return type == DataType::fp8 || type == DataType::fp4 ? 6 + 4 * wide : 10 * wide;
}

// Four gathered tensors of sequence parallelism (or the user buffers in their place), two messages of the
// pipeline in flight, two K/V blocks of the ring, or all of them where they are gathered.
Bytes communication_bytes(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                          const SoftwareStack& stack) {
  const LayerSplit split = layer_split(model, strategy, stage);
  double gathered = 0.0, message = 0.0, keys_values = 0.0;
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
    for_each_run(model, strategy.part(stage, chunk), [&](const LayerShape& shape, int) {
      const LocalLayer local = local_layer(shape, split);
      gathered = std::max(gathered, static_cast<double>(local.tokens * shape.hidden));
      message = std::max(message, static_cast<double>(local.owned_tokens * shape.hidden));
      const std::int64_t width =
          stack.repeated_keys ? local.query_width + local.output_width : local.key_width + local.value_width;
      keys_values = std::max(keys_values, static_cast<double>(local.tokens * width));
    });
  }
  double elements = 0.0, user_buffers = 0.0;
  if (split.sequence_parallel && split.tensor > 1) {
    if (user_buffers_take(strategy.type) && strategy.tensor_overlap.value_or(stack.tensor_overlap > 0))
      user_buffers = user_buffer_bytes(strategy.type) * gathered;
    else
      elements += 4 * gathered;
  }
  if (strategy.pipeline > 1) elements += 2 * message;
  const int blocks = stack.context_exchange == ContextExchange::gathered ? split.context : 2;
  if (split.context > 1) elements += blocks * keys_values;
  return Bytes(elements * stored_bytes(strategy.type) + user_buffers);
}

}  // namespace

double stage_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  const LocalParameters parameters = stage_split_parameters(model, strategy, stage);
  return parameters.dense + parameters.expert;
}

LocalParameters part_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                                int chunk) {
  LocalParameters sum = chunk_parameters(model, strategy, stage, chunk);
  // What lies before the layers belongs to the first part of the stage, what comes after them to its last.
  const int keeper = holds_head(model, strategy, stage) ? strategy.chunks - 1 : 0;
  if (chunk == keeper) sum.dense += boundary_parameters(model, strategy, stage);
  return sum;
}

double optimizer_shard_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  return optimizer_shard(strategy, stage_split_parameters(model, strategy, stage));
}

Bytes activation_bytes(const ModelSpec& model, const ParallelStrategy& strategy, int stage, int chunk) {
  return Bytes(part_activations(model, strategy, stage, chunk, {}).kept);
}

Bytes weight_gradient_bytes(const ModelSpec& model, const ParallelStrategy& strategy, int stage, int chunk) {
  const LayerSplit split = layer_split(model, strategy, stage);
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

StageMemory stage_memory(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                         const std::vector<int>& alive, const SoftwareStack& stack) {
  return stage_memory(model, strategy, stage, AliveState{alive, std::vector<int>(alive.size(), 0)}, stack);
}

StageMemory peak_memory(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                        const std::vector<AliveState>& states, const SoftwareStack& stack) {
  ORRERY_ENSURE(!states.empty());
  StageMemory peak;
  for (const AliveState& state : states) {
    const StageMemory memory = stage_memory(model, strategy, stage, state, stack);
    if (memory.total() > peak.total()) peak = memory;
  }
  return peak;
}

StageMemory stage_memory(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                         const AliveState& alive, const SoftwareStack& stack) {
  ORRERY_ENSURE(alive.whole.size() == static_cast<std::size_t>(strategy.chunks));
  const LocalParameters parameters = stage_split_parameters(model, strategy, stage);
  const double count = parameters.dense + parameters.expert;
  StateBytes state = state_bytes(strategy.type);
  state.gradient = stack.gradient.value_or(state.gradient);
  if (strategy.fully_sharded) {
    // fp32 weights, gradients and moments are all sharded.
    const double shard = optimizer_shard(strategy, parameters) / count;
    state = {4 * shard, 4 * shard, 8};
    // Under a pipeline whole 16-bit weights and fp32 gradients stay beside their shards (FIDELITY B 8).
    if (strategy.pipeline > 1) state.weight += 2, state.gradient += 4;
  }
  StageMemory memory;
  memory.weights = Bytes(state.weight * count);
  memory.gradients = Bytes(state.gradient * count);
  const double shard = optimizer_shard(strategy, parameters);
  memory.optimizer = Bytes(state.optimizer * (1 - strategy.optimizer_offload) * shard);
  memory.host = Bytes(kHostState * strategy.optimizer_offload * shard);
  if (strategy.fully_sharded && strategy.pipeline == 1) {
    const double layer = largest_layer_parameters(model, strategy, stage);
    memory.weights += Bytes(2 * stored_bytes(strategy.type) * layer);
    memory.gradients += Bytes((stored_bytes(strategy.type) + stack.reduced_gradient.value_or(2.0)) * layer);
  }
  double recomputed = 0.0;
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
    const int waiting = alive.for_weights[static_cast<std::size_t>(chunk)];
    if (waiting > 0) memory.activations += weight_gradient_bytes(model, strategy, stage, chunk) * waiting;
    const int microbatches = alive.whole[static_cast<std::size_t>(chunk)];
    if (microbatches == 0) continue;
    const PartActivations part = part_activations(model, strategy, stage, chunk, stack);
    memory.activations += Bytes(part.kept * microbatches);
    recomputed = std::max(recomputed, part.recomputed);
  }
  const LogitBytes logits =
      logit_bytes(model, strategy, stage, alive.whole.back(), alive.for_weights.back(), stack);
  memory.logits = Bytes(logits.kept + logits.peak);
  memory.activations += Bytes(std::max(0.0, recomputed - logits.peak));
  memory.communication = communication_bytes(model, strategy, stage, stack);
  memory.reserve = stack.memory_reserve;
  return memory;
}

Bytes usable_memory(Bytes card) {
  constexpr double kSmallCard = 16, kLargeCard = 80;  // GiB
  constexpr double kSmallShare = 0.83, kLargeShare = 0.91;
  const double position = std::clamp((to_gibibytes(card) - kSmallCard) / (kLargeCard - kSmallCard), 0.0, 1.0);
  return card * (kSmallShare + position * (kLargeShare - kSmallShare));
}

Bytes usable_host_memory(Bytes of_node) {
  return of_node * 0.8;
}

std::vector<Bytes> fullest_hosts(const ParallelStrategy& strategy, const ClusterSpec& cluster,
                                 const std::vector<StageMemory>& memory) {
  struct Node {
    int ranks = 0;
    Bytes bytes;
  };
  std::vector<Node> open(cluster.groups.size());  // the node that is being filled
  std::vector<Bytes> most(cluster.groups.size());
  const std::vector<int> kinds = strategy.kind_of_replica();
  for (const TensorGroup& at : tensor_groups(strategy)) {
    const int kind = kinds[static_cast<std::size_t>(at.replica)];
    const auto group = static_cast<std::size_t>(
        kind == 0
            ? strategy.stages[static_cast<std::size_t>(at.stage)].group
            : strategy.replicas[static_cast<std::size_t>(kind)].groups[static_cast<std::size_t>(at.stage)]);
    const Bytes each = memory[static_cast<std::size_t>(kind * strategy.pipeline + at.stage)].host;
    for (int lane = 0; lane < strategy.tensor(at.stage); ++lane) {
      Node& node = open[group];
      if (node.ranks == cluster.groups[group].gpus_per_node) node = {};
      ++node.ranks;
      node.bytes += each;
      most[group] = std::max(most[group], node.bytes);
    }
  }
  return most;
}

MemoryVerdict memory_verdict(Bytes needed, Bytes card) {
  const Bytes usable = usable_memory(card);
  if (needed <= usable) return MemoryVerdict::fits;
  const double error = card / usable - 1;  // of the count, at most, where a plan fits
  return needed * (1 - error) <= card ? MemoryVerdict::risky : MemoryVerdict::too_big;
}

std::string_view to_text(MemoryVerdict verdict) {
  switch (verdict) {
    case MemoryVerdict::fits:
      return "fits";
    case MemoryVerdict::risky:
      return "risky";
    case MemoryVerdict::too_big:
      return "too big";
  }
  ORRERY_ENSURE(false);
}

}  // namespace orrery
