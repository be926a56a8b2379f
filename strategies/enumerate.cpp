#include "strategies/enumerate.hpp"

#include <algorithm>
#include <numeric>

#include "platforms/errors.hpp"
#include "strategies/schedule.hpp"

namespace orrery {
namespace {

std::vector<int> divisors(std::int64_t number, std::int64_t most) {
  std::vector<int> found;
  for (std::int64_t i = 1; i <= most && i <= number; ++i) {
    if (number % i == 0) found.push_back(static_cast<int>(i));
  }
  return found;
}

// Stages of a group come in steps that fill its nodes.
int full_node_step(const NodeGroup& group, std::int64_t gpus_of_stage) {
  return static_cast<int>(group.gpus_per_node / std::gcd(gpus_of_stage, std::int64_t{group.gpus_per_node}));
}

Obstacle tensor_obstacle(const LayerShape& shape, int tensor) {
  if (shape.heads % tensor != 0) return "heads do not divide";
  // With fewer key-value heads than ways, each is held by several ranks.
  if (shape.kv_heads % tensor != 0 && (shape.kv_heads == 0 || tensor % shape.kv_heads != 0))
    return "key-value heads do not divide";
  if (shape.ffn % tensor != 0 || shape.shared_ffn % tensor != 0) return "width does not divide";
  if (shape.state_space.heads % tensor != 0 || shape.state_space.groups % tensor != 0)
    return "state space does not divide";
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

// Every choice of unequal tensor ways for the groups.
std::vector<std::vector<int>> unequal_tensors(std::size_t groups, const std::vector<int>& choices) {
  std::vector<std::vector<int>> all{{}};
  for (std::size_t group = 0; group < groups; ++group) {
    std::vector<std::vector<int>> longer;
    for (const std::vector<int>& begun : all) {
      for (const int tensor : choices) {
        longer.push_back(begun);
        longer.back().push_back(tensor);
      }
    }
    all = std::move(longer);
  }
  const auto equal = [](const std::vector<int>& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [&](int tensor) { return tensor == tensors.front(); });
  };
  all.erase(std::remove_if(all.begin(), all.end(), equal), all.end());
  return all;
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

}  // namespace

bool tells_groups_apart(const ClusterSpec& cluster) {
  constexpr std::size_t kMostGroups = 4;
  constexpr std::int64_t kMostGpus = 128, kMostOfTwo = 256;
  std::int64_t gpus = 0;
  for (const NodeGroup& group : cluster.groups) gpus += largest_gpus(group);
  return cluster.groups.size() <= kMostGroups &&
         gpus <= (cluster.groups.size() <= 2 ? kMostOfTwo : kMostGpus);
}

std::string_view to_text(SearchMode mode) {
  switch (mode) {
    case SearchMode::homogeneous:
      return "homogeneous";
    case SearchMode::heterogeneous:
      return "heterogeneous";
    case SearchMode::cost:
      return "cost";
  }
  return "";
}

int Allocation::stages() const {
  return std::accumulate(runs.begin(), runs.end(), 0,
                         [](int sum, const auto& run) { return sum + run.second; });
}

std::vector<Ways> all_ways(const ClusterSpec& cluster, const SearchSpace& space, SearchMode mode,
                           std::int64_t global_batch) {
  std::int64_t most_gpus = 0;
  for (const NodeGroup& group : cluster.groups) most_gpus = std::max(most_gpus, largest_gpus(group));
  most_gpus = std::min(most_gpus, space.most_gpus);
  std::vector<Ways> all;
  const std::vector<int> data_ways = divisors(global_batch, most_gpus);
  const auto add = [&](int tensor, const std::vector<int>& tensors) {
    for (const int context : space.context) {
      for (const int expert : space.expert) {
        for (const int data : data_ways) {
          if (std::int64_t{tensor} * context * data > most_gpus) break;
          all.push_back({tensor, context, expert, data, tensors});
        }
      }
    }
  };
  for (const int tensor : space.tensor) add(tensor, {});
  if (!space.tensor_by_group || mode == SearchMode::homogeneous) return all;
  if (!tells_groups_apart(cluster)) return all;
  for (const std::vector<int>& tensors : unequal_tensors(cluster.groups.size(), space.tensor)) {
    add(*std::max_element(tensors.begin(), tensors.end()), tensors);
  }
  return all;
}

void for_each_stage_counts(const ClusterSpec& cluster, const SearchSpace& space, SearchMode mode,
                           const Ways& ways, const std::function<void(const StageCounts&)>& visit) {
  const StageGrid grid = stage_grid(cluster, space, ways);
  StageCounts stages(grid.caps.size(), 0);
  const std::function<void(std::size_t, int, std::int64_t)> fill = [&](std::size_t group, int used,
                                                                       std::int64_t gpus) {
    if (group == grid.caps.size()) {
      if (used > 0 && space.allows_stages(used, used) && at_home(ways, stages)) visit(stages);
      return;
    }
    const bool alone = mode == SearchMode::homogeneous && used > 0;
    const std::int64_t room = (space.most_gpus - gpus) / grid.gpus[group];
    const int cap = alone ? 0
                          : static_cast<int>(std::min<std::int64_t>(
                                std::min(grid.caps[group], space.most_stages - used), room));
    for (stages[group] = 0; stages[group] <= cap; stages[group] += grid.steps[group]) {
      fill(group + 1, used + stages[group], gpus + stages[group] * grid.gpus[group]);
    }
    stages[group] = 0;
  };
  fill(0, 0, 0);
}

bool at_home(const Ways& ways, const StageCounts& stages) {
  if (ways.tensors.empty()) return true;
  int first = 0, unused = 0;  // tensor ways; 0: none yet
  bool differ = false;
  for (std::size_t group = 0; group < stages.size(); ++group) {
    const int tensor = ways.tensors[group];
    if (stages[group] == 0) {
      if (unused != 0 && unused != tensor) return false;
      unused = tensor;
      continue;
    }
    if (first == 0) first = tensor;
    differ = differ || tensor != first;
  }
  return differ && (unused == 0 || unused == first);
}

StageGrid stage_grid(const ClusterSpec& cluster, const SearchSpace& space, const Ways& ways) {
  StageGrid grid;
  for (int group = 0; group < static_cast<int>(cluster.groups.size()); ++group) {
    const NodeGroup& nodes = cluster.groups[static_cast<std::size_t>(group)];
    const std::int64_t gpus = ways.gpus_of_stage(group);
    grid.gpus.push_back(gpus);
    grid.steps.push_back(full_node_step(nodes, gpus));
    grid.caps.push_back(static_cast<int>(
        std::min<std::int64_t>(space.most_stages, std::min(largest_gpus(nodes), space.most_gpus) / gpus)));
  }
  return grid;
}

std::vector<int> nodes_of(const ClusterSpec& cluster, const Ways& ways, const StageCounts& stages) {
  std::vector<int> nodes;
  for (std::size_t group = 0; group < stages.size(); ++group) {
    const NodeGroup& spec = cluster.groups[group];
    const std::int64_t used =
        (stages[group] * ways.gpus_of_stage(static_cast<int>(group)) + spec.gpus_per_node - 1) /
        spec.gpus_per_node;
    nodes.push_back(std::max(static_cast<int>(used), spec.count.minimum));
  }
  return nodes;
}

std::vector<Allocation> orders(const ClusterSpec& cluster, const Ways& ways, const StageCounts& stages) {
  std::vector<int> order;
  for (std::size_t group = 0; group < stages.size(); ++group) {
    if (stages[group] > 0) order.push_back(static_cast<int>(group));
  }
  std::vector<Allocation> all;
  const std::vector<int> nodes = nodes_of(cluster, ways, stages);
  do {
    all.push_back({ways.tensor, ways.context, ways.expert, ways.data, {}, nodes, ways.tensors});
    for (const int group : order) {
      all.back().runs.emplace_back(group, stages[static_cast<std::size_t>(group)]);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return all;
}

std::size_t order_count(const StageCounts& stages) {
  std::size_t count = 1, groups = 0;
  for (const int stages_of_group : stages) {
    if (stages_of_group > 0) count *= ++groups;
  }
  return count;
}

std::vector<Setting> settings(const SearchSpace& space) {
  std::vector<Setting> all;
  const auto add_hosts = [&](Setting setting) {
    const bool interleaved = setting.schedule == ScheduleKind::interleaved;
    for (const bool transfers : interleaved ? space.overlap_p2p : std::vector<bool>{true}) {
      setting.overlap_p2p = transfers;
      for (const double share : space.optimizer_offload) {
        setting.optimizer_offload = share;
        for (const std::optional<int> experts : space.expert_tensor) {
          setting.expert_tensor = experts;
          all.push_back(setting);
        }
      }
    }
  };
  const std::vector<std::optional<bool>> as_it_is{std::nullopt};  // fully sharded: in every pass
  const auto add_overlaps = [&](Setting setting) {
    const bool sharded = setting.fully_sharded;
    for (const std::optional<bool> gradients : sharded ? as_it_is : space.overlap_grad_reduce) {
      for (const std::optional<bool> parameters : sharded ? as_it_is : space.overlap_param_gather) {
        setting.overlap_grad_reduce = gradients;
        setting.overlap_param_gather = parameters;
        for (const RankOrder order : space.orders) {
          setting.order = order;
          for (const bool flash : space.flash_attention) {
            setting.flash_attention = flash;
            add_hosts(setting);
          }
        }
      }
    }
  };
  const auto add_switches = [&](Setting setting) {
    for (const bool sequence_parallel : space.sequence_parallel) {
      setting.sequence_parallel = sequence_parallel;
      for (const std::optional<bool> overlap : space.tensor_overlap) {
        setting.tensor_overlap = overlap;
        for (const bool distributed : space.distributed_optimizer) {
          setting.distributed_optimizer = distributed;
          for (const int instances : space.optimizer_instances) {
            setting.optimizer_instances = instances;
            for (const bool sharded : space.fully_sharded) {
              setting.fully_sharded = sharded;
              add_overlaps(setting);
            }
          }
        }
      }
    }
  };
  const auto add_schedule = [&](std::int64_t micro_batch, int chunks, ScheduleKind schedule) {
    Setting setting;
    setting.micro_batch = micro_batch;
    setting.chunks = chunks;
    setting.schedule = schedule;
    for (const Recompute& recompute : space.recompute) {
      setting.recompute = recompute;
      add_switches(setting);
    }
  };
  for (const std::int64_t micro_batch : space.micro_batch) {
    for (const int chunks : space.chunks) {
      if (chunks > 1) {
        add_schedule(micro_batch, chunks, ScheduleKind::interleaved);
        continue;
      }
      for (const ScheduleKind schedule : space.schedules) {
        if (schedule != ScheduleKind::zb_v) add_schedule(micro_batch, 1, schedule);
      }
    }
    if (std::count(space.schedules.begin(), space.schedules.end(), ScheduleKind::zb_v) > 0)
      add_schedule(micro_batch, 2, ScheduleKind::zb_v);
  }
  return all;
}

Obstacle ways_obstacle(const ModelSpec& model, const Ways& ways, std::int64_t sequence) {
  if (model.learned_positions > 0 && sequence > model.learned_positions) {
    return "the sequence is longer than the model's position table";
  }
  if (!experts_spread_evenly(ways.expert, ways.context, ways.data))
    return "expert ways do not divide the context and data ways";
  for (const LayerShape& shape : model.shapes) {
    for (const int tensor : tensor_choices(ways)) {
      if (auto obstacle = tensor_obstacle(shape, tensor)) return obstacle;
    }
  }
  if (!experts_divide(model, ways.expert)) return "experts do not divide";
  return std::nullopt;
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

ParallelStrategy strategy_of(const Allocation& allocation, const Setting& setting, std::int64_t global_batch,
                             std::int64_t sequence, DataType type) {
  ParallelStrategy strategy;
  strategy.pipeline = allocation.stages();
  strategy.data = allocation.data;
  strategy.context = allocation.context;
  strategy.expert = allocation.expert;
  strategy.expert_tensor = setting.expert_tensor;
  strategy.chunks = setting.chunks;
  strategy.micro_batch = setting.micro_batch;
  strategy.global_batch = global_batch;
  strategy.sequence = sequence;
  strategy.type = type;
  strategy.schedule = setting.schedule;
  const bool blocking = setting.schedule == ScheduleKind::interleaved && !setting.overlap_p2p;
  strategy.transfers = blocking ? TransferMode::blocking : default_transfers(setting.schedule);
  strategy.sequence_parallel = setting.sequence_parallel;
  strategy.distributed_optimizer = setting.distributed_optimizer;
  strategy.optimizer_instances = setting.optimizer_instances;
  strategy.fully_sharded = setting.fully_sharded;
  strategy.overlap_param_gather = setting.overlap_param_gather.value_or(false);
  strategy.overlap_grad_reduce = setting.overlap_grad_reduce.value_or(strategy.overlap_param_gather);
  strategy.flash_attention = setting.flash_attention;
  strategy.tensor_overlap = setting.tensor_overlap;
  strategy.optimizer_offload = setting.optimizer_offload;
  strategy.recompute = setting.recompute;
  strategy.order = setting.order;
  for (const auto& [group, stages] : allocation.runs) {
    strategy.stages.insert(strategy.stages.end(), static_cast<std::size_t>(stages),
                           {group, allocation.ways().tensor_of(group)});
  }
  strategy.nodes = allocation.nodes;
  return strategy;
}

std::vector<ParallelStrategy> with_overlaps(const ParallelStrategy& strategy, const Setting& setting) {
  std::vector<ParallelStrategy> all{strategy};
  if (strategy.data * strategy.context == 1 || strategy.fully_sharded) return all;
  const auto add = [&](bool gradients, bool parameters) {
    if (setting.overlap_grad_reduce.value_or(gradients) != gradients ||
        setting.overlap_param_gather.value_or(parameters) != parameters) {
      return;
    }
    all.push_back(strategy);
    all.back().overlap_grad_reduce = gradients;
    all.back().overlap_param_gather = parameters;
    if (all.back() == strategy) all.pop_back();
  };
  add(true, false);
  if (strategy.distributed_optimizer) add(true, true);
  return all;
}

}  // namespace orrery
