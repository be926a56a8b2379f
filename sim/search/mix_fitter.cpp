#include "sim/search/mix_fitter.hpp"

#include <algorithm>

#include "sim/bounds/priced_bounds.hpp"

namespace orrery {
namespace {

// Sums of layers are rounded in another order than those of the exact recurrence.
constexpr double kRounding = 1 - 1e-9;

double seconds(const PartTimes& times) {
  return (times.forward + times.backward + times.weight_gradient).value();
}

}  // namespace

Seconds MixFitter::least_time(const ReplicaMix& mix, const Setting& setting,
                              std::int64_t global_batch) const {
  double rate = 0;  // microbatches a second
  for (std::size_t group = 0; group < mix.replicas.size(); ++group) {
    if (mix.replicas[group] == 0) continue;
    const ShardKey key = shard_key(static_cast<int>(group), mix.ways, setting);
    // Of all layers at once, host and GPU side by side: no split takes less.
    const PartTimes whole = least_times(
        book_.part_times(book_.shard(key), {0, book_.model().layer_count()}, setting.recompute, 1),
        book_.cluster(), static_cast<int>(group), mix.ways);
    rate += mix.replicas[group] * mix.stages / seconds(whole);
  }
  return Seconds(static_cast<double>(global_batch / setting.micro_batch) / rate * kRounding);
}

std::variant<FittedMix, Infeasible> MixFitter::fit(const ReplicaMix& mix, const Setting& setting,
                                                   std::int64_t global_batch) {
  const JobPrecision& precision = book_.precision();
  const ParallelStrategy open = strategy_of(mix, setting, global_batch, precision.sequence, precision.type);
  std::variant<FittedMix, Infeasible> best = Infeasible{InfeasibleKind::memory, ""};
  for (std::size_t group = 0; group < mix.replicas.size(); ++group) {
    if (mix.replicas[group] == 0) continue;
    auto fitted = fit_as_on(static_cast<int>(group), open);
    const auto* found = std::get_if<FittedMix>(&fitted);
    const auto* known = std::get_if<FittedMix>(&best);
    const bool better = found == nullptr
                            ? known == nullptr
                            : known == nullptr || slowest(found->strategy) < slowest(known->strategy);
    if (better) best = std::move(fitted);
  }
  return best;
}

std::variant<FittedMix, Infeasible> MixFitter::fit_as_on(int group, ParallelStrategy strategy) {
  ParallelStrategy alike = strategy;
  alike.replicas.clear();
  alike.global_batch -= alike.global_batch % (alike.micro_batch * alike.data);
  for (StageDevices& stage : alike.stages) stage.group = group;
  const auto fitted = fitter_.fit(alike);
  if (const auto* trouble = std::get_if<Infeasible>(&fitted)) return *trouble;
  strategy.parts = std::get<FittedStages>(fitted).parts;
  return with_shares(strategy);
}

std::optional<FittedMix> MixFitter::fit_equal(const FittedMix& fitted) {
  ParallelStrategy strategy = fitted.strategy;
  strategy.parts = equal_parts(book_.model().layer_count(), strategy.part_count());
  if (strategy.parts == fitted.strategy.parts) return std::nullopt;
  auto equal = with_shares(strategy);
  auto* fits = std::get_if<FittedMix>(&equal);
  return fits != nullptr ? std::optional(std::move(*fits)) : std::nullopt;
}

std::variant<FittedMix, Infeasible> MixFitter::with_shares(const ParallelStrategy& strategy) {
  FittedMix mix;
  mix.strategy = book_.with_chosen_shares(strategy);
  mix.memory = fitter_.memory_of(mix.strategy);
  if (const auto full = fitter_.too_full(mix.strategy, mix.memory)) return *full;
  mix.least = least_time(mix.strategy);
  return mix;
}

Seconds MixFitter::slowest(const ParallelStrategy& strategy) const {
  double slowest = 0;
  const std::vector<ReplicaPace> paces = book_.replica_paces(strategy);
  for (std::size_t kind = 0; kind < paces.size(); ++kind) {
    const auto microbatches = static_cast<double>(strategy.replicas[kind].microbatches);
    slowest = std::max(slowest, paces[kind].fill + microbatches * paces[kind].each);
  }
  return Seconds(slowest);
}

Seconds MixFitter::least_time(const ParallelStrategy& strategy) const {
  double least = 0;
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    const int group = alike.stages.front().group;
    const Ways ways{alike.tensor(0), alike.context, 1, alike.data, {}};
    for (int stage = 0; stage < alike.pipeline; ++stage) {
      const PartTimes times =
          least_times(book_.part_times(book_.shard(shard_key(alike, stage)), alike.part(stage, 0),
                                       alike.recompute, alike.gpus()),
                      book_.cluster(), group, ways);
      least = std::max(least, static_cast<double>(alike.microbatches()) * seconds(times));
    }
  }
  return Seconds(least * kRounding);
}

}  // namespace orrery
