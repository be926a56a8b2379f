#include "strategies/enumerate.hpp"

#include <algorithm>
#include <numeric>

#include "strategies/schedule.hpp"

namespace orrery {
namespace {

// Whether every other region lies as near to the one as to the other.
bool are_alike(const ClusterSpec& cluster, const std::string& a, const std::string& b) {
  if (a == b) return true;
  const std::vector<std::string> regions = regions_of(cluster.groups);
  return std::all_of(regions.begin(), regions.end(), [&](const std::string& other) {
    if (other == a || other == b) return true;
    const RegionLink* to_a = link_between(cluster.fabric.regions, a, other);
    const RegionLink* to_b = link_between(cluster.fabric.regions, b, other);
    if (to_a == nullptr || to_b == nullptr) return to_a == to_b;
    return to_a->link == to_b->link && to_a->price == to_b->price;
  });
}

bool are_alike(const ClusterSpec& cluster, const NodeGroup& a, const NodeGroup& b) {
  if (!are_alike(cluster, a.region, b.region)) return false;
  const auto alone_in = [&](const std::string& region) {
    return std::count_if(cluster.groups.begin(), cluster.groups.end(),
                         [&](const NodeGroup& group) { return group.region == region; }) == 1;
  };
  if (a.region != b.region && !(alone_in(a.region) && alone_in(b.region))) return false;
  NodeGroup renamed = a;
  renamed.name = b.name;
  renamed.region = b.region;
  renamed.price_source = b.price_source;
  return renamed == b;
}

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

std::vector<int> nodes_in_use(const ClusterSpec& cluster, const Ways& ways, const StageCounts& stages) {
  std::vector<int> nodes;
  for (std::size_t group = 0; group < stages.size(); ++group) {
    const int each = cluster.groups[group].gpus_per_node;
    nodes.push_back(
        static_cast<int>((stages[group] * ways.gpus_of_stage(static_cast<int>(group)) + each - 1) / each));
  }
  return nodes;
}

std::vector<int> paid_nodes(const ClusterSpec& cluster, std::vector<int> nodes) {
  for (std::size_t group = 0; group < nodes.size(); ++group)
    nodes[group] = std::max(nodes[group], cluster.groups[group].count.minimum);
  return nodes;
}

std::vector<int> groups_alike(const ClusterSpec& cluster) {
  std::vector<int> alike(cluster.groups.size(), -1);
  if (cluster.network || !cluster.links.empty() || cluster.fabric.nodes_per_leaf > 0) return alike;
  for (std::size_t group = 0; group < alike.size(); ++group) {
    for (std::size_t before = 0; before < group; ++before) {
      if (are_alike(cluster, cluster.groups[before], cluster.groups[group]))
        alike[group] = static_cast<int>(before);
    }
  }
  return alike;
}

std::vector<Allocation> orders(const ClusterSpec& cluster, const std::vector<int>& alike, const Ways& ways,
                               const StageCounts& stages) {
  std::vector<int> order;
  for (std::size_t group = 0; group < stages.size(); ++group) {
    if (stages[group] > 0) order.push_back(static_cast<int>(group));
  }
  const auto is_mirrored = [&](std::vector<int>::iterator at) {
    const int before = alike[static_cast<std::size_t>(*at)];
    return before >= 0 && std::find(order.begin(), at, before) == at;
  };
  std::vector<Allocation> all;
  const std::vector<int> nodes = paid_nodes(cluster, nodes_in_use(cluster, ways, stages));
  do {
    bool first = true;
    for (auto at = order.begin(); first && at != order.end(); ++at) first = !is_mirrored(at);
    if (!first) continue;
    all.push_back({ways.tensor, ways.context, ways.expert, ways.data, {}, nodes, ways.tensors});
    for (const int group : order) {
      all.back().runs.emplace_back(group, stages[static_cast<std::size_t>(group)]);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return all;
}

std::size_t order_count(const std::vector<int>& alike, const StageCounts& stages) {
  std::size_t count = 1, groups = 0;
  std::vector<std::size_t> chain(stages.size(), 0);  // of a group and those before it that are alike
  for (std::size_t group = 0; group < stages.size(); ++group) {
    if (stages[group] == 0) continue;
    const int before = alike[group];
    if (before >= 0 && stages[static_cast<std::size_t>(before)] == 0) return 0;
    chain[group] = 1 + (before < 0 ? 0 : chain[static_cast<std::size_t>(before)]);
    count = count * ++groups / chain[group];
  }
  return count;
}

namespace {

// Each microbatch with each schedule and its chunks.
std::vector<Setting> scheduled_settings(const SearchSpace& space) {
  std::vector<Setting> all;
  const auto add = [&](std::int64_t micro_batch, int chunks, ScheduleKind schedule) {
    all.push_back({.micro_batch = micro_batch, .chunks = chunks, .schedule = schedule});
  };
  const auto is_zb_v = [](ScheduleKind schedule) { return schedule == ScheduleKind::zb_v; };
  const bool has_zb_v = std::any_of(space.schedules.begin(), space.schedules.end(), is_zb_v);
  for (const std::int64_t micro_batch : space.micro_batch) {
    for (const int chunks : space.chunks) {
      if (chunks > 1) {
        add(micro_batch, chunks, ScheduleKind::interleaved);
        continue;
      }
      for (const ScheduleKind schedule : space.schedules) {
        if (!is_zb_v(schedule)) add(micro_batch, 1, schedule);
      }
    }
    if (has_zb_v) add(micro_batch, 2, ScheduleKind::zb_v);
  }
  return all;
}

}  // namespace

std::vector<Setting> settings(const SearchSpace& space) {
  std::vector<Setting> all = scheduled_settings(space);
  // Each setting that has the choice with every one of the values, in their order; the others as they are.
  const auto vary = [&](auto member, const auto& values, bool (*has_choice)(const Setting&)) {
    std::vector<Setting> varied;
    for (Setting& setting : all) {
      if (!has_choice(setting)) {
        varied.push_back(setting);
        continue;
      }
      for (const auto& value : values) {
        setting.*member = value;
        varied.push_back(setting);
      }
    }
    all = std::move(varied);
  };
  const auto always = [](const Setting&) { return true; };
  const auto reduces_once = [](const Setting& setting) {
    return !setting.fully_sharded;
  };  // else in every pass
  const auto interleaves = [](const Setting& setting) {
    return setting.schedule == ScheduleKind::interleaved;
  };
  vary(&Setting::recompute, space.recompute, always);
  vary(&Setting::sequence_parallel, space.sequence_parallel, always);
  vary(&Setting::tensor_overlap, space.tensor_overlap, always);
  vary(&Setting::distributed_optimizer, space.distributed_optimizer, always);
  vary(&Setting::optimizer_instances, space.optimizer_instances, always);
  vary(&Setting::fully_sharded, space.fully_sharded, always);
  vary(&Setting::overlap_grad_reduce, space.overlap_grad_reduce, reduces_once);
  vary(&Setting::overlap_param_gather, space.overlap_param_gather, reduces_once);
  vary(&Setting::order, space.orders, always);
  vary(&Setting::flash_attention, space.flash_attention, always);
  vary(&Setting::overlap_p2p, space.overlap_p2p, interleaves);
  vary(&Setting::optimizer_offload, space.optimizer_offload, always);
  vary(&Setting::expert_tensor, space.expert_tensor, always);
  return all;
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
