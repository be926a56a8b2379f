#include "strategies/misfits.hpp"

#include "strategies/schedule.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

std::string to_text(const Misfit& misfit) {
  std::string text;
  auto number = misfit.numbers.begin();
  for (const char letter : misfit.sentence) {
    if (letter == '#')
      text += std::to_string(*number++);
    else
      text += letter;
  }
  return text;
}

std::optional<Misfit> positions_misfit(const ModelSpec& model, std::int64_t sequence) {
  if (model.learned_positions == 0 || sequence <= model.learned_positions) return std::nullopt;
  return Misfit{"the sequence is longer than the model's position table",
                "the sequence of # tokens is longer than the model's table of # positions",
                {sequence, model.learned_positions}};
}

std::optional<Misfit> tensor_misfit(const LayerShape& shape, int tensor) {
  const auto divides = [tensor](std::int64_t size) { return size % tensor == 0; };
  if (!divides(shape.heads))
    return Misfit{"heads do not divide",
                  "# attention heads are not a multiple of # tensor-parallel ways",
                  {shape.heads, tensor}};
  // With fewer key-value heads than ways, each is held by several ranks.
  if (!divides(shape.kv_heads) && (shape.kv_heads == 0 || tensor % shape.kv_heads != 0))
    return Misfit{"key-value heads do not divide",
                  "# key-value heads are neither a multiple nor a divisor of # tensor-parallel ways",
                  {shape.kv_heads, tensor}};
  if (!divides(shape.ffn))
    return Misfit{"width does not divide",
                  "# columns of the MLP are not a multiple of # tensor-parallel ways",
                  {shape.ffn, tensor}};
  if (!divides(shape.shared_ffn))
    return Misfit{"width does not divide",
                  "# columns of the shared expert are not a multiple of # tensor-parallel ways",
                  {shape.shared_ffn, tensor}};
  if (!divides(shape.state_space.heads))
    return Misfit{"state space does not divide",
                  "# heads of the state space are not a multiple of # tensor-parallel ways",
                  {shape.state_space.heads, tensor}};
  if (!divides(shape.state_space.groups))
    return Misfit{"state space does not divide",
                  "# groups of the state space are not a multiple of # tensor-parallel ways",
                  {shape.state_space.groups, tensor}};
  return std::nullopt;
}

std::optional<Misfit> state_space_misfit(const LayerShape& shape, int tensor, int context) {
  const std::int64_t groups = shape.state_space.groups / tensor;
  if (groups % context == 0) return std::nullopt;
  return Misfit{"state space does not divide over context ways",
                "the state space has # groups on each tensor rank, which are not a multiple of # "
                "context-parallel ways",
                {groups, context}};
}

// Each context rank takes one block from the front and one from the back, so that causal work is equal.
std::optional<Misfit> context_misfit(std::int64_t sequence, int context) {
  if (context == 1 || sequence % (2 * std::int64_t{context}) == 0) return std::nullopt;
  return Misfit{"the sequence does not divide",
                "the sequence of # tokens is not a multiple of twice the # context-parallel ways",
                {sequence, context}};
}

std::optional<Misfit> sequence_parallel_misfit(std::int64_t sequence, int context, int tensor) {
  const std::int64_t tokens = sequence / context;
  if (tokens % tensor == 0) return std::nullopt;
  return Misfit{"the sequence does not divide",
                "sequence parallelism splits # tokens, which are not a multiple of # tensor-parallel ways",
                {tokens, tensor}};
}

std::optional<Misfit> expert_spread_misfit(int sharing, int context, int data) {
  if (experts_spread_evenly(sharing, context, data)) return std::nullopt;
  return Misfit{"expert ways do not divide the context and data ways",
                "# expert-parallel ways do not divide the # context ranks and replicas they are spread over",
                {sharing, std::int64_t{data} * context}};
}

// Dense layers have nothing to spread; a model of dense layers alone has no experts at all.
std::optional<Misfit> experts_misfit(const ModelSpec& model, int expert) {
  if (expert == 1) return std::nullopt;
  bool any = false;
  for (const LayerShape& shape : model.shapes) {
    if (shape.experts == 1) continue;
    any = true;
    if (shape.experts % expert != 0)
      return Misfit{"experts do not divide",
                    "# experts are not a multiple of # expert-parallel ways",
                    {shape.experts, expert}};
  }
  if (any) return std::nullopt;
  return Misfit{
      "experts do not divide", "the model has no experts to spread over # expert-parallel ways", {expert}};
}

// Tensor ranks with experts of their own: Megatron-LM has other splits too, and asserts sequence parallelism.
std::optional<Misfit> expert_tensor_misfit(const Switches& switches, int tensor, int other_tensor,
                                           int expert) {
  if (!switches.expert_tensor) return std::nullopt;
  if (other_tensor != tensor)
    return Misfit{"expert_tensor_parallel_size with unequal tensor ways",
                  "expert_tensor is given for stages of # and # tensor ways",
                  {tensor, other_tensor}};
  const int ways = *switches.expert_tensor;
  if (ways == tensor) return std::nullopt;
  if (ways != 1)
    return Misfit{"expert_tensor_parallel_size neither 1 nor the tensor ways",
                  "expert_tensor is # and must be 1 or the # tensor-parallel ways",
                  {ways, tensor}};
  if (!switches.sequence_parallel)
    return Misfit{
        "expert_tensor_parallel_size 1 without sequence parallelism",
        "experts of each tensor rank's own need sequence parallelism over the # tensor-parallel ways",
        {tensor}};
  if (expert % tensor != 0)
    return Misfit{"expert ways not a multiple of the tensor ways",
                  "# expert-parallel ways are not a multiple of the # tensor ranks that have experts of "
                  "their own",
                  {expert, tensor}};
  return std::nullopt;
}

// What Megatron-LM asserts of the modules it recomputes (core/transformer/transformer_config.py).
std::optional<Misfit> module_misfit(const ModelSpec& model, const Recompute& recompute) {
  if (recompute.granularity != RecomputeGranularity::selective) return std::nullopt;
  if (recompute.modules.has(RecomputeModule::mla_up_proj) && !model.has_latent_attention())
    return Misfit{"mla_up_proj without latent attention",
                  "mla_up_proj is recomputed in a model without latent attention"};
  if (recompute.modules.has(RecomputeModule::moe_act) && !model.has_experts())
    return Misfit{"moe_act without experts", "moe_act is recomputed in a model without experts"};
  return std::nullopt;
}

std::optional<Misfit> tensor_overlap_misfit(const Switches& switches, int tensor) {
  if (switches.tensor_overlap != true || (switches.sequence_parallel && tensor > 1)) return std::nullopt;
  return Misfit{"tp_comm_overlap without sequence parallelism",
                "tensor_overlap is on without sequence parallelism over tensor-parallel ways"};
}

// megatron/training/arguments.py asserts both.
std::optional<Misfit> gather_overlap_misfit(bool gathers, bool reduces, bool distributed) {
  if (!gathers || (reduces && distributed)) return std::nullopt;
  return Misfit{"overlap_param_gather without overlap_grad_reduce and the distributed optimizer",
                "overlap_param_gather is true without overlap_grad_reduce and the distributed optimizer"};
}

// The offloaded optimizer is built on the precision-aware one, and that on the distributed one
// (megatron/training/arguments.py).
std::optional<Misfit> offload_misfit(const Switches& switches) {
  if (switches.optimizer_offload <= 0 || switches.distributed_optimizer) return std::nullopt;
  return Misfit{"optimizer_cpu_offload without the distributed optimizer",
                "optimizer_offload is above 0 without the distributed optimizer"};
}

// Megatron-FSDP is built on the distributed optimizer.
std::optional<Misfit> sharding_misfit(const Switches& switches) {
  if (!switches.fully_sharded || switches.distributed_optimizer) return std::nullopt;
  return Misfit{"use_megatron_fsdp without use_distributed_optimizer",
                "fully_sharded is true without the distributed optimizer"};
}

// Megatron-LM core/parallel_state.py asserts that instances divide the copies of weights and of experts.
std::optional<Misfit> instances_misfit(const Switches& switches, int copies, int sharing) {
  const int instances = switches.optimizer_instances;
  if (instances == 1) return std::nullopt;
  if (!switches.distributed_optimizer)
    return Misfit{"num_distributed_optimizer_instances without the distributed optimizer",
                  "optimizer_instances is # without the distributed optimizer",
                  {instances}};
  if (copies % instances != 0 || copies == instances)
    return Misfit{"num_distributed_optimizer_instances does not split the copies of the weights",
                  "optimizer_instances is # and must split the # copies of the weights into equal sets of "
                  "two or more",
                  {instances, copies}};
  const int of_experts = copies / sharing;
  if (of_experts % instances != 0)
    return Misfit{"num_distributed_optimizer_instances does not divide the copies of the experts",
                  "optimizer_instances is # and must divide the # copies of the experts",
                  {instances, of_experts}};
  return std::nullopt;
}

std::optional<Misfit> batch_misfit(std::int64_t global_batch, std::int64_t micro_batch, int data) {
  if (global_batch % (micro_batch * data) == 0) return std::nullopt;
  return Misfit{"the batch does not divide",
                "the global batch of # sequences is not a multiple of # replicas x micro batch #",
                {global_batch, data, micro_batch}};
}

std::optional<Misfit> microbatches_misfit(std::int64_t microbatches) {
  if (microbatches <= kMostPlanMicrobatches) return std::nullopt;
  return Misfit{"too many microbatches",
                "the global batch makes # microbatches; at most # are scheduled",
                {microbatches, kMostPlanMicrobatches}};
}

}  // namespace orrery
