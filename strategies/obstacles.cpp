#include "strategies/obstacles.hpp"

#include <algorithm>

#include "platforms/errors.hpp"
#include "strategies/schedule.hpp"

namespace orrery {
namespace {

Obstacle tensor_obstacle(const LayerShape& shape, int tensor, int context) {
  if (shape.heads % tensor != 0) return "heads do not divide";
  // With fewer key-value heads than ways, each is held by several ranks.
  if (shape.kv_heads % tensor != 0 && (shape.kv_heads == 0 || tensor % shape.kv_heads != 0))
    return "key-value heads do not divide";
  if (shape.ffn % tensor != 0 || shape.shared_ffn % tensor != 0) return "width does not divide";
  if (shape.state_space.heads % tensor != 0 || shape.state_space.groups % tensor != 0)
    return "state space does not divide";
  if (shape.state_space.groups / tensor % context != 0)
    return "state space does not divide over context ways";
  return std::nullopt;
}

// Of every group, each once.
std::vector<int> tensor_choices(const Ways& ways) {
  std::vector<int> choices{ways.tensor};
  for (const int tensor : ways.tensors) {
    if (std::find(choices.begin(), choices.end(), tensor) == choices.end()) choices.push_back(tensor);
  }
  return choices;
}

// Two blocks for each context rank, so that causal work is equal; a share for each tensor rank.
bool sequence_divides(std::int64_t sequence, const Ways& ways, bool sequence_parallel) {
  if (ways.context > 1 && sequence % (2 * std::int64_t{ways.context}) != 0) return false;
  const std::vector<int> tensors = tensor_choices(ways);
  return !sequence_parallel || std::all_of(tensors.begin(), tensors.end(),
                                           [&](int tensor) { return sequence / ways.context % tensor == 0; });
}

// Dense layers have nothing to spread; a model of dense layers alone has no experts at all.
bool experts_divide(const ModelSpec& model, int expert) {
  if (expert == 1) return true;
  bool any = false;
  for (const LayerShape& shape : model.shapes) {
    if (shape.experts == 1) continue;
    any = true;
    if (shape.experts % expert != 0) return false;
  }
  return any;
}

Obstacle expert_tensor_obstacle(const Ways& ways, const Setting& setting) {
  if (!setting.expert_tensor || *setting.expert_tensor == ways.tensor) return std::nullopt;
  if (*setting.expert_tensor != 1) return "expert_tensor_parallel_size neither 1 nor the tensor ways";
  if (!ways.tensors.empty()) return "expert_tensor_parallel_size with unequal tensor ways";
  if (!setting.sequence_parallel) return "expert_tensor_parallel_size 1 without sequence parallelism";
  if (ways.expert % ways.tensor != 0) return "expert ways not a multiple of the tensor ways";
  return std::nullopt;
}

Obstacle instances_obstacle(const Ways& ways, const Setting& setting) {
  const int copies = ways.data * ways.context, instances = setting.optimizer_instances;
  if (instances == 1) return std::nullopt;
  if (!setting.distributed_optimizer)
    return "num_distributed_optimizer_instances without the distributed optimizer";
  if (copies % instances != 0 || copies == instances)
    return "num_distributed_optimizer_instances does not split the copies of the weights";
  const int sharing =
      copies_sharing_experts(ways.expert, ways.tensor, setting.expert_tensor.value_or(ways.tensor));
  if (copies / sharing % instances != 0)
    return "num_distributed_optimizer_instances does not divide the copies of the experts";
  return std::nullopt;
}

// Megatron-FSDP is built on the distributed optimizer.
Obstacle sharding_obstacle(const Ways& ways, const Setting& setting) {
  if (!setting.fully_sharded) return std::nullopt;
  if (!setting.distributed_optimizer) return "use_megatron_fsdp without use_distributed_optimizer";
  if (ways.data * ways.context == 1) return "use_megatron_fsdp with one copy of the weights";
  return std::nullopt;
}

Obstacle module_obstacle(const ModelSpec& model, const Recompute& recompute) {
  if (recompute.granularity != RecomputeGranularity::selective) return std::nullopt;
  if (recompute.modules.has(RecomputeModule::mla_up_proj) && !model.has_latent_attention())
    return "mla_up_proj without latent attention";
  if (recompute.modules.has(RecomputeModule::moe_act) && !model.has_experts())
    return "moe_act without experts";
  return std::nullopt;
}

}  // namespace

Obstacle ways_obstacle(const ModelSpec& model, const Ways& ways, std::int64_t sequence) {
  if (model.learned_positions > 0 && sequence > model.learned_positions) {
    return "the sequence is longer than the model's position table";
  }
  if (!experts_spread_evenly(ways.expert, ways.context, ways.data))
    return "expert ways do not divide the context and data ways";
  for (const LayerShape& shape : model.shapes) {
    for (const int tensor : tensor_choices(ways)) {
      if (auto obstacle = tensor_obstacle(shape, tensor, ways.context)) return obstacle;
    }
  }
  if (!experts_divide(model, ways.expert)) return "experts do not divide";
  return std::nullopt;
}

Obstacle setting_obstacle(const ModelSpec& model, const Ways& ways, const Setting& setting,
                          std::int64_t global_batch, std::int64_t sequence) {
  if (global_batch % (setting.micro_batch * ways.data) != 0) return "the batch does not divide";
  if (setting.overlap_param_gather == true &&
      !(setting.distributed_optimizer && setting.overlap_grad_reduce.value_or(true))) {
    return "overlap_param_gather without overlap_grad_reduce and the distributed optimizer";
  }
  // Megatron-LM core/parallel_state.py: expert and dense ranks must then have equally many replicas.
  if (setting.order != RankOrder::cp_dp_pp && ways.expert > 1) return "expert ways with use_tp_pp_dp_mapping";
  if (setting.sequence_parallel && ways.tensor == 1) return "sequence parallelism without tensor parallelism";
  if (setting.tensor_overlap == true && !setting.sequence_parallel)
    return "tp_comm_overlap without sequence parallelism";
  if (setting.optimizer_offload > 0 && !setting.distributed_optimizer)
    return "optimizer_cpu_offload without the distributed optimizer";
  if (auto obstacle = expert_tensor_obstacle(ways, setting)) return obstacle;
  if (auto obstacle = instances_obstacle(ways, setting)) return obstacle;
  if (auto obstacle = sharding_obstacle(ways, setting)) return obstacle;
  if (auto obstacle = module_obstacle(model, setting.recompute)) return obstacle;
  for (const LayerShape& shape : model.shapes) {
    const std::int64_t tokens = shape.sequence > 0 ? shape.sequence : sequence;
    if (!sequence_divides(tokens, ways, setting.sequence_parallel)) return "the sequence does not divide";
  }
  if (global_batch / (setting.micro_batch * ways.data) > kMostPlanMicrobatches)
    return "too many microbatches";
  return std::nullopt;
}

Obstacle group_obstacle(const NodeGroup& group, const Ways& ways) {
  ORRERY_ENSURE(ways.tensors.empty());
  const std::int64_t lanes = std::int64_t{ways.tensor} * ways.context;
  if (ways.tensor > group.gpus_per_node) return "a tensor group larger than a node";
  if (group.gpus_per_node % ways.tensor != 0) return "tensor groups do not fill a node";
  if (group.gpus_per_node % lanes != 0 && lanes % group.gpus_per_node != 0)
    return "a stage does not fill nodes evenly";
  return std::nullopt;
}

Obstacle stages_obstacle(const ModelSpec& model, const Setting& setting, int stages,
                         std::int64_t microbatches) {
  if (stages * setting.chunks > model.layer_count()) return "more stages than layers";
  // No part has more layers than the model less one for every other part.
  if (setting.recompute.method == RecomputeMethod::block &&
      setting.recompute.layers > model.layer_count() - stages * setting.chunks + 1) {
    return "more layers to recompute than a part can have";
  }
  if (setting.fully_sharded && stages > 1) return "use_megatron_fsdp with pipeline stages";
  if (splits_backward(setting.schedule) && stages < 2) return "zero bubble with one pipeline stage";
  if (setting.schedule != ScheduleKind::interleaved) return std::nullopt;
  if (stages < 2) return "interleaved with one pipeline stage";
  if (microbatches % stages != 0) return "interleaved: the microbatches do not divide over the stages";
  return std::nullopt;
}

Obstacle order_obstacle(const Setting& setting, int data, int stages) {
  if (setting.order == RankOrder::cp_dp_pp || (data > 1 && stages > 1)) return std::nullopt;
  return "use_tp_pp_dp_mapping with one replica or one pipeline stage";
}

Obstacle shape_obstacle(const ModelSpec& model, const ClusterSpec& cluster, const Allocation& allocation,
                        const Setting& setting, std::int64_t global_batch, std::int64_t sequence) {
  const Ways ways = allocation.ways();
  if (auto obstacle = ways_obstacle(model, ways, sequence)) return obstacle;
  if (auto obstacle = setting_obstacle(model, ways, setting, global_batch, sequence)) return obstacle;
  for (const auto& [group, stages] : allocation.runs) {
    if (auto obstacle = group_obstacle(cluster.groups[static_cast<std::size_t>(group)], ways.of_group(group)))
      return obstacle;
  }
  if (auto obstacle = order_obstacle(setting, allocation.data, allocation.stages())) return obstacle;
  return stages_obstacle(model, setting, allocation.stages(),
                         global_batch / (setting.micro_batch * ways.data));
}

}  // namespace orrery
