#include "costmodels/layer_pricing.hpp"

#include <algorithm>

#include "platforms/errors.hpp"
#include "strategies/placement.hpp"

namespace orrery {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

void require_profiled(const LayerProfile& profile, const ParallelStrategy& strategy) {
  if (strategy.context > 1 || strategy.expert > 1) {
    throw InputError(profile.path, "a plan with context or expert ways",
                     "a plan without: the profile knows tensor ways only");
  }
  if (strategy.recompute.granularity == RecomputeGranularity::selective) {
    throw InputError(profile.path, "a plan that recomputes attention alone",
                     "recompute none or full: the profile has whole layers");
  }
}

LayerTable table_of(const ModelSpec& model, const ClusterSpec& cluster, const ParallelStrategy& strategy,
                    const LayerProfile& profile, int stage) {
  require_profiled(profile, strategy);
  return layer_times(profile, {group_of_stage(cluster, strategy, stage).gpu.name, model.layer_count(),
                               strategy.tensor(stage), strategy.micro_batch});
}

LayerTimes part_sum(const ModelSpec& model, const LayerTable& table, const LayerRange& range) {
  LayerTimes sum;
  for (int layer = range.first; layer < range.first + range.count; ++layer) sum += table.layers[at(layer)];
  if (range.first == 0) sum += table.embedding;
  if (range.first + range.count == model.layer_count()) sum += table.head;
  return sum;
}

Seconds repeated_forward(const LayerTable& table, const LayerRange& range, const Recompute& recompute) {
  if (recompute.granularity != RecomputeGranularity::full) return Seconds(0);
  const bool block = recompute.method == RecomputeMethod::block;
  const int count = block ? std::min(recompute.layers, range.count) : range.count;
  Seconds sum;
  for (int layer = range.first; layer < range.first + count; ++layer) sum += table.layers[at(layer)].forward;
  return sum;
}

void price_part(PartTimes& part, const LayerTimes& times, Seconds repeated) {
  const Seconds before = part.backward + part.weight_gradient;
  const double weights = before.value() > 0 ? part.weight_gradient / before : 0.0;
  part.forward = times.forward;
  part.weight_gradient = times.backward * weights;
  part.backward = times.backward - part.weight_gradient + repeated;
  part.forward_tensor = part.backward_tensor = Seconds(0);
}

// One stage of the plan, chunk by chunk.
void price_stage(PricedPlan& plan, const ModelSpec& model, const ParallelStrategy& strategy,
                 const LayerTable& table, int stage) {
  Seconds step;
  for (int part = 0; part < strategy.part_count(); ++part) {
    if (strategy.rank_of_part(part) != stage) continue;
    const LayerRange& range = strategy.parts[at(part)];
    const LayerTimes times = part_sum(model, table, range);
    price_part(plan.parts[at(part)], times, repeated_forward(table, range, strategy.recompute));
    step += times.optimizer;
  }
  if (step.value() <= 0 || plan.optimizer.empty()) return;
  plan.optimizer[at(stage)] = strategy.distributed_optimizer ? step / strategy.data : step;
}

}  // namespace

void price_by_profiles(PricedPlan& plan, const ModelSpec& model, const ClusterSpec& cluster,
                       const ParallelStrategy& strategy, const GroupProfiles& profiles) {
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    const auto profile = profiles.find(strategy.stages[at(stage)].group);
    if (profile == profiles.end()) continue;
    price_stage(plan, model, strategy, table_of(model, cluster, strategy, profile->second, stage), stage);
  }
}

std::vector<std::optional<Bytes>> profiled_memory(const ModelSpec& model, const ClusterSpec& cluster,
                                                  const ParallelStrategy& strategy,
                                                  const GroupProfiles& profiles) {
  std::vector<std::optional<Bytes>> memory(at(strategy.pipeline));
  for (int part = 0; part < strategy.part_count(); ++part) {
    const int stage = strategy.rank_of_part(part);
    const auto profile = profiles.find(strategy.stages[at(stage)].group);
    if (profile == profiles.end()) continue;
    const LayerTable table = table_of(model, cluster, strategy, profile->second, stage);
    const auto held = part_sum(model, table, strategy.parts[at(part)]).memory;
    if (held) memory[at(stage)] = memory[at(stage)].value_or(Bytes(0)) + *held;
  }
  return memory;
}

}  // namespace orrery
