#include "costmodels/memory.hpp"

#include <algorithm>

#include "costmodels/stage_parts.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

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

}  // namespace

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
  memory.cached = (memory.activations + memory.logits + memory.communication) * stack.cached_share;
  // One block for all: the allocator keeps those of the activations beside it, none of which is so large.
  const Bytes copy(stack.gradient_copy * count);
  const Bytes beyond = std::max(Bytes(0), copy - memory.activations - memory.logits);
  memory.gradients += beyond;
  memory.cached += copy - beyond;
  memory.context = stack.memory_reserve;
  return memory;
}

}  // namespace orrery
