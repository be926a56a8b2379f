#include "costmodels/layer_pricing.hpp"

#include "platforms/errors.hpp"

namespace orrery {
namespace {

double ratio(const PassCost& predicted, Seconds measured) {
  const Seconds total = predicted.compute + predicted.communication;
  return total.value() > 0 ? measured / total : 1.0;
}

// What was predicted as nothing has no proportion to be split in: all of it is compute.
void add_unpredicted(PassCost& pass, Seconds measured) {
  if ((pass.compute + pass.communication).value() <= 0) pass.compute = measured;
}

LayerTimes part_sum(const LayerTable& table, const LayerRange& range) {
  LayerTimes sum;
  const int end = range.first + range.count;
  for (int layer = range.first; layer < end; ++layer) sum += table.layers[static_cast<std::size_t>(layer)];
  if (range.has_embedding()) sum += table.embedding;
  if (range.has_head(static_cast<int>(table.layers.size()))) sum += table.head;
  return sum;
}

}  // namespace

LayerTable measured_layers(const LayerProfile& profile, const ModelSpec& model, const NodeGroup& group,
                           const ShardKey& key) {
  if (key.context > 1 || key.expert > 1) {
    throw InputError(profile.path, "plans with context or expert ways",
                     "plans without (--space): the profile knows tensor ways only");
  }
  return layer_times(profile, {model.name, group.gpu.name, model.layer_count(), key.tensor, key.micro_batch});
}

BlockCost as_measured(const BlockCost& predicted, const LayerTimes& times) {
  BlockCost layer =
      scaled(predicted, ratio(predicted.forward, times.forward), ratio(predicted.backward, times.backward));
  add_unpredicted(layer.forward, times.forward);
  add_unpredicted(layer.backward, times.backward);
  return layer;
}

std::vector<std::optional<Bytes>> profiled_memory(const PriceBook& book, const ParallelStrategy& strategy,
                                                  const GroupProfiles& profiles) {
  std::vector<std::optional<Bytes>> memory(static_cast<std::size_t>(strategy.pipeline));
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    const ShardKey key = shard_key(strategy, stage);
    const auto profile = profiles.find(key.group);
    if (profile == profiles.end()) continue;
    const NodeGroup& group = book.cluster().groups[static_cast<std::size_t>(key.group)];
    const LayerTable table = measured_layers(profile->second, book.model(), group, key);
    LayerTimes sum;
    for (int chunk = 0; chunk < strategy.chunks; ++chunk) sum += part_sum(table, strategy.part(stage, chunk));
    memory[static_cast<std::size_t>(stage)] = sum.memory;
  }
  return memory;
}

}  // namespace orrery
