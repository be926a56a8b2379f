#include "costmodels/memory/card_memory.hpp"

#include <algorithm>
#include <cmath>

#include "costmodels/trust/residuals.hpp"
#include "platforms/errors.hpp"
#include "strategies/placement.hpp"

namespace orrery {
namespace {

// Of one connection: Simple 4 MiB; LL 8 lines x 512 threads x 8 steps x 16 B; LL128 120 words x 640 threads x
// 8 steps x 8 B (NVIDIA/nccl, src/init.cc: computeBuffSizes and the defaults above it; src/include/device.h).
constexpr double kConnection = 4.0 * 1024 * 1024 + 8.0 * 512 * 8 * 16 + 120.0 * 640 * 8 * 8;
constexpr int kMostChannels = 24;  // of an H100's eighteen NVLinks, and an A100's twelve

// NCCL's rings run twice over every NVLink, of 25 GB/s each way (src/graph/connect.cc: channels are doubled);
// over PCIe there are two.
int channels_inside(const NodeGroup& nodes) {
  constexpr double kNvlink = 25e9;
  if (!has_nvlink(nodes)) return 2;
  return std::clamp(static_cast<int>(2 * std::round(nodes.gpu_link.bandwidth.value() / kNvlink)), 2,
                    kMostChannels);
}

class Communicators {
 public:
  explicit Communicators(const NodeGroup& nodes)
      : node_(nodes.gpus_per_node),
        inside_(channels_inside(nodes)),
        between_(std::clamp(2 * nodes.nics_per_node, 2, inside_)) {}

  // Of so many ranks, the last of which comes `span` GPUs after the first.
  void add(int ranks, int span) {
    if (ranks < 2) return;
    channels_ += span < node_ ? inside_ : between_;
  }
  [[nodiscard]] int channels() const { return channels_; }

 private:
  int node_, inside_, between_;
  int channels_ = 0;
};

}  // namespace

Bytes communicator_bytes(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                         const ClusterSpec& cluster, const SoftwareStack& stack) {
  const int tensor = strategy.tensor(stage), copies = strategy.data * strategy.context;
  const int of_stage = tensor * copies, last = strategy.pipeline - 1;
  Communicators all(group_of_stage(cluster, strategy, stage));
  all.add(strategy.gpus(), strategy.gpus() - 1);
  all.add(tensor, tensor - 1);
  all.add(strategy.context, tensor * (strategy.context - 1));
  all.add(copies, tensor * (copies - 1));
  if (strategy.optimizer_instances > 1) {
    const int members = strategy.copies_of_instance();
    all.add(members, tensor * (members - 1));
    all.add(strategy.optimizer_instances, tensor * (copies - members));
  }
  // Experts without tensor ways of their own lie on neighbours.
  const int step = strategy.expert_tensor.value_or(tensor) == tensor ? tensor : 1;
  all.add(strategy.expert, step * (strategy.expert - 1));
  all.add(tensor * strategy.pipeline, last * of_stage + tensor - 1);
  if (stage > 0) all.add(2, of_stage);
  if (stage < last) all.add(2, of_stage);
  if (model.has_second_word_table() && last > 0 && (stage == 0 || stage == last)) all.add(2, last * of_stage);
  return Bytes(kConnection * stack.channel_connections * all.channels());
}

Bytes usable_memory(Bytes card) {
  constexpr double kSmallCard = 16, kLargeCard = 80;  // GiB
  constexpr double kSmallShare = 0.90, kLargeShare = 0.96;
  const double position = std::clamp((to_gibibytes(card) - kSmallCard) / (kLargeCard - kSmallCard), 0.0, 1.0);
  return card * (kSmallShare + position * (kLargeShare - kSmallShare));
}

Bytes usable_memory(const NodeGroup& group) {
  const Bytes usual = usable_memory(group.gpu.memory);
  return std::min({usual, group.usable_memory.value_or(usual), group.memory_limit.value_or(usual)});
}

Bytes usable_host_memory(Bytes of_node) {
  return of_node * 0.8;
}

std::vector<Bytes> fullest_hosts(const ParallelStrategy& strategy, const ClusterSpec& cluster,
                                 const std::vector<StageMemory>& memory) {
  struct Node {
    int ranks = 0;
    Bytes bytes;
  };
  std::vector<Node> open(cluster.groups.size());  // the node that is being filled
  std::vector<Bytes> most(cluster.groups.size());
  const std::vector<int> kinds = strategy.kind_of_replica();
  for (const TensorGroup& at : tensor_groups(strategy)) {
    const int kind = kinds[static_cast<std::size_t>(at.replica)];
    const auto group = static_cast<std::size_t>(
        kind == 0
            ? strategy.stages[static_cast<std::size_t>(at.stage)].group
            : strategy.replicas[static_cast<std::size_t>(kind)].groups[static_cast<std::size_t>(at.stage)]);
    const Bytes each = memory[static_cast<std::size_t>(kind * strategy.pipeline + at.stage)].host;
    for (int lane = 0; lane < strategy.tensor(at.stage); ++lane) {
      Node& node = open[group];
      if (node.ranks == cluster.groups[group].gpus_per_node) node = {};
      ++node.ranks;
      node.bytes += each;
      most[group] = std::max(most[group], node.bytes);
    }
  }
  return most;
}

Bytes card_left(const NodeGroup& group) {
  const Bytes usual = usable_memory(group.gpu.memory);
  return group.gpu.memory * std::min(1.0, group.usable_memory.value_or(usual) / usual);
}

double fullness(const StageMemory& memory, const NodeGroup& group) {
  return memory.must_fit() / card_left(group);
}

double fullness(const ClusterSpec& cluster, const ParallelStrategy& strategy,
                const std::vector<StageMemory>& memory) {
  const std::vector<const NodeGroup*> groups = groups_of_stages(cluster, strategy);
  double fullest = 0;
  for (std::size_t at = 0; at < memory.size(); ++at)
    fullest = std::max(fullest, fullness(memory[at], *groups[at]));
  return fullest;
}

MemoryVerdict memory_verdict(const StageMemory& memory, const NodeGroup& group) {
  const double chance = out_of_memory_chance(fullness(memory, group));
  if (chance <= kSafeChance && memory.needed() <= usable_memory(group)) return MemoryVerdict::fits;
  return chance <= kLostChance ? MemoryVerdict::risky : MemoryVerdict::too_big;
}

std::string_view to_text(MemoryVerdict verdict) {
  switch (verdict) {
    case MemoryVerdict::fits:
      return "fits";
    case MemoryVerdict::risky:
      return "risky";
    case MemoryVerdict::too_big:
      return "too big";
  }
  ORRERY_ENSURE(false);
}

}  // namespace orrery
