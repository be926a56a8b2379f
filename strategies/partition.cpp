#include "strategies/partition.hpp"

#include <algorithm>
#include <limits>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

double load(const StageLoad& stage, int first, int end) {
  return (*stage.before)[static_cast<std::size_t>(end)] - (*stage.before)[static_cast<std::size_t>(first)] +
         stage.extra;
}

using Table = std::vector<std::vector<double>>;

// [stage][i]: the least possible slowest load of stages 0 .. stage - 1 over layers 0 .. i - 1; infinite where
// there is no such split.
Table least_slowest(const std::vector<StageLoad>& stages, int layers) {
  Table least(stages.size() + 1, std::vector<double>(static_cast<std::size_t>(layers) + 1, kImpossible));
  least[0][0] = 0.0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const int stages_after = static_cast<int>(stages.size() - stage) - 1;
    for (int end = static_cast<int>(stage) + 1; end <= layers - stages_after; ++end) {
      double& best = least[stage + 1][static_cast<std::size_t>(end)];
      for (int first = end - 1; first >= std::max(0, end - stages[stage].most_layers); --first) {
        const double here = load(stages[stage], first, end);
        if (here >= best) break;  // a longer stretch takes no less
        best = std::min(best, std::max(here, least[stage][static_cast<std::size_t>(first)]));
      }
    }
  }
  return least;
}

// From the last stage back, each takes as many layers as leave a split within `limit` to the stages before
// it.
std::vector<LayerRange> fill_from_the_back(const std::vector<StageLoad>& stages, const Table& least,
                                           int layers) {
  const double limit = least.back().back();
  std::vector<LayerRange> ranges(stages.size());
  int end = layers;
  for (std::size_t stage = stages.size(); stage-- > 0;) {
    int first = end - 1;
    for (int i = first; i >= std::max(0, end - stages[stage].most_layers); --i) {
      if (load(stages[stage], i, end) > limit) break;
      if (least[stage][static_cast<std::size_t>(i)] <= limit) first = i;
    }
    ranges[stage] = {first, end - first};
    end = first;
  }
  ORRERY_ENSURE(end == 0);
  return ranges;
}

}  // namespace

std::optional<std::vector<LayerRange>> partition_layers(const std::vector<StageLoad>& stages) {
  ORRERY_ENSURE(!stages.empty());
  const int layers = static_cast<int>(stages.front().before->size()) - 1;
  if (layers < static_cast<int>(stages.size())) return std::nullopt;
  const Table least = least_slowest(stages, layers);
  if (least.back().back() == kImpossible) return std::nullopt;
  return fill_from_the_back(stages, least, layers);
}

}  // namespace orrery
