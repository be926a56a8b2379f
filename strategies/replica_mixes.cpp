#include "strategies/replica_mixes.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "strategies/schedule.hpp"

namespace orrery {
namespace {

constexpr int kMostCounts = 8;
constexpr std::int64_t kFewGpus = 64;

// Replicas of so many GPUs that fill nodes of a group; 0 first.
std::vector<int> replica_counts(const NodeGroup& group, std::int64_t gpus_of_replica) {
  const std::int64_t step =
      group.gpus_per_node / std::gcd(gpus_of_replica, std::int64_t{group.gpus_per_node});
  const std::int64_t most = largest_gpus(group) / gpus_of_replica / step;
  std::vector<int> counts{0};
  const std::int64_t first = most > kMostCounts ? most : 1;
  for (std::int64_t count = first; count <= most; ++count) counts.push_back(static_cast<int>(count * step));
  return counts;
}

std::vector<int> stage_choices(const ClusterSpec& cluster, const SearchSpace& space) {
  if (!space.stages.empty()) return space.stages;
  const bool few = std::all_of(cluster.groups.begin(), cluster.groups.end(),
                               [](const NodeGroup& group) { return largest_gpus(group) <= kFewGpus; });
  std::vector<int> choices;
  for (int stages = 1; stages <= space.most_stages; stages = few ? stages + 1 : stages * 2)
    choices.push_back(stages);
  return choices;
}

// Mixes of one size of replica.
class MixesOfSize {
 public:
  MixesOfSize(const ClusterSpec& cluster, const std::vector<int>& alike, const SearchSpace& space,
              std::int64_t batch, const Ways& ways, int stages)
      : cluster_(cluster), alike_(alike), space_(space), batch_(batch), mix_{ways, stages, {}, {}} {}

  void add_to(std::vector<ReplicaMix>& all) {
    const std::size_t group = mix_.replicas.size();
    if (group == cluster_.groups.size()) {
      finish(all);
      return;
    }
    const int before = alike_[group];  // which has at least as many: else a mirror image
    for (const int count : replica_counts(cluster_.groups[group], gpus_of_replica())) {
      if (before >= 0 && count > mix_.replicas[static_cast<std::size_t>(before)]) break;
      mix_.replicas.push_back(count);
      add_to(all);
      mix_.replicas.pop_back();
    }
  }

 private:
  [[nodiscard]] std::int64_t gpus_of_replica() const {
    return std::int64_t{mix_.ways.tensor} * mix_.ways.context * mix_.stages;
  }

  void finish(std::vector<ReplicaMix>& all) const {
    const auto used = std::count_if(mix_.replicas.begin(), mix_.replicas.end(), [](int n) { return n > 0; });
    const int replicas = std::accumulate(mix_.replicas.begin(), mix_.replicas.end(), 0);
    if (used < 2 || replicas > batch_ || replicas * gpus_of_replica() > space_.most_gpus) return;
    all.push_back(mix_);
    all.back().ways.data = replicas;
    for (std::size_t group = 0; group < mix_.replicas.size(); ++group) {
      const NodeGroup& nodes = cluster_.groups[group];
      all.back().nodes.push_back(
          std::max(static_cast<int>(mix_.replicas[group] * gpus_of_replica() / nodes.gpus_per_node),
                   nodes.count.minimum));
    }
  }

  const ClusterSpec& cluster_;
  const std::vector<int>& alike_;
  const SearchSpace& space_;
  std::int64_t batch_;
  ReplicaMix mix_;
};

}  // namespace

std::vector<ReplicaMix> replica_mixes(const ClusterSpec& cluster, const SearchSpace& space, SearchMode mode,
                                      std::int64_t global_batch) {
  std::vector<ReplicaMix> all;
  if (!space.mix_replicas || mode == SearchMode::homogeneous || !tells_groups_apart(cluster)) return all;
  const std::vector<int> alike = groups_alike(cluster);
  for (const int tensor : space.tensor) {
    for (const int context : space.context) {
      for (const int stages : stage_choices(cluster, space))
        MixesOfSize(cluster, alike, space, global_batch, {tensor, context, 1, 1, {}}, stages).add_to(all);
    }
  }
  return all;
}

Obstacle mix_obstacle(const ModelSpec& model, const ClusterSpec& cluster, const ReplicaMix& mix,
                      const Setting& setting, std::int64_t global_batch, std::int64_t sequence) {
  if (setting.chunks > 1) return "virtual stages with unlike replicas";
  if (setting.fully_sharded) return "use_megatron_fsdp with unlike replicas";
  if (splits_backward(setting.schedule)) return "a schedule that splits the backward with unlike replicas";
  if (auto obstacle = order_obstacle(setting, mix.ways.data, mix.stages)) return obstacle;
  if (auto obstacle = ways_obstacle(model, mix.ways, sequence)) return obstacle;
  const std::int64_t microbatches = global_batch / setting.micro_batch;
  if (global_batch % setting.micro_batch != 0) return "the batch does not divide";
  if (microbatches < mix.ways.data) return "more replicas than microbatches";
  // Shares need not be equal: of the batch only what divides is asked about.
  const std::int64_t divided = microbatches / mix.ways.data * mix.ways.data * setting.micro_batch;
  if (auto obstacle = setting_obstacle(model, mix.ways, setting, divided, sequence)) return obstacle;
  for (std::size_t group = 0; group < mix.replicas.size(); ++group) {
    if (mix.replicas[group] == 0) continue;
    if (auto obstacle = group_obstacle(cluster.groups[group], mix.ways)) return obstacle;
  }
  return stages_obstacle(model, setting, mix.stages, microbatches / mix.ways.data);
}

ParallelStrategy strategy_of(const ReplicaMix& mix, const Setting& setting, std::int64_t global_batch,
                             std::int64_t sequence, DataType type) {
  const auto first = std::find_if(mix.replicas.begin(), mix.replicas.end(), [](int n) { return n > 0; });
  const Allocation like{mix.ways.tensor,
                        mix.ways.context,
                        1,
                        mix.ways.data,
                        {{static_cast<int>(first - mix.replicas.begin()), mix.stages}},
                        mix.nodes,
                        {}};
  ParallelStrategy strategy = strategy_of(like, setting, global_batch, sequence, type);
  for (std::size_t group = 0; group < mix.replicas.size(); ++group) {
    if (mix.replicas[group] == 0) continue;
    const std::vector<int> groups(static_cast<std::size_t>(mix.stages), static_cast<int>(group));
    strategy.replicas.push_back({mix.replicas[group], groups, 0});
  }
  return strategy;
}

}  // namespace orrery
