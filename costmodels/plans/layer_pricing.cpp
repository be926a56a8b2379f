#include "costmodels/plans/layer_pricing.hpp"

#include <algorithm>

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

// A measured time beside its prediction and what the host needs for it.
struct Timed {
  Seconds measured, predicted, host;

  [[nodiscard]] Seconds floor() const { return std::min(host, measured); }
  // Of the GPU over its prediction.
  [[nodiscard]] double pace() const {
    const double pace = measured / predicted;
    return measured > host ? pace : std::min(pace, 1.0);
  }
  // The time of other work of its kind that is predicted to take `then`.
  [[nodiscard]] Seconds of(Seconds then) const { return std::max(then * pace(), floor()); }
};

Seconds time_of(const PassCost& pass) {
  return pass.compute + pass.communication;
}

// Of another size than `measured`: what is not predicted is a cost of each call.
Seconds collectives_of(Seconds measured, Seconds predicted, Seconds then) {
  if (measured < predicted) return measured * (then / predicted);
  return measured - predicted + then;
}

struct MeasuredPasses {
  Seconds forward, backward;
};

// Of a block whose forward was timed with and without tensor ways, and its backward not.
MeasuredPasses apart_from_collectives(const BlockPrediction& predicted, const LayerTimes& times) {
  const BlockCost& asked = predicted.asked;
  const Seconds forward_host = asked.forward.host;
  const Timed whole{times.whole.value_or(times.forward), predicted.whole.forward.compute, forward_host};
  const Seconds there = whole.of(predicted.measured.forward.compute);
  const double fits = std::min(1.0, times.forward / there);
  const Seconds collectives = collectives_of(
      times.forward - there * fits, predicted.measured.forward.communication, asked.forward.communication);
  const double repeats = asked.forward.calls > 0 ? asked.backward.calls / asked.forward.calls : 0.0;
  const double of_host = forward_host.value() > 0 ? whole.floor() / forward_host : 0.0;
  return {whole.of(asked.forward.compute) * fits + collectives,
          std::max(asked.backward.compute * whole.pace(), asked.backward.host * of_host) * fits +
              collectives * repeats};
}

MeasuredPasses passes_of(const BlockPrediction& predicted, const LayerTimes& times) {
  if (time_of(predicted.measured.forward).value() <= 0 || time_of(predicted.measured.backward).value() <= 0) {
    const Seconds forward = times.forward * predicted.sequences;
    return {forward, times.backward ? *times.backward * predicted.sequences : forward * 2};
  }
  if (!times.backward) return apart_from_collectives(predicted, times);
  const auto pass = [&](Seconds measured, PassCost BlockCost::*which) {
    const PassCost& then = predicted.measured.*which;
    return Timed{measured, time_of(then), then.host}.of(time_of(predicted.asked.*which));
  };
  return {pass(times.forward, &BlockCost::forward), pass(*times.backward, &BlockCost::backward)};
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

BlockCost as_measured(const BlockPrediction& predicted, const LayerTimes& times) {
  const auto [forward, backward] = passes_of(predicted, times);
  const BlockCost& asked = predicted.asked;
  BlockCost block = scaled(asked, ratio(asked.forward, forward), ratio(asked.backward, backward));
  add_unpredicted(block.forward, forward);
  add_unpredicted(block.backward, backward);
  for (PassCost* pass : {&block.forward, &block.backward, &block.weight_gradient})
    pass->host = pass->at_limit = {};
  for (PassCost& module : block.modules) module.host = module.at_limit = {};
  block.unrepeated.host = block.unrepeated.at_limit = {};
  return block;
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
