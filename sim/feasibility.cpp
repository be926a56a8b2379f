#include "sim/feasibility.hpp"

#include <algorithm>

#include "strategies/partition.hpp"
#include "strategies/placement.hpp"

namespace orrery {
namespace {

std::string gibibytes_text(Bytes bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", to_gibibytes(bytes));
  return text;
}

}  // namespace

Bytes StageFitter::capacity(const ParallelStrategy& strategy, int stage) const {
  return usable_memory(group_of_stage(book_.cluster(), strategy, stage).gpu.memory);
}

const std::vector<AliveState>& StageFitter::alive(const ParallelStrategy& strategy, int stage) {
  // The peak is reached in the warm-up and first pairs: more microbatches than 4 P change nothing.
  const auto most = static_cast<std::int64_t>(4) * strategy.pipeline;
  const bool all_alive = strategy.schedule == ScheduleKind::gpipe;
  const auto microbatches = all_alive ? strategy.microbatches() : std::min(strategy.microbatches(), most);
  const AliveKey key{strategy.schedule, strategy.transfers, strategy.pipeline, strategy.chunks,
                     static_cast<int>(microbatches)};
  auto found = alive_.find(key);
  if (found == alive_.end()) {
    const Schedule schedule =
        make_schedule({key.kind, key.transfers, key.ranks, key.chunks, key.microbatches, 0});
    std::vector<std::vector<AliveState>> ranks;
    for (int rank = 0; rank < key.ranks; ++rank) ranks.push_back(alive_states(schedule, rank));
    found = alive_.emplace(key, std::move(ranks)).first;
  }
  return found->second[static_cast<std::size_t>(stage)];
}

// Forward and backward seconds of the first i layers, for every i.
const std::vector<double>& StageFitter::pass_times(const ShardKey& key, const Recompute& recompute) {
  auto found = pass_times_.find({key, recompute.granularity});
  if (found == pass_times_.end()) {
    std::vector<double> times;
    for (const BlockCost& sum : book_.shard(key).before) {
      PassCost all = sum.forward;
      all += sum.backward;
      if (recompute.granularity == RecomputeGranularity::full) all += sum.forward;
      if (recompute.granularity == RecomputeGranularity::selective) all += sum.attention_core;
      times.push_back((all.compute + all.communication).value());
    }
    found = pass_times_.emplace(std::pair(key, recompute.granularity), std::move(times)).first;
  }
  return found->second;
}

std::vector<LayerRange> StageFitter::fastest_split(const ParallelStrategy& strategy,
                                                   const std::vector<int>& most_layers) {
  std::vector<StageLoad> loads;
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    const ShardKey key = shard_key(strategy, stage);
    StageLoad load;
    load.before = &pass_times(key, strategy.recompute);
    load.most_layers = most_layers[static_cast<std::size_t>(stage)];
    const ShardCost& cost = book_.shard(key);
    const auto seconds = [](const BlockCost& block) {
      return (block.forward.compute + block.forward.communication + block.backward.compute +
              block.backward.communication)
          .value();
    };
    if (stage == 0) load.extra += seconds(cost.embedding);
    if (stage == strategy.rank_of_part(strategy.part_count() - 1)) load.extra += seconds(cost.head);
    loads.push_back(load);
  }
  return partition_layers(loads).value_or(std::vector<LayerRange>{});
}

// Interleaved: every part of a stage has as many layers as its others, as Megatron-LM's virtual stages have;
// the stages of one GPU kind are alike. With two kinds, the split of layers between them that makes the
// slower faster.
std::vector<LayerRange> StageFitter::equal_chunks(const ParallelStrategy& strategy) const {
  const int layers = book_.model().layer_count();
  if (layers % strategy.chunks != 0) return {};
  const int per_pass = layers / strategy.chunks;
  const int first_group = strategy.stages.front().group;
  const auto first_count =
      static_cast<int>(std::count_if(strategy.stages.begin(), strategy.stages.end(),
                                     [&](const StageDevices& stage) { return stage.group == first_group; }));
  const int other_count = strategy.pipeline - first_count;
  const auto layer_seconds = [&](int stage) {
    const BlockCost& all = book_.shard(shard_key(strategy, stage)).before.back();
    return (all.forward.compute + all.forward.communication + all.backward.compute +
            all.backward.communication)
        .value();
  };
  const double first_seconds = layer_seconds(0), other_seconds = layer_seconds(strategy.pipeline - 1);
  int best_first = 0, best_other = 0;
  double best = 0;
  for (int first = 1; first * first_count <= per_pass; ++first) {
    const int rest = per_pass - first * first_count;
    if (other_count == 0 ? rest != 0 : (rest == 0 || rest % other_count != 0)) continue;
    const int other = other_count == 0 ? 0 : rest / other_count;
    const double slowest = std::max(first * first_seconds, other * other_seconds);
    if (best_first == 0 || slowest < best) {
      best = slowest;
      best_first = first;
      best_other = other;
    }
  }
  std::vector<LayerRange> parts;
  int next = 0;
  for (int part = 0; best_first > 0 && part < strategy.part_count(); ++part) {
    const bool is_first =
        strategy.stages[static_cast<std::size_t>(strategy.rank_of_part(part))].group == first_group;
    parts.push_back({next, is_first ? best_first : best_other});
    next += parts.back().count;
  }
  return parts;
}

// A split without regard to memory does not depend on the replicas or the switches of the optimizer.
const std::vector<LayerRange>& StageFitter::known_split(const ParallelStrategy& strategy) {
  constexpr std::size_t kMostKnown = 100'000;  // of about 1 kB
  std::vector<std::int64_t> key{strategy.context,
                                strategy.expert,
                                strategy.chunks,
                                static_cast<std::int64_t>(strategy.schedule),
                                strategy.micro_batch,
                                strategy.sequence_parallel ? 1 : 0,
                                static_cast<std::int64_t>(strategy.recompute.granularity),
                                static_cast<std::int64_t>(strategy.recompute.method),
                                strategy.recompute.layers};
  for (auto stage = strategy.stages.begin(); stage != strategy.stages.end();) {
    const auto end = std::find_if(stage, strategy.stages.end(),
                                  [&](const StageDevices& other) { return !(other == *stage); });
    key.insert(key.end(), {stage->group, stage->tensor, end - stage});
    stage = end;
  }
  const auto found = splits_.find(key);
  if (found != splits_.end()) return found->second;
  if (splits_.size() >= kMostKnown) splits_.clear();
  const std::vector<int> all(static_cast<std::size_t>(strategy.pipeline), book_.model().layer_count());
  return splits_
      .emplace(std::move(key), strategy.chunks > 1 ? equal_chunks(strategy) : fastest_split(strategy, all))
      .first->second;
}

std::vector<StageMemory> StageFitter::memory_of(const ParallelStrategy& strategy) {
  std::vector<StageMemory> memory;
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    for (int stage = 0; stage < strategy.pipeline; ++stage)
      memory.push_back(peak_memory(book_.model(), alike, stage, alive(alike, stage), book_.stack()));
  }
  return memory;
}

std::vector<StageMemory> StageFitter::memory_of(const ParallelStrategy& strategy,
                                                const PlanPrograms& programs) const {
  std::vector<StageMemory> memory;
  int replica = 0;  // the first of the kind
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    for (int stage = 0; stage < strategy.pipeline; ++stage) {
      memory.push_back(peak_memory(book_.model(), alike, stage, alive_states(programs.of(replica), stage),
                                   book_.stack()));
    }
    replica += strategy.replicas_of_kind(kind);
  }
  return memory;
}

std::optional<Infeasible> StageFitter::too_full(const ParallelStrategy& strategy,
                                                const std::vector<StageMemory>& memory) const {
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    for (int stage = 0; stage < strategy.pipeline; ++stage) {
      const Bytes needed = memory[static_cast<std::size_t>(kind * strategy.pipeline + stage)].total();
      if (needed <= capacity(alike, stage)) continue;
      return Infeasible{InfeasibleKind::memory, "stage " + std::to_string(stage) + " needs " +
                                                    gibibytes_text(needed) + " of the " +
                                                    gibibytes_text(capacity(alike, stage)) + " usable on " +
                                                    group_of_stage(book_.cluster(), alike, stage).gpu.name};
    }
  }
  return std::nullopt;
}

// Layers from the front of the model stand for any layers: unequal layers are checked again by too_full.
int StageFitter::most_layers(ParallelStrategy strategy, int stage) {
  int fits = 0, too_many = book_.model().layer_count() + 1;
  while (too_many - fits > 1) {
    const int middle = (fits + too_many) / 2;
    strategy.parts[static_cast<std::size_t>(stage)] = {0, middle};
    const StageMemory memory = peak_memory(book_.model(), strategy, stage, alive(strategy, stage), book_.stack());
    (memory.total() <= capacity(strategy, stage) ? fits : too_many) = middle;
  }
  return fits;
}

std::variant<FittedStages, Infeasible> StageFitter::fit(ParallelStrategy& strategy) {
  strategy.parts = known_split(strategy);
  if (strategy.parts.empty())
    return Infeasible{InfeasibleKind::shape, "layers do not divide over the chunks"};
  std::vector<StageMemory> memory = memory_of(strategy);
  auto trouble = too_full(strategy, memory);
  if (trouble && strategy.chunks == 1 && strategy.pipeline > 1) {
    std::vector<int> most;
    for (int stage = 0; stage < strategy.pipeline; ++stage) most.push_back(most_layers(strategy, stage));
    if (std::vector<LayerRange> parts = fastest_split(strategy, most); !parts.empty()) {
      strategy.parts = std::move(parts);
      memory = memory_of(strategy);
      trouble = too_full(strategy, memory);
    }
  }
  if (trouble) return *trouble;
  return FittedStages{strategy.parts, std::move(memory)};
}

}  // namespace orrery
