#include "sim/bounds/time_bound.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace orrery {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Sums of layers are rounded in another order than those of the exact recurrence.
constexpr double kRounding = 1 - 1e-9;

}  // namespace

TimeBound::TimeBound(const WorkRates& rates, const std::vector<LeastTraffic>& traffic,
                     const Pipeline& pipeline)
    : pipeline_(pipeline) {
  std::vector<double> reduced;
  for (std::size_t g = 0; g < rates.blocks.size(); ++g) {
    reduced.push_back(traffic[g].reduced);
    work_.push_back(std::accumulate(rates.blocks[g].begin(), rates.blocks[g].end(), 0.0));
    work_of_layer_.push_back(rates.layer.empty() ? kNever : rates.layer[g]);
    layer_.push_back(work_of_layer_.back() + reduced.back() / pipeline.microbatches);
    if (work_[g] != kNever) fastest_first_.push_back(static_cast<int>(g));
  }
  std::stable_sort(fastest_first_.begin(), fastest_first_.end(), [&](int a, int b) {
    return work_[static_cast<std::size_t>(a)] < work_[static_cast<std::size_t>(b)];
  });
  reduced_ = falling(rates, reduced, pipeline.fill * rates.forward_least);
  const bool gpipe = pipeline.schedule == ScheduleKind::gpipe;
  closed_ = pipeline.chunks == 1 && (gpipe || pipeline.schedule == ScheduleKind::one_f_one_b);
  const std::vector<double> nothing(work_.size(), 0.0);
  if (!closed_) {
    passed_up_ = falling(rates, nothing, pipeline.fill);
    return;
  }
  share_ = falling(rates, nothing, 0).share;
  for (int behind = 0; behind < pipeline.most_stages; ++behind) {
    const double trips = gpipe ? 0 : std::min<double>(behind, pipeline.microbatches - 1) * rates.lesser_most;
    weight_.push_back(std::max(pipeline.microbatches - 1 - trips, 1e-9));
    behind_.push_back(behind_.back() + 1 / weight_.back());
  }
}

TimeBound::Falling TimeBound::falling(const WorkRates& rates, const std::vector<double>& once,
                                      double fill) const {
  const std::size_t layers = rates.blocks.front().size();
  Falling result;
  std::vector<double> least_share(layers, kNever), least(layers, kNever);
  double work_share = 1;  // the least that work is of all a stage must do
  for (std::size_t g = 0; g < rates.blocks.size(); ++g) {
    const double more = once[g] / pipeline_.microbatches;
    result.whole.push_back(work_[g] + more * static_cast<double>(layers));
    if (work_[g] == kNever) continue;
    for (std::size_t i = 0; i < layers; ++i) {
      const double block = rates.blocks[g][i];
      least[i] = std::min(least[i], block + more);
      least_share[i] = std::min(least_share[i], (block + more) / result.whole[g]);
      work_share = std::min(work_share, block / (block + more));
    }
  }
  result.share = std::accumulate(least_share.begin(), least_share.end(), 0.0);
  result.largest = *std::max_element(least.begin(), least.end());
  const double ratio = 1 - fill * work_share / pipeline_.microbatches;
  double load = 1;
  for (int stage = 0; stage < pipeline_.most_stages; ++stage) {
    result.loads.push_back(result.loads.back() + load);
    load *= ratio;
  }
  return result;
}

double TimeBound::time(const Falling& falling, const StageCounts& stages) const {
  double held = 0;  // of the model, at a second of time
  std::size_t position = 0;
  for (const int group : fastest_first_) {
    const auto g = static_cast<std::size_t>(group);
    const auto end = position + static_cast<std::size_t>(stages[g]);
    held += (falling.loads[end] - falling.loads[position]) / falling.whole[g];
    position = end;
  }
  return kRounding * pipeline_.microbatches * std::max(falling.share / held, falling.largest);
}

double TimeBound::spread(const StageCounts& stages) const {
  const double reduced = time(reduced_, stages);
  return std::max(reduced, closed_ ? kRounding * least_excess(stages).time : time(passed_up_, stages));
}

// Stages that are at work all the time hold no less than ones that wait; so do more of them.
double TimeBound::spread_within(const StageCounts& most) const {
  double held = 0;
  for (const int group : fastest_first_) {
    const auto g = static_cast<std::size_t>(group);
    held += most[g] / reduced_.whole[g];
  }
  return kRounding * pipeline_.microbatches * std::max(reduced_.share / held, reduced_.largest);
}

double TimeBound::most_held(std::size_t group) const {
  return 1 / (kRounding * pipeline_.microbatches * reduced_.share * reduced_.whole[group]);
}

LeastBound::LeastBound(const std::vector<TimeBound>& bounds, std::size_t groups) : held_(groups, 0.0) {
  for (const TimeBound& bound : bounds) {
    for (std::size_t g = 0; g < groups; ++g) held_[g] = std::max(held_[g], bound.most_held(g));
  }
}

double LeastBound::spread_within(const StageCounts& most) const {
  double held = 0;
  for (std::size_t g = 0; g < held_.size(); ++g) held += most[g] * held_[g];
  return kRounding / held;
}

// Stages that are at work all the time take M x share / (sum of stages / work), at the sum of their rates: a
// ratio of sums, which is least with as much as possible on the groups that are cheapest for their work.
double TimeBound::least_money(const StageCounts& least, const StageCounts& most,
                              const std::vector<double>& dollars_per_second) const {
  double rate = 0, held = 0;
  std::vector<std::pair<double, std::size_t>> cheapest_first;
  for (const int group : fastest_first_) {
    const auto g = static_cast<std::size_t>(group);
    rate += least[g] * dollars_per_second[g];
    held += least[g] / reduced_.whole[g];
    cheapest_first.emplace_back(dollars_per_second[g] * reduced_.whole[g], g);
  }
  std::sort(cheapest_first.begin(), cheapest_first.end());
  double ratio = held > 0 ? rate / held : kNever;
  for (const auto& [price, g] : cheapest_first) {
    if (most[g] == least[g]) continue;
    rate += (most[g] - least[g]) * dollars_per_second[g];
    held += (most[g] - least[g]) / reduced_.whole[g];
    ratio = std::min(ratio, rate / held);
  }
  return kRounding * pipeline_.microbatches * reduced_.share * ratio;
}

// An excess holds excess / (weight x work) of the model on a stage. Of the first groups that could hold all
// of it, each group more takes from the work of all or adds to it.
TimeBound::Excess TimeBound::least_excess(const StageCounts& stages) const {
  Excess best{kNever, kNever};
  double held = 0, inverse = 0;  // at a second of excess
  auto position = static_cast<std::size_t>(std::accumulate(stages.begin(), stages.end(), 0));
  for (const int group : fastest_first_) {
    const auto g = static_cast<std::size_t>(group);
    if (stages[g] == 0) continue;
    const auto end = position - static_cast<std::size_t>(stages[g]);
    held += (behind_[position] - behind_[end]) / work_[g];
    inverse += behind_[position] - behind_[end];
    position = end;
    const double excess = share_ / held, time = excess * (1 + inverse);
    if (time < best.time) best = {excess, time};
  }
  return best;
}

// The least time with such an excess: the fastest GPUs hold as much as they can.
double TimeBound::time_with(double excess, const StageCounts& stages) const {
  double left = share_, time = excess;
  auto position = static_cast<std::size_t>(std::accumulate(stages.begin(), stages.end(), 0));
  for (const int group : fastest_first_) {
    const auto g = static_cast<std::size_t>(group);
    const auto end = position - static_cast<std::size_t>(stages[g]);
    const double held = std::min(left, excess * (behind_[position] - behind_[end]) / work_[g]);
    time += held * work_[g];
    left -= held;
    position = end;
  }
  return time;
}

// Raises an excess, layer by layer, until all layers are held. Which group is where is not known: each may
// have the places of the most layers.
double TimeBound::whole_layer_excess(double excess, const StageCounts& stages) const {
  const int all = std::accumulate(stages.begin(), stages.end(), 0);
  while (true) {
    std::int64_t held = 0;
    double next = kNever;
    for (std::size_t g = 0; g < stages.size(); ++g) {
      for (int stage = 0; stage < stages[g]; ++stage) {
        const double layer = weight_[static_cast<std::size_t>(all - stage - 1)] * work_of_layer_[g];
        const auto here = static_cast<std::int64_t>(excess / layer * (1 + 1e-12));
        held += here;
        next = std::min(next, static_cast<double>(here + 1) * layer);
      }
    }
    if (held >= pipeline_.layers) return excess;
    excess = next;
  }
}

double TimeBound::whole_layers(const StageCounts& stages) const {
  if (pipeline_.layers == 0) return 0;
  const double slowest = slowest_of_whole_layers(stages);
  if (!closed_) return slowest;
  // Below the best excess less work does not make up for more of it, above it the other way round.
  const double excess = whole_layer_excess(least_excess(stages).excess, stages);
  return std::max(slowest, kRounding * time_with(excess, stages));
}

// The least slowest stage: raises the limit from the perfect spread, layer by layer, until all are held.
double TimeBound::slowest_of_whole_layers(const StageCounts& stages) const {
  const int layers = pipeline_.layers;
  double rate = 0, limit = 0;
  for (std::size_t g = 0; g < stages.size(); ++g) {
    if (stages[g] == 0) continue;
    rate += stages[g] / layer_[g];
    limit = std::max(limit, layer_[g]);
  }
  limit = std::max(limit, layers / rate);
  while (true) {
    std::int64_t held = 0;
    double next = kNever;
    for (std::size_t g = 0; g < stages.size(); ++g) {
      if (stages[g] == 0) continue;
      const auto each = static_cast<std::int64_t>(limit / layer_[g] * (1 + 1e-12));
      held += stages[g] * each;
      next = std::min(next, static_cast<double>(each + 1) * layer_[g]);
    }
    if (held >= layers) return kRounding * pipeline_.microbatches * limit * pipeline_.chunks;
    limit = next;
  }
}

}  // namespace orrery
