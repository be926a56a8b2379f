#include "sim/time_bound.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace orrery {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Sums of layers are rounded in another order than those of the exact recurrence.
constexpr double kRounding = 1 - 1e-9;

// Which part of the way through the stages above a stage must wait for: for the first microbatch to come down
// and the last gradient to go up. Chunks pass on a part of a stage each. Schedules that split the backward
// may have work left for after the gradient has gone.
double fill_share(const Setting& setting, bool layers_alike) {
  if (setting.chunks > 1 && !layers_alike) return 0.0;
  switch (setting.schedule) {
    case ScheduleKind::gpipe:
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::interleaved:
      return 1.0 / setting.chunks;
    case ScheduleKind::zb_h1:
    case ScheduleKind::zb_h2:
    case ScheduleKind::zb_v:
    case ScheduleKind::from_file:
      break;
  }
  return 0.0;
}

// Forward and backward seconds of each layer; the first has the embedding with it and the last the head.
std::vector<double> block_seconds(const PriceBook& book, const ShardKey& key, Recompute recompute) {
  // How many layers `block` repeats depends on how many there are in a part.
  if (recompute.method == RecomputeMethod::block) recompute = {};
  const ShardCost& cost = book.shard(key);
  std::vector<double> blocks;
  for (int layer = 0; layer < book.model().layer_count(); ++layer) {
    const PartTimes times = book.part_times(cost, {layer, 1}, recompute);
    blocks.push_back((times.forward + times.backward + times.weight_gradient).value());
  }
  return blocks;
}

// A layer alone, without the embedding and the head.
double layer_seconds(const PriceBook& book, const ShardKey& key, const std::vector<double>& blocks) {
  if (blocks.size() > 2) return blocks[1];
  const BlockCost& layer = book.shard(key).before[1];
  return (layer.forward.compute + layer.forward.communication + layer.backward.compute +
          layer.backward.communication)
      .value();
}

}  // namespace

TimeBound::TimeBound(const WorkRates& rates, const std::vector<double>& loads, const Setting& setting,
                     std::int64_t microbatches, int layers)
    : rates_(&rates), loads_(&loads), microbatches_(static_cast<double>(microbatches)) {
  if (rates.layer.empty()) return;
  if (setting.chunks == 1) layers_ = layers;
  if (setting.schedule == ScheduleKind::interleaved) {
    chunks_ = setting.chunks;
    layers_ = layers / setting.chunks;
  }
}

double TimeBound::operator()(const StageCounts& stages) const {
  double held = 0;  // of the model, at a second of time
  std::size_t position = 0;
  for (const int group : rates_->fastest_first) {
    const auto g = static_cast<std::size_t>(group);
    const auto end = position + static_cast<std::size_t>(stages[g]);
    held += ((*loads_)[end] - (*loads_)[position]) / rates_->whole[g];
    position = end;
  }
  const double spread = rates_->share / held;
  return kRounding * microbatches_ * std::max({spread, rates_->largest, whole_layers(stages)});
}

// The least slowest stage: raises the limit from the perfect spread, layer by layer, until all are held.
double TimeBound::whole_layers(const StageCounts& stages) const {
  if (layers_ == 0) return 0;
  double rate = 0, limit = 0;
  for (std::size_t g = 0; g < stages.size(); ++g) {
    if (stages[g] == 0) continue;
    rate += stages[g] / rates_->layer[g];
    limit = std::max(limit, rates_->layer[g]);
  }
  limit = std::max(limit, layers_ / rate);
  while (true) {
    std::int64_t held = 0;
    double next = kNever;
    for (std::size_t g = 0; g < stages.size(); ++g) {
      if (stages[g] == 0) continue;
      const auto each = static_cast<std::int64_t>(limit / rates_->layer[g] * (1 + 1e-12));
      held += stages[g] * each;
      next = std::min(next, static_cast<double>(each + 1) * rates_->layer[g]);
    }
    if (held >= layers_) return limit * chunks_;
    limit = next;
  }
}

const WorkRates& TimeBounds::rates(const Ways& ways, const std::vector<char>& group_fits,
                                   const Setting& setting) {
  const RateKey key{ways.tensor,
                    ways.context,
                    ways.expert,
                    group_fits,
                    setting.micro_batch,
                    setting.sequence_parallel,
                    setting.recompute.method == RecomputeMethod::block ? RecomputeGranularity::none
                                                                       : setting.recompute.granularity};
  const auto found = rates_.find(key);
  if (found != rates_.end()) return found->second;
  WorkRates& rates = rates_[key];
  const auto layers = static_cast<std::size_t>(book_.model().layer_count());
  const bool alike = std::all_of(book_.model().layers.begin(), book_.model().layers.end(),
                                 [&](int shape) { return shape == book_.model().layers.front(); });
  std::vector<double> least_seconds(layers, kNever), least_share(layers, kNever);
  for (std::size_t g = 0; g < group_fits.size(); ++g) {
    rates.whole.push_back(kNever);
    if (alike) rates.layer.push_back(kNever);
    if (group_fits[g] == 0) continue;
    const ShardKey shard{static_cast<int>(g), ways.tensor,         ways.context,
                         ways.expert,         setting.micro_batch, setting.sequence_parallel};
    const std::vector<double> blocks = block_seconds(book_, shard, setting.recompute);
    rates.whole[g] = std::accumulate(blocks.begin(), blocks.end(), 0.0);
    if (alike) rates.layer[g] = layer_seconds(book_, shard, blocks);
    rates.fastest_first.push_back(static_cast<int>(g));
    for (std::size_t i = 0; i < layers; ++i) {
      least_seconds[i] = std::min(least_seconds[i], blocks[i]);
      least_share[i] = std::min(least_share[i], blocks[i] / rates.whole[g]);
    }
  }
  rates.share = std::accumulate(least_share.begin(), least_share.end(), 0.0);
  rates.largest = *std::max_element(least_seconds.begin(), least_seconds.end());
  std::stable_sort(rates.fastest_first.begin(), rates.fastest_first.end(), [&](int a, int b) {
    return rates.whole[static_cast<std::size_t>(a)] < rates.whole[static_cast<std::size_t>(b)];
  });
  return rates;
}

// [p]: loads of the first p stages, in units of the first one's: sum of (1 - fill / M)^s.
const std::vector<double>& TimeBounds::loads(std::int64_t microbatches, double fill) {
  std::vector<double>& sums = loads_[{microbatches, fill}];
  if (!sums.empty()) return sums;
  const double ratio = 1 - fill / static_cast<double>(microbatches);
  double load = 1;
  sums.push_back(0);
  for (int stage = 0; stage < most_stages_; ++stage) {
    sums.push_back(sums.back() + load);
    load *= ratio;
  }
  return sums;
}

TimeBound TimeBounds::bound(const Ways& ways, const std::vector<char>& group_fits, const Setting& setting,
                            std::int64_t microbatches) {
  const WorkRates& of_groups = rates(ways, group_fits, setting);
  const double fill = fill_share(setting, !of_groups.layer.empty());
  return {of_groups, loads(microbatches, fill), setting, microbatches, book_.model().layer_count()};
}

}  // namespace orrery
