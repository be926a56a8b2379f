#include "strategies/enumerate.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "platforms/errors.hpp"
#include "strategies/schedule.hpp"

namespace orrery {
namespace {

std::vector<int> divisors(std::int64_t number, int most) {
  std::vector<int> found;
  for (int i = 1; i <= most && i <= number; ++i) {
    if (number % i == 0) found.push_back(i);
  }
  return found;
}

// Far more than anybody waits for; each is looked at with every setting.
constexpr std::size_t kMostAllocations = 4'000'000;

int gpus_of(const NodeGroup& group) {
  return group.count.maximum * group.gpus_per_node;
}

// Calls visit(stages of each group) for every way to give 1 to `most` stages to the groups, at most caps[g]
// each.
void for_each_stage_split(const std::vector<int>& caps, int most, SearchMode mode,
                          const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> stages(caps.size(), 0);
  const std::function<void(std::size_t, int)> fill = [&](std::size_t group, int used) {
    if (group == caps.size()) {
      const auto groups = std::count_if(stages.begin(), stages.end(), [](int count) { return count > 0; });
      if (used > 0 && (mode != SearchMode::homogeneous || groups == 1)) visit(stages);
      return;
    }
    for (stages[group] = 0; stages[group] <= std::min(caps[group], most - used); ++stages[group]) {
      fill(group + 1, used + stages[group]);
    }
    stages[group] = 0;
  };
  fill(0, 0);
}

// One allocation for every order of the groups that have stages.
void append_orders(const ClusterSpec& cluster, Allocation allocation, const std::vector<int>& stages,
                   std::vector<Allocation>& into) {
  std::vector<int> order;
  const int unit = allocation.tensor * allocation.context * allocation.data;
  for (std::size_t group = 0; group < stages.size(); ++group) {
    const NodeGroup& nodes = cluster.groups[group];
    const int gpus = stages[group] * unit;
    const int used = (gpus + nodes.gpus_per_node - 1) / nodes.gpus_per_node;
    allocation.nodes.push_back(std::max(used, nodes.count.minimum));
    allocation.full_nodes = allocation.full_nodes && gpus % nodes.gpus_per_node == 0;
    if (stages[group] > 0) order.push_back(static_cast<int>(group));
  }
  do {
    allocation.runs.clear();
    for (const int group : order)
      allocation.runs.emplace_back(group, stages[static_cast<std::size_t>(group)]);
    into.push_back(allocation);
    if (into.size() > kMostAllocations) {
      throw InputError("cluster " + cluster.name, "more than four million ways to give its GPUs to stages",
                       "fewer node groups, lower counts, or a --space with fewer choices or stages");
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

using Obstacle = std::optional<std::string>;

Obstacle node_obstacle(const ClusterSpec& cluster, const Allocation& allocation) {
  const int lanes = allocation.tensor * allocation.context;
  for (const auto& [group, stages] : allocation.runs) {
    const int per_node = cluster.groups[static_cast<std::size_t>(group)].gpus_per_node;
    if (allocation.tensor > per_node) return "a tensor group larger than a node";
    if (per_node % lanes != 0 && lanes % per_node != 0) return "a stage does not fill nodes evenly";
  }
  return std::nullopt;
}

Obstacle tensor_obstacle(const LayerShape& shape, int tensor) {
  if (shape.heads % tensor != 0) return "heads do not divide";
  // With fewer key-value heads than ways, each is held by several ranks.
  if (shape.kv_heads % tensor != 0 && tensor % shape.kv_heads != 0) return "key-value heads do not divide";
  if (shape.ffn % tensor != 0 || shape.shared_ffn % tensor != 0) return "width does not divide";
  return std::nullopt;
}

// Two blocks for each context rank, so that causal work is equal; a share for each tensor rank.
bool sequence_divides(std::int64_t sequence, const Allocation& allocation, bool sequence_parallel) {
  if (allocation.context > 1 && sequence % (2 * std::int64_t{allocation.context}) != 0) return false;
  return !sequence_parallel || sequence / allocation.context % allocation.tensor == 0;
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

Obstacle microbatch_obstacle(const Setting& setting, int stages, std::int64_t microbatches) {
  if (microbatches > kMostPlanMicrobatches) return "too many microbatches";
  if (splits_backward(setting.schedule) && stages < 2) return "zero bubble with one pipeline stage";
  if (setting.schedule != ScheduleKind::interleaved) return std::nullopt;
  if (stages < 2) return "interleaved with one pipeline stage";
  if (microbatches % stages != 0) return "interleaved: the microbatches do not divide over the stages";
  return std::nullopt;
}

}  // namespace

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

std::vector<Allocation> allocations(const ClusterSpec& cluster, const SearchSpace& space, SearchMode mode,
                                    std::int64_t global_batch) {
  int most_gpus = 0;
  for (const NodeGroup& group : cluster.groups) most_gpus = std::max(most_gpus, gpus_of(group));
  const std::vector<int> data_ways = divisors(global_batch, most_gpus);
  std::vector<Allocation> all;
  const auto add = [&](int tensor, int context, int expert, int data) {
    std::vector<int> caps;
    const std::int64_t unit =
        std::int64_t{tensor} * context * data;  // GPUs of a stage; may be more than 32 bits count
    for (const NodeGroup& group : cluster.groups) caps.push_back(static_cast<int>(gpus_of(group) / unit));
    const Allocation allocation{tensor, context, expert, data, {}, {}, true};
    for_each_stage_split(caps, space.most_stages, mode, [&](const std::vector<int>& stages) {
      append_orders(cluster, allocation, stages, all);
    });
  };
  for (const int tensor : space.tensor) {
    for (const int context : space.context) {
      for (const int expert : space.expert) {
        for (const int data : data_ways) add(tensor, context, expert, data);
      }
    }
  }
  return all;
}

std::vector<Setting> settings(const SearchSpace& space) {
  std::vector<Setting> all;
  const auto add_overlaps = [&](Setting setting) {
    for (const bool gradients : space.overlap_grad_reduce) {
      for (const bool parameters : space.overlap_param_gather) {
        setting.overlap_grad_reduce = gradients;
        setting.overlap_param_gather = parameters;
        all.push_back(setting);
      }
    }
  };
  const auto add_switches = [&](Setting setting) {
    for (const bool sequence_parallel : space.sequence_parallel) {
      for (const bool distributed : space.distributed_optimizer) {
        setting.sequence_parallel = sequence_parallel;
        setting.distributed_optimizer = distributed;
        add_overlaps(setting);
      }
    }
  };
  const auto add_schedule = [&](std::int64_t micro_batch, int chunks, ScheduleKind schedule) {
    for (const Recompute& recompute : space.recompute) {
      add_switches({micro_batch, chunks, schedule, recompute, false, false});
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

std::optional<std::string> shape_obstacle(const ModelSpec& model, const ClusterSpec& cluster,
                                          const Allocation& allocation, const Setting& setting,
                                          std::int64_t global_batch, std::int64_t sequence) {
  if (!allocation.full_nodes) return "GPUs of a node would be idle";
  if (global_batch % (setting.micro_batch * allocation.data) != 0) return "the batch does not divide";
  if (allocation.stages() * setting.chunks > model.layer_count()) return "more stages than layers";
  if (setting.overlap_param_gather && !(setting.distributed_optimizer && setting.overlap_grad_reduce)) {
    return "overlap_param_gather without overlap_grad_reduce and the distributed optimizer";
  }
  if (setting.sequence_parallel && allocation.tensor == 1)
    return "sequence parallelism without tensor parallelism";
  if (model.learned_positions > 0 && sequence > model.learned_positions) {
    return "the sequence is longer than the model's position table";
  }
  if (allocation.data % allocation.expert != 0) return "expert ways do not divide the data ways";
  if (auto obstacle = node_obstacle(cluster, allocation)) return obstacle;
  for (const LayerShape& shape : model.shapes) {
    if (auto obstacle = tensor_obstacle(shape, allocation.tensor)) return obstacle;
    const std::int64_t tokens = shape.sequence > 0 ? shape.sequence : sequence;
    if (!sequence_divides(tokens, allocation, setting.sequence_parallel))
      return "the sequence does not divide";
  }
  if (!experts_divide(model, allocation.expert)) return "experts do not divide";
  return microbatch_obstacle(setting, allocation.stages(),
                             global_batch / (setting.micro_batch * allocation.data));
}

ParallelStrategy strategy_of(const Allocation& allocation, const Setting& setting, std::int64_t global_batch,
                             std::int64_t sequence, DataType type) {
  ParallelStrategy strategy;
  strategy.pipeline = allocation.stages();
  strategy.data = allocation.data;
  strategy.context = allocation.context;
  strategy.expert = allocation.expert;
  strategy.chunks = setting.chunks;
  strategy.micro_batch = setting.micro_batch;
  strategy.global_batch = global_batch;
  strategy.sequence = sequence;
  strategy.type = type;
  strategy.schedule = setting.schedule;
  strategy.transfers = default_transfers(setting.schedule);
  strategy.sequence_parallel = setting.sequence_parallel;
  strategy.distributed_optimizer = setting.distributed_optimizer;
  strategy.overlap_grad_reduce = setting.overlap_grad_reduce;
  strategy.overlap_param_gather = setting.overlap_param_gather;
  strategy.recompute = setting.recompute;
  for (const auto& [group, stages] : allocation.runs) {
    strategy.stages.insert(strategy.stages.end(), static_cast<std::size_t>(stages),
                           {group, allocation.tensor});
  }
  strategy.nodes = allocation.nodes;
  return strategy;
}

}  // namespace orrery
