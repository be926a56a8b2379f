#include "strategies/partition.hpp"

#include <algorithm>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

double load(const StageLoad& stage, int first, int end) {
  return (*stage.before)[static_cast<std::size_t>(end)] - (*stage.before)[static_cast<std::size_t>(first)] + stage.extra;
}

// From the last stage back, each takes as many layers as stay within `limit`, leaving one for each stage before it.
std::optional<std::vector<LayerRange>> fill_from_the_back(const std::vector<StageLoad>& stages, double limit) {
  std::vector<LayerRange> ranges(stages.size());
  int end = static_cast<int>(stages.front().before->size()) - 1;
  for (std::size_t stage = stages.size(); stage-- > 0;) {
    const int left = static_cast<int>(stage);  // layers the stages before this one need
    const int lowest = std::max(left, end - stages[stage].most_layers);
    if (lowest >= end || load(stages[stage], end - 1, end) > limit) return std::nullopt;
    const auto& before = *stages[stage].before;
    const double from = before[static_cast<std::size_t>(end)] + stages[stage].extra - limit;
    const auto begin = before.begin() + lowest;
    int first = static_cast<int>(std::lower_bound(begin, before.begin() + end - 1, from) - before.begin());
    while (first < end - 1 && load(stages[stage], first, end) > limit) ++first;
    ranges[stage] = {first, end - first};
    end = first;
  }
  if (end != 0) return std::nullopt;
  return ranges;
}

double slowest(const std::vector<StageLoad>& stages, const std::vector<LayerRange>& ranges) {
  double most = 0.0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    most = std::max(most, load(stages[i], ranges[i].first, ranges[i].first + ranges[i].count));
  }
  return most;
}

}  // namespace

std::optional<std::vector<LayerRange>> partition_layers(const std::vector<StageLoad>& stages) {
  ORRERY_ENSURE(!stages.empty());
  double high = 0.0;
  for (const StageLoad& stage : stages) high += load(stage, 0, static_cast<int>(stage.before->size()) - 1);
  auto best = fill_from_the_back(stages, high);
  if (!best) return std::nullopt;
  high = slowest(stages, *best);
  double low = 0.0;
  // Every success moves `high` down to a load that some split really has, so the loop ends at the least of them
  // within rounding.
  for (int round = 0; round < 60 && high - low > 1e-12 * high; ++round) {
    const double middle = low + (high - low) / 2;
    if (auto split = fill_from_the_back(stages, middle)) {
      best = std::move(split);
      high = slowest(stages, *best);
    } else {
      low = middle;
    }
  }
  return best;
}

}  // namespace orrery
