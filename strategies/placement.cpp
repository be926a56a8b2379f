#include "strategies/placement.hpp"

#include <algorithm>
#include <numeric>

#include "platforms/errors.hpp"

namespace orrery {

namespace {

int group_number(const ParallelStrategy& strategy, int stage, int kind) {
  const auto at = static_cast<std::size_t>(stage);
  return strategy.replicas.empty() ? strategy.stages[at].group
                                   : strategy.replicas[static_cast<std::size_t>(kind)].groups[at];
}

enum class Axis { context, data, pipeline };

std::array<Axis, 3> axes_of(RankOrder order) {
  switch (order) {
    case RankOrder::cp_dp_pp:
      return {Axis::context, Axis::data, Axis::pipeline};
    case RankOrder::cp_pp_dp:
      return {Axis::context, Axis::pipeline, Axis::data};
    case RankOrder::dp_cp_pp:
      return {Axis::data, Axis::context, Axis::pipeline};
    case RankOrder::dp_pp_cp:
      return {Axis::data, Axis::pipeline, Axis::context};
    case RankOrder::pp_cp_dp:
      return {Axis::pipeline, Axis::context, Axis::data};
    case RankOrder::pp_dp_cp:
      return {Axis::pipeline, Axis::data, Axis::context};
  }
  return {};
}

int ways(const ParallelStrategy& strategy, Axis axis) {
  switch (axis) {
    case Axis::context:
      return strategy.context;
    case Axis::data:
      return strategy.data;
    case Axis::pipeline:
      return strategy.pipeline;
  }
  return 1;
}

int& index_on(TensorGroup& group, Axis axis) {
  switch (axis) {
    case Axis::context:
      return group.context;
    case Axis::data:
      return group.replica;
    case Axis::pipeline:
      break;
  }
  return group.stage;
}

int gpu_on_host(const Topology& topology, const std::vector<int>& first_of_node,
                const std::vector<int>& hosts, int gpu) {
  if (hosts.empty()) return gpu;
  const Device& device = topology.device(gpu);
  return first_of_node[static_cast<std::size_t>(hosts[static_cast<std::size_t>(device.node)])] + device.local;
}

std::vector<int> first_gpus(const Topology& topology) {
  std::vector<int> first;
  for (int gpu = 0; gpu < topology.gpus(); ++gpu) {
    if (topology.device(gpu).local == 0) first.push_back(gpu);
  }
  return first;
}

}  // namespace

std::vector<TensorGroup> tensor_groups(const ParallelStrategy& strategy) {
  const auto [fast, middle, slow] = axes_of(strategy.order);
  std::vector<TensorGroup> groups;
  TensorGroup at;
  for (index_on(at, slow) = 0; index_on(at, slow) < ways(strategy, slow); ++index_on(at, slow)) {
    for (index_on(at, middle) = 0; index_on(at, middle) < ways(strategy, middle); ++index_on(at, middle)) {
      for (index_on(at, fast) = 0; index_on(at, fast) < ways(strategy, fast); ++index_on(at, fast)) {
        groups.push_back(at);
      }
    }
  }
  return groups;
}

std::vector<std::vector<int>> place(const ParallelStrategy& strategy, const Topology& topology) {
  std::vector<std::vector<int>> gpus(static_cast<std::size_t>(strategy.data * strategy.pipeline));
  std::vector<int> next;  // free GPU of each group
  const int groups = static_cast<int>(topology.cluster().groups.size());
  for (int group = 0; group < groups; ++group) next.push_back(topology.first_gpu(group));
  const std::vector<int> kinds = strategy.kind_of_replica();
  const std::vector<int> first_of_node = strategy.hosts.empty() ? std::vector<int>() : first_gpus(topology);
  for (const TensorGroup& at : tensor_groups(strategy)) {
    int& gpu = next[static_cast<std::size_t>(
        group_number(strategy, at.stage, kinds[static_cast<std::size_t>(at.replica)]))];
    std::vector<int>& lanes = gpus[static_cast<std::size_t>(at.replica * strategy.pipeline + at.stage)];
    const int tensor = strategy.tensor(at.stage);
    lanes.resize(static_cast<std::size_t>(strategy.gpus_of_stage(at.stage)));
    for (int lane = 0; lane < tensor; ++lane) {
      lanes[static_cast<std::size_t>(at.context * tensor + lane)] =
          gpu < topology.gpus() ? gpu_on_host(topology, first_of_node, strategy.hosts, gpu) : gpu;
      ++gpu;
    }
  }
  for (int group = 0; group < groups; ++group) {
    const int end = group + 1 < groups ? topology.first_gpu(group + 1) : topology.gpus();
    ORRERY_ENSURE(next[static_cast<std::size_t>(group)] <= end);
  }
  return gpus;
}

std::optional<std::string> hosts_obstacle(const ParallelStrategy& strategy) {
  if (strategy.hosts.empty()) return std::nullopt;
  std::vector<int> group_of_node;
  for (std::size_t group = 0; group < strategy.nodes.size(); ++group) {
    group_of_node.insert(group_of_node.end(), static_cast<std::size_t>(strategy.nodes[group]),
                         static_cast<int>(group));
  }
  if (strategy.hosts.size() != group_of_node.size())
    return "hosts has " + std::to_string(strategy.hosts.size()) + " entries; the plan's nodes are " +
           std::to_string(group_of_node.size());
  std::vector<bool> seen(group_of_node.size(), false);
  for (std::size_t node = 0; node < strategy.hosts.size(); ++node) {
    const int host = strategy.hosts[node];
    const std::string entry = "host " + std::to_string(host) + " in place of node " + std::to_string(node);
    if (host < 0 || static_cast<std::size_t>(host) >= seen.size())
      return entry + " is not among the " + std::to_string(seen.size()) + " nodes of the plan";
    if (seen[static_cast<std::size_t>(host)]) return entry + " stands for another node already";
    if (group_of_node[static_cast<std::size_t>(host)] != group_of_node[node])
      return entry + " is of another node group";
    seen[static_cast<std::size_t>(host)] = true;
  }
  return std::nullopt;
}

int ring_lanes(const ParallelStrategy& strategy, int stage, int apart, int gpus_per_node) {
  if (strategy.order == RankOrder::cp_dp_pp) return strategy.tensor(stage) * apart;
  int stages = 0;  // on the same group as this one
  const int group = strategy.stages[static_cast<std::size_t>(stage)].group;
  for (const StageDevices& other : strategy.stages) stages += other.group == group ? 1 : 0;
  const int contexts_apart = std::gcd(apart, strategy.context), replicas_apart = apart / contexts_apart;
  int stride = strategy.tensor(stage);  // GPUs from one index on an axis to the next
  int members = 1;
  for (const Axis axis : axes_of(strategy.order)) {
    const int size = axis == Axis::pipeline ? stages : ways(strategy, axis);
    const int of_axis = axis == Axis::data ? replicas_apart : axis == Axis::context ? contexts_apart : 1;
    const int step = stride * of_axis, count = size / of_axis;
    if (axis != Axis::pipeline) members *= std::max(1, std::min(count, gpus_per_node / step));
    stride *= size;
  }
  return std::max(1, gpus_per_node / members);
}

std::vector<std::int64_t> gpus_in_use(const ParallelStrategy& strategy, const ClusterSpec& cluster) {
  std::vector<std::int64_t> gpus(cluster.groups.size(), 0);
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    for (int stage = 0; stage < strategy.pipeline; ++stage) {
      gpus[static_cast<std::size_t>(group_number(strategy, stage, kind))] +=
          std::int64_t{strategy.tensor(stage)} * strategy.context * strategy.replicas_of_kind(kind);
    }
  }
  return gpus;
}

std::vector<int> nodes_in_use(const ParallelStrategy& strategy, const ClusterSpec& cluster) {
  std::vector<int> nodes;
  const std::vector<std::int64_t> gpus = gpus_in_use(strategy, cluster);
  for (std::size_t group = 0; group < gpus.size(); ++group) {
    const int each = cluster.groups[group].gpus_per_node;
    nodes.push_back(static_cast<int>((gpus[group] + each - 1) / each));
  }
  return nodes;
}

const NodeGroup& group_of_stage(const ClusterSpec& cluster, const ParallelStrategy& strategy, int stage) {
  const int group = strategy.stages[static_cast<std::size_t>(stage)].group;
  return cluster.groups[static_cast<std::size_t>(group)];
}

std::vector<const NodeGroup*> groups_of_stages(const ClusterSpec& cluster, const ParallelStrategy& strategy) {
  std::vector<const NodeGroup*> groups;
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    for (int stage = 0; stage < strategy.pipeline; ++stage)
      groups.push_back(&group_of_stage(cluster, alike, stage));
  }
  return groups;
}

}  // namespace orrery
