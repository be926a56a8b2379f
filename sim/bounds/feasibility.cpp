#include "sim/bounds/feasibility.hpp"

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

double seconds(const BlockCost& block) {
  return (block.forward.compute + block.forward.communication + block.backward.compute +
          block.backward.communication)
      .value();
}

}  // namespace

StageFitter::StageFitter(const PriceBook& book)
    : book_(book),
      layers_alike_(std::all_of(book.model().layers.begin(), book.model().layers.end(),
                                [&](int shape) { return shape == book.model().layers.front(); })) {}

Bytes StageFitter::capacity(const ParallelStrategy& strategy, int stage) const {
  return usable_memory(group_of_stage(book_.cluster(), strategy, stage));
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

int StageFitter::counted_repeats(const Recompute& recompute) const {
  const bool block =
      recompute.granularity == RecomputeGranularity::full && recompute.method == RecomputeMethod::block;
  return block && layers_alike_ ? recompute.layers : 0;
}

// Where `block` repeats some layers of a part and layers are unlike, all are taken to be repeated: which they
// are is not known yet.
const PrefixTimes& StageFitter::layer_times(const ShardKey& key, const Recompute& recompute) {
  const bool counted = counted_repeats(recompute) > 0;
  auto found = layer_times_.find({key, recompute.of_layer(), counted});
  if (found != layer_times_.end()) return found->second;
  const ShardCost& cost = book_.shard(key);
  PrefixTimes times{{0.0}, {0.0}, {0.0}};
  const Recompute every{.granularity = recompute.granularity, .modules = recompute.modules};
  for (int layer = 0; layer < book_.model().layer_count(); ++layer) {
    const PartTimes plain = book_.part_times(cost, {layer, 1}, {}, 1);
    const PartTimes repeated = book_.part_times(cost, {layer, 1}, every, 1);
    const PartTimes& one = counted ? plain : repeated;
    times.forward.push_back(times.forward.back() + one.forward.value());
    times.whole.push_back(times.whole.back() + (one.forward + one.backward).value());
    times.repeat.push_back(times.repeat.back() + (repeated.backward - plain.backward).value());
  }
  return layer_times_.emplace(std::tuple(key, recompute.of_layer(), counted), std::move(times)).first->second;
}

std::vector<LayerRange> StageFitter::fastest_split(const ParallelStrategy& strategy,
                                                   const std::vector<int>& most_layers) {
  std::vector<StageLoad> loads;
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    const bool as_above = stage > 0 && strategy.stages[static_cast<std::size_t>(stage)] ==
                                           strategy.stages[static_cast<std::size_t>(stage - 1)];
    loads.push_back(
        {as_above ? loads.back().before : &layer_times(shard_key(strategy, stage), strategy.recompute),
         most_layers[static_cast<std::size_t>(stage)], counted_repeats(strategy.recompute)});
  }
  const bool closed =
      strategy.schedule == ScheduleKind::one_f_one_b || strategy.schedule == ScheduleKind::gpipe;
  const PipelineShape shape{strategy.schedule, static_cast<double>(strategy.microbatches()),
                            strategy.pipeline};
  return (closed ? quickest_split(loads, shape) : least_slowest_split(loads))
      .value_or(std::vector<LayerRange>{});
}

// Interleaved: every part of a stage has as many layers as its others, as Megatron-LM's virtual stages have;
// the stages of one GPU kind are alike. Of the splits of the layers between the kinds, the first whose
// slowest stage is fastest.
std::vector<LayerRange> StageFitter::equal_chunks(const ParallelStrategy& strategy) const {
  const int layers = book_.model().layer_count();
  if (layers % strategy.chunks != 0) return {};
  std::vector<EqualStages> runs;
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    const StageDevices& devices = strategy.stages[static_cast<std::size_t>(stage)];
    if (stage == 0 || !(devices == strategy.stages[static_cast<std::size_t>(stage - 1)])) {
      const ShardCost& cost = book_.shard(shard_key(strategy, stage));
      const PartTimes all = book_.part_times(cost, {0, layers}, strategy.recompute, 1);
      const double ends = seconds(cost.embedding) + seconds(cost.head);
      const double layer = ((all.forward + all.backward).value() - ends) / layers;
      runs.push_back({0, layer * strategy.chunks, stage == 0 ? seconds(cost.embedding) : 0});
    }
    ++runs.back().stages;
  }
  runs.back().extra =
      std::max(runs.back().extra, seconds(book_.shard(shard_key(strategy, strategy.pipeline - 1)).head));
  const std::vector<int> counts = equal_split(runs, layers / strategy.chunks);
  if (counts.empty()) return {};
  std::vector<int> of_stage;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    of_stage.insert(of_stage.end(), static_cast<std::size_t>(runs[run].stages), counts[run]);
  }
  std::vector<LayerRange> parts;
  int next = 0;
  for (int part = 0; part < strategy.part_count(); ++part) {
    parts.push_back({next, of_stage[static_cast<std::size_t>(strategy.rank_of_part(part))]});
    next += parts.back().count;
  }
  return parts;
}

// A split without regard to memory depends on the replicas by the microbatches alone, and not on the switches
// of the optimizer.
const std::vector<LayerRange>& StageFitter::known_split(const ParallelStrategy& strategy) {
  constexpr std::size_t kMostKnown = 100'000;  // of about 1 kB
  std::vector<std::int64_t> key{strategy.context,
                                strategy.expert,
                                strategy.chunks,
                                static_cast<std::int64_t>(strategy.schedule),
                                strategy.micro_batch,
                                strategy.microbatches(),
                                strategy.sequence_parallel ? 1 : 0,
                                strategy.flash_attention ? 1 : 0,
                                strategy.tensor_overlap ? 1 + *strategy.tensor_overlap : 0,
                                static_cast<std::int64_t>(strategy.recompute.granularity),
                                strategy.recompute.modules.code(),
                                strategy.expert_tensor.value_or(0),
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

StageMemory StageFitter::peak(const ParallelStrategy& alike, int stage,
                              const std::vector<AliveState>& states) const {
  StageMemory memory = peak_memory(book_.model(), alike, stage, states, book_.stack());
  memory.communicators = communicator_bytes(book_.model(), alike, stage, book_.cluster(), book_.stack());
  // Blocks are kept while the card has room.
  const Bytes card = card_left(group_of_stage(book_.cluster(), alike, stage));
  const Bytes room = card - (memory.total() - memory.cached);
  memory.cached = std::min(memory.cached, std::max(room, Bytes(0)));
  return memory;
}

std::vector<StageMemory> StageFitter::memory_of(const ParallelStrategy& strategy) {
  std::vector<StageMemory> memory;
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    for (int stage = 0; stage < strategy.pipeline; ++stage)
      memory.push_back(peak(alike, stage, alive(alike, stage)));
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
      memory.push_back(peak(alike, stage, alive_states(programs.of(replica), stage)));
    }
    replica += strategy.replicas_of_kind(kind);
  }
  return memory;
}

MemoryVerdict StageFitter::worst_verdict(const ParallelStrategy& strategy,
                                         const std::vector<StageMemory>& memory) const {
  const std::vector<const NodeGroup*> groups = groups_of_stages(book_.cluster(), strategy);
  MemoryVerdict worst = MemoryVerdict::fits;
  for (std::size_t at = 0; at < memory.size(); ++at)
    worst = std::max(worst, memory_verdict(memory[at], *groups[at]));
  return worst;
}

std::optional<Infeasible> StageFitter::host_too_full(const ParallelStrategy& strategy,
                                                     const std::vector<StageMemory>& memory) const {
  if (strategy.optimizer_offload <= 0) return std::nullopt;
  const std::vector<Bytes> fullest = fullest_hosts(strategy, book_.cluster(), memory);
  for (std::size_t group = 0; group < fullest.size(); ++group) {
    const NodeGroup& nodes = book_.cluster().groups[group];
    const Bytes usable = usable_host_memory(nodes.host.memory);
    if (fullest[group] <= usable) continue;
    return Infeasible{InfeasibleKind::memory, "a node of group " + nodes.name + " needs " +
                                                  gibibytes_text(fullest[group]) + " of the " +
                                                  gibibytes_text(usable) +
                                                  " usable of its host memory for the offloaded optimizer"};
  }
  return std::nullopt;
}

std::optional<Infeasible> StageFitter::too_full(const ParallelStrategy& strategy,
                                                const std::vector<StageMemory>& memory) const {
  std::optional<Infeasible> trouble = host_too_full(strategy, memory);
  if (trouble) return trouble;
  MemoryVerdict worst = MemoryVerdict::fits;
  const std::vector<const NodeGroup*> groups = groups_of_stages(book_.cluster(), strategy);
  for (std::size_t at = 0; at < memory.size(); ++at) {
    const Bytes usable = usable_memory(*groups[at]);
    if (memory[at].needed() <= usable) continue;
    const MemoryVerdict verdict = memory_verdict(memory[at], *groups[at]);
    if (verdict <= worst) continue;
    worst = verdict;
    trouble = Infeasible{InfeasibleKind::memory,
                         "stage " + std::to_string(static_cast<int>(at) % strategy.pipeline) + " needs " +
                             gibibytes_text(memory[at].needed()) + " of the " + gibibytes_text(usable) +
                             " usable on " + groups[at]->gpu.name + ": " + std::string(to_text(verdict))};
  }
  return trouble;
}

double StageFitter::excess(const ParallelStrategy& strategy, const std::vector<StageMemory>& memory) const {
  double most = 0;
  const std::vector<const NodeGroup*> groups = groups_of_stages(book_.cluster(), strategy);
  for (std::size_t at = 0; at < memory.size(); ++at)
    most = std::max(most, memory[at].needed() / usable_memory(*groups[at]));
  if (strategy.optimizer_offload <= 0) return most;
  const std::vector<Bytes> fullest = fullest_hosts(strategy, book_.cluster(), memory);
  for (std::size_t group = 0; group < fullest.size(); ++group)
    most = std::max(most, fullest[group] / usable_host_memory(book_.cluster().groups[group].host.memory));
  return most;
}

StageFitter::MemoryKey StageFitter::memory_key(const ParallelStrategy& strategy) {
  ORRERY_ENSURE(strategy.chunks == 1 && strategy.pipeline > 1);
  return {.tensor_of_first = strategy.tensor(0),
          .data = strategy.data,
          .context = strategy.context,
          .expert = strategy.expert,
          .expert_tensor = strategy.expert_tensor,
          .micro_batch = strategy.micro_batch,
          .sequence = strategy.sequence,
          .type = strategy.type,
          .sequence_parallel = strategy.sequence_parallel,
          .distributed_optimizer = strategy.distributed_optimizer,
          .optimizer_instances = strategy.optimizer_instances,
          .flash_attention = strategy.flash_attention,
          .tensor_overlap = strategy.tensor_overlap,
          .optimizer_offload = strategy.optimizer_offload,
          .fully_sharded = strategy.fully_sharded,
          .recompute = strategy.recompute.of_layer(),
          .method = strategy.recompute.method,
          .recomputed = strategy.recompute.layers};
}

// Candidates of the same ways and settings ask again and again: their stages differ by what is alive on them.
std::vector<int> StageFitter::most_layers(const ParallelStrategy& strategy) {
  constexpr std::size_t kMostKnown = 10'000;  // of a few dozen stages each
  if (most_layers_.size() >= kMostKnown) most_layers_.clear();
  auto& known = most_layers_[memory_key(strategy)];
  std::vector<int> most;
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    const auto& [group, tensor] = strategy.stages[static_cast<std::size_t>(stage)];
    const Bytes communicators =
        communicator_bytes(book_.model(), strategy, stage, book_.cluster(), book_.stack());
    StageKey key{group, tensor, stage == 0, stage == strategy.pipeline - 1, communicators.value(), {}};
    for (const AliveState& state : alive(strategy, stage)) {
      key.alive.push_back(state.whole.front());
      key.alive.push_back(state.for_weights.front());
    }
    const auto found = known.find(key);
    most.push_back(found != known.end() ? found->second : most_layers(strategy, stage, communicators));
    if (found == known.end()) known.emplace(std::move(key), most.back());
  }
  return most;
}

// Layers from the front of the model stand for any layers: unequal layers are checked again by too_full.
int StageFitter::most_layers(ParallelStrategy strategy, int stage, Bytes communicators) {
  const std::vector<AliveState>& states = alive(strategy, stage);
  int fits = 0, too_many = book_.model().layer_count() + 1;
  while (too_many - fits > 1) {
    const int middle = (fits + too_many) / 2;
    strategy.parts[static_cast<std::size_t>(stage)] = {0, middle};
    StageMemory memory = peak_memory(book_.model(), strategy, stage, states, book_.stack());
    memory.communicators = communicators;
    (memory.needed() <= capacity(strategy, stage) ? fits : too_many) = middle;
  }
  return fits;
}

std::variant<FittedStages, Infeasible> StageFitter::fit(ParallelStrategy& strategy) {
  return strategy.recompute.layers == 0 ? fit_fewest(strategy) : fit(strategy, Moving::allowed);
}

std::variant<FittedStages, Infeasible> StageFitter::fit_fewest(ParallelStrategy& strategy) {
  auto fewest = fit_fewest(strategy, Moving::allowed);
  const auto* moved = std::get_if<FittedStages>(&fewest);
  if (moved == nullptr || moved->parts == known_split(strategy)) return fewest;
  ParallelStrategy balanced = strategy;
  balanced.recompute.layers = 0;
  auto kept = fit_fewest(balanced, Moving::forbidden);
  if (std::holds_alternative<Infeasible>(kept) || split_time(balanced) >= split_time(strategy)) return fewest;
  strategy = balanced;
  return kept;
}

std::optional<FittedStages> StageFitter::fit_equal(ParallelStrategy strategy) {
  std::vector<LayerRange> parts = equal_parts(book_.model().layer_count(), strategy.part_count());
  if (strategy.chunks > 1 || parts == strategy.parts) return std::nullopt;
  strategy.parts = parts;
  std::vector<StageMemory> memory = memory_of(strategy);
  if (too_full(strategy, memory)) return std::nullopt;
  return FittedStages{std::move(parts), std::move(memory)};
}

// The more layers are recomputed the less is kept.
std::variant<FittedStages, Infeasible> StageFitter::fit_fewest(ParallelStrategy& strategy, Moving moving) {
  const auto fitted = [&](int layers) {
    strategy.recompute.layers = layers;
    return fit(strategy, moving);
  };
  auto best = fitted(1);
  if (std::holds_alternative<FittedStages>(best)) return best;
  int too_few = 1, enough = book_.model().layer_count() - strategy.part_count() + 1;
  best = fitted(enough);
  if (std::holds_alternative<Infeasible>(best)) return best;
  while (enough - too_few > 1) {
    const int middle = (enough + too_few) / 2;
    auto tried = fitted(middle);
    if (std::holds_alternative<Infeasible>(tried)) {
      too_few = middle;
      continue;
    }
    enough = middle;
    best = std::move(tried);
  }
  strategy.recompute.layers = enough;
  strategy.parts = std::get<FittedStages>(best).parts;
  return best;
}

// Seconds of an iteration as the closed form of 1f1b has it.
double StageFitter::split_time(const ParallelStrategy& strategy) const {
  std::vector<StageWork> work;
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    const PartTimes times = book_.part_times(book_.shard(shard_key(strategy, stage)), strategy.part(stage, 0),
                                             strategy.recompute, strategy.gpus());
    work.push_back({times.forward.value(), (times.forward + times.backward).value()});
  }
  return pipeline_time(
      work, {ScheduleKind::one_f_one_b, static_cast<double>(strategy.microbatches()), strategy.pipeline});
}

std::variant<FittedStages, Infeasible> StageFitter::fit(ParallelStrategy& strategy, Moving moving) {
  strategy.parts = known_split(strategy);
  if (strategy.parts.empty())
    return Infeasible{InfeasibleKind::shape, "layers do not divide over the chunks"};
  std::vector<StageMemory> memory = memory_of(strategy);
  auto trouble = too_full(strategy, memory);
  if (trouble && moving == Moving::allowed && strategy.chunks == 1 && strategy.pipeline > 1) {
    if (std::vector<LayerRange> parts = fastest_split(strategy, most_layers(strategy)); !parts.empty()) {
      strategy.parts = std::move(parts);
      memory = memory_of(strategy);
      trouble = too_full(strategy, memory);
    }
  }
  if (trouble) return *trouble;
  return FittedStages{strategy.parts, std::move(memory)};
}

}  // namespace orrery
