#include "strategies/obstacles.hpp"

#include <algorithm>

#include "platforms/errors.hpp"
#include "strategies/misfits.hpp"
#include "strategies/schedule.hpp"
#include "strategies/task_order.hpp"

namespace orrery {
namespace {

// Of every group, each once.
std::vector<int> tensor_choices(const Ways& ways) {
  std::vector<int> choices{ways.tensor};
  for (const int tensor : ways.tensors) {
    if (std::find(choices.begin(), choices.end(), tensor) == choices.end()) choices.push_back(tensor);
  }
  return choices;
}

int other_tensor(const Ways& ways) {
  const auto other = std::find_if(ways.tensors.begin(), ways.tensors.end(),
                                  [&](int tensor) { return tensor != ways.tensor; });
  return other == ways.tensors.end() ? ways.tensor : *other;
}

std::optional<Misfit> sequence_misfit(std::int64_t sequence, const Ways& ways, bool sequence_parallel) {
  if (auto misfit = context_misfit(sequence, ways.context)) return misfit;
  if (!sequence_parallel) return std::nullopt;
  for (const int tensor : tensor_choices(ways)) {
    if (auto misfit = sequence_parallel_misfit(sequence, ways.context, tensor)) return misfit;
  }
  return std::nullopt;
}

std::optional<Misfit> switches_misfit(const Ways& ways, const Switches& switches) {
  if (auto misfit = tensor_overlap_misfit(switches, ways.tensor)) return misfit;
  if (auto misfit = offload_misfit(switches)) return misfit;
  if (auto misfit = expert_tensor_misfit(switches, ways.tensor, other_tensor(ways), ways.expert))
    return misfit;
  const int tensor_of_experts = switches.expert_tensor.value_or(ways.tensor);
  const int sharing = copies_sharing_experts(ways.expert, ways.tensor, tensor_of_experts);
  if (auto misfit = instances_misfit(switches, ways.data * ways.context, sharing)) return misfit;
  return sharding_misfit(switches);
}

}  // namespace

Obstacle ways_obstacle(const ModelSpec& model, const Ways& ways, std::int64_t sequence) {
  if (const auto misfit = positions_misfit(model, sequence)) return misfit->name;
  if (const auto misfit = expert_spread_misfit(ways.expert, ways.context, ways.data)) return misfit->name;
  for (const LayerShape& shape : model.shapes) {
    for (const int tensor : tensor_choices(ways)) {
      if (const auto misfit = tensor_misfit(shape, tensor)) return misfit->name;
      if (const auto misfit = state_space_misfit(shape, tensor, ways.context)) return misfit->name;
    }
  }
  if (const auto misfit = experts_misfit(model, ways.expert)) return misfit->name;
  return std::nullopt;
}

Obstacle setting_obstacle(const ModelSpec& model, const Ways& ways, const Setting& setting,
                          std::int64_t global_batch, std::int64_t sequence) {
  if (const auto misfit = batch_misfit(global_batch, setting.micro_batch, ways.data)) return misfit->name;
  if (const auto misfit =
          gather_overlap_misfit(setting.overlap_param_gather == true,
                                setting.overlap_grad_reduce.value_or(true), setting.distributed_optimizer))
    return misfit->name;
  // Megatron-LM core/parallel_state.py: expert and dense ranks must then have equally many replicas.
  if (setting.order != RankOrder::cp_dp_pp && ways.expert > 1) return "expert ways with use_tp_pp_dp_mapping";
  if (setting.sequence_parallel && ways.tensor == 1) return "sequence parallelism without tensor parallelism";
  if (const auto misfit = switches_misfit(ways, switches_of(setting))) return misfit->name;
  if (setting.fully_sharded && ways.data * ways.context == 1)
    return "use_megatron_fsdp with one copy of the weights";
  if (const auto misfit = module_misfit(model, setting.recompute)) return misfit->name;
  for (const LayerShape& shape : model.shapes) {
    const std::int64_t tokens = shape.sequence > 0 ? shape.sequence : sequence;
    if (const auto misfit = sequence_misfit(tokens, ways, setting.sequence_parallel)) return misfit->name;
  }
  if (const auto misfit = microbatches_misfit(global_batch / (setting.micro_batch * ways.data)))
    return misfit->name;
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
  const auto misfit = interleaved_misfit({.kind = setting.schedule,
                                          .ranks = stages,
                                          .chunks = setting.chunks,
                                          .microbatches = static_cast<int>(microbatches)});
  return misfit ? Obstacle(misfit->name) : std::nullopt;
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
