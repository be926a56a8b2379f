#include "costmodels/memory/memory.hpp"

#include <algorithm>

#include "costmodels/layers/stage_parts.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

// Bytes of one parameter (Megatron Core user guide, distributed optimizer: 18 B in all for bf16 with fp32
// gradients, 16 for fp32, which needs no master copy, and for fp16, whose other 4 are kStepCopy).
struct StateBytes {
  double weight, gradient, optimizer;
};
StateBytes usual_states(DataType type) {
  switch (type) {
    case DataType::fp32:
    case DataType::tf32:
      return {.weight = 4, .gradient = gradient_bytes(type), .optimizer = 8};
    case DataType::fp16:
      return {.weight = 2, .gradient = gradient_bytes(type), .optimizer = 12};
    case DataType::bf16:
    case DataType::fp8:
    case DataType::fp4:
      return {.weight = 2, .gradient = gradient_bytes(type), .optimizer = 12};
  }
  ORRERY_ENSURE(false);
}

// Sharded weights are in fp32, and their own master copy. Programs choose other types for bf16.
StateBytes state_bytes(DataType type, bool weights_are_sharded, const SoftwareStack& stack) {
  StateBytes state = usual_states(weights_are_sharded ? DataType::fp32 : type);
  if (chooses_types(stack, type)) {
    state.weight = stack.states.weight.value_or(state.weight);
    state.gradient = gradient_kept(stack, type);
    state.optimizer = stack.states.optimizer.value_or(state.optimizer);
  }
  state.optimizer = std::max(0.0, state.optimizer - lacking_moments(stack));
  return state;
}

// Of a parameter in fp16: its gradient in fp32, from the beginning of the optimizer's step to its end
// (_copy_model_grads_to_main_grads and zero_grad, megatron/core/optimizer/distrib_optimizer.py).
constexpr double kStepCopy = 4.0;

// Of a parameter whose optimizer is offloaded, on the host: weight, gradient and two moments in fp32, pinned
// (hybrid_optimizer.py as in price_tables.cpp).
constexpr double kHostState = 16.0;

// Blocks of logits and their gradients are the largest of all and of two sizes, 2 and 4 B each: where the
// allocator has no segments that grow, a run whose card has not as much again by half for them stops, though
// none of its peaks shows it. The share makes the outcomes of 272 published runs likeliest, of 0, 0.25, 0.5,
// 0.75 and 1; it was found on Aleph Alpha's sweeps (vocabulary 128,000), and BigScience's alone say 0.5 or
// more.
constexpr double kSplitShare = 0.5;

// What of a stage is the same whatever is alive, and what a microbatch adds.
struct StageAtRest {
  StageMemory memory;                  // all but activations, logits and what is cached of them
  Bytes late;                          // gradients that come while activations go
  Bytes in_step;                       // copies made when the activations are gone
  Bytes recorded;                      // at most, beside what is in use
  bool one_block = false;              // of memory, all of it
  std::vector<PartActivations> parts;  // [chunk]: from its forward to its backward
  std::vector<Bytes> for_weights;      // [chunk]: until its weight gradient; empty where none waits
};

// `kept`: between passes and the optimizer's step; `late`: of these what comes while activations go.
struct GradientBytes {
  Bytes kept, late;
};
GradientBytes gradient_bytes_of(const ParallelStrategy& strategy, const LocalParameters& parameters,
                                const SoftwareStack& stack) {
  const double count = parameters.dense + parameters.expert;
  const bool sharded = shards_weights(strategy, stack);
  const double gradient = state_bytes(strategy.type, sharded, stack).gradient;
  // In a pipeline they are reduced once, after the last microbatch.
  const bool keeps_shard = sharded || gathered_in_passes(strategy);
  GradientBytes bytes;
  bytes.kept = Bytes(gradient * (keeps_shard ? optimizer_shard(strategy, parameters) : count));
  if (stack.frees_gradients && strategy.pipeline == 1 && strategy.microbatches() == 1)
    bytes.late = bytes.kept;
  bytes.kept += gradient_buckets(strategy, count, stack);
  return bytes;
}

// Weights, gradients and optimizer. With fully sharded weights two layers are whole at a time, the one at
// work and the next, beside the root unit, and the gradients of one.
StageMemory model_states(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                         const LocalParameters& parameters, const SoftwareStack& stack) {
  const double count = parameters.dense + parameters.expert;
  const double shard = optimizer_shard(strategy, parameters);
  const bool sharded = shards_weights(strategy, stack);
  const StateBytes state = state_bytes(strategy.type, sharded, stack);
  StageMemory memory;
  memory.weights =
      Bytes(state.weight * (sharded ? shard : count)) + cast_weights(model, strategy, stage, stack);
  const GradientBytes gradients = gradient_bytes_of(strategy, parameters, stack);
  memory.gradients = gradients.kept - gradients.late;
  memory.optimizer = Bytes(state.optimizer * (1 - strategy.optimizer_offload) * shard);
  memory.host = Bytes(kHostState * strategy.optimizer_offload * shard);
  if (sharded && !gathered_in_passes(strategy)) {
    // Whole weights, as they compute, and fp32 gradients stay beside their shards.
    memory.weights += Bytes(stored_bytes(strategy.type) * count);
    memory.gradients += Bytes(4 * count);
  } else if (sharded) {
    const double root = root_parameters(model, strategy, stage, stack.root_unit);
    const double stored = stored_bytes(strategy.type);
    if (stack.root_unit == RootUnit::all) {  // reduced when the activations are gone
      memory.weights += Bytes(stored * root);
      memory.gradients += Bytes(stored * root);
    } else {
      const double layer = largest_layer_parameters(model, strategy, stage);
      memory.weights += Bytes(stored * (2 * layer + root));
      memory.gradients += Bytes((stored + stack.reduced_gradient.value_or(2.0)) * layer);
    }
    const bool experts_sharded = strategy.copies_of_instance() > strategy.copies_sharing_experts();
    if (stack.adds_up_whole && strategy.microbatches() > 1)
      memory.gradients += Bytes(gradient_sent(stack, strategy.type) *
                                (parameters.dense + (experts_sharded ? parameters.expert : 0)));
  }
  return memory;
}

bool any_waits(const AliveState& alive) {
  return std::any_of(alive.for_weights.begin(), alive.for_weights.end(), [](int n) { return n > 0; });
}

StageAtRest stage_at_rest(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                          const std::vector<AliveState>& states, const SoftwareStack& stack) {
  StageAtRest rest;
  const LocalParameters parameters = stage_split_parameters(model, strategy, stage);
  const double stepped = (1 - strategy.optimizer_offload) * optimizer_shard(strategy, parameters);
  rest.memory = model_states(model, strategy, stage, parameters, stack);
  rest.memory.communication = communication_bytes(model, strategy, stage, stack);
  if (strategy.fully_sharded && stack.whole_weights) rest.memory.communication += stack.reduce_buffers;
  rest.memory.context = stack.memory_reserve;
  rest.in_step = Bytes(stack.gradient_copy * (parameters.dense + parameters.expert));
  rest.one_block = rest.in_step > Bytes(0) || stack.flat_gradients;
  if (strategy.type == DataType::fp16 && !chooses_types(stack, strategy.type) &&
      !shards_weights(strategy, stack)) {
    (stack.keeps_step_copies ? rest.memory.gradients : rest.in_step) += Bytes(kStepCopy * stepped);
  }
  rest.in_step += Bytes(stack.optimizer_copy * stepped);
  rest.late = gradient_bytes_of(strategy, parameters, stack).late;
  rest.recorded = recorded_bytes(model, strategy, stage, stack);
  const bool waiting = std::any_of(states.begin(), states.end(), any_waits);
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
    rest.parts.push_back(part_activations(model, strategy, stage, chunk, stack));
    if (waiting) rest.for_weights.push_back(weight_gradient_bytes(model, strategy, stage, chunk, stack));
  }
  return rest;
}

StageMemory with_alive(const StageAtRest& rest, const AliveState& alive, const LogitBytes& logits,
                       const SoftwareStack& stack) {
  StageMemory memory = rest.memory;
  double recomputed = 0.0, gradients = 0.0;
  for (std::size_t chunk = 0; chunk < rest.parts.size(); ++chunk) {
    const int waiting = alive.for_weights[chunk], microbatches = alive.whole[chunk];
    if (waiting > 0) memory.activations += rest.for_weights[chunk] * waiting;
    if (microbatches == 0) continue;
    memory.activations += Bytes(rest.parts[chunk].kept * microbatches);
    recomputed = std::max(recomputed, rest.parts[chunk].recomputed);
    gradients = std::max(gradients, rest.parts[chunk].gradients);
  }
  memory.logits = Bytes(logits.kept + logits.peak);
  memory.activations += Bytes(std::max(0.0, recomputed - logits.peak));
  memory.workspace = Bytes(std::max(0.0, gradients - std::max(0.0, logits.peak - recomputed)));
  memory.activations = memory.activations * stack.activation_memory;
  memory.workspace = memory.workspace * stack.activation_memory;
  memory.logits = memory.logits * stack.activation_memory;
  const Bytes churned = memory.activations + memory.workspace + memory.logits;
  memory.cached = std::max((churned + memory.communication) * stack.cached_share, rest.recorded);
  if (stack.cached_share > 0) memory.split = memory.logits * kSplitShare;
  // One block is larger than any that activations leave, which the allocator keeps beside it. Of a copy
  // tensor by tensor too hardly any finds such a block, but activations then take what it leaves.
  const Bytes beyond = std::max(Bytes(0), rest.late + rest.in_step - churned);
  const Bytes kept = rest.in_step - std::min(beyond, rest.in_step);
  memory.gradients += beyond;
  if (rest.one_block)
    memory.cached += kept;
  else if (stack.cached_share > 0)
    memory.cached = std::max(memory.cached, kept);
  return memory;
}

}  // namespace

bool shards_weights(const ParallelStrategy& strategy, const SoftwareStack& stack) {
  return strategy.fully_sharded && !stack.whole_weights;
}

Bytes gradient_buckets(const ParallelStrategy& strategy, double parameters, const SoftwareStack& stack) {
  const bool alone = strategy.data * strategy.context == 1;
  if (!stack.copies_to_buckets || alone || strategy.distributed_optimizer) return Bytes(0);
  return Bytes(gradient_sent(stack, strategy.type) * parameters);
}

bool gathered_in_passes(const ParallelStrategy& strategy) {
  return strategy.fully_sharded && strategy.pipeline == 1;
}

bool exchanges_in_passes(const ParallelStrategy& strategy) {
  return gathered_in_passes(strategy) || strategy.reduce_each_microbatch;
}

bool reduced_in_passes(const ParallelStrategy& strategy, const SoftwareStack& stack) {
  return strategy.reduce_each_microbatch || (gathered_in_passes(strategy) && !stack.adds_up_whole);
}

Bytes counted(const StageMemory& memory, MemoryFigure figure) {
  switch (figure) {
    case MemoryFigure::allocated:
      return memory.allocated();
    case MemoryFigure::reserved:
      return memory.reserved();
    case MemoryFigure::card:
      return memory.total();
  }
  ORRERY_ENSURE(false);
}

StageMemory stage_memory(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                         const std::vector<int>& alive, const SoftwareStack& stack) {
  return stage_memory(model, strategy, stage, AliveState{alive, std::vector<int>(alive.size(), 0)}, stack);
}

StageMemory stage_memory(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                         const AliveState& alive, const SoftwareStack& stack) {
  return peak_memory(model, strategy, stage, {alive}, stack);
}

StageMemory peak_memory(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                        const std::vector<AliveState>& states, const SoftwareStack& stack) {
  ORRERY_ENSURE(!states.empty());
  const StageAtRest rest = stage_at_rest(model, strategy, stage, states, stack);
  StageMemory peak;
  Bytes must_fit;  // at most, maybe of another state
  for (const AliveState& alive : states) {
    ORRERY_ENSURE(alive.whole.size() == static_cast<std::size_t>(strategy.chunks));
    const LogitBytes logits =
        logit_bytes(model, strategy, stage, alive.whole.back(), alive.for_weights.back(), stack);
    const StageMemory memory = with_alive(rest, alive, logits, stack);
    if (memory.total() > peak.total()) peak = memory;
    must_fit = std::max(must_fit, memory.must_fit());
  }
  peak.split += must_fit - peak.must_fit();
  return peak;
}

}  // namespace orrery
