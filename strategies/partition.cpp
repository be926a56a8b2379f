#include "strategies/partition.hpp"

#include <algorithm>
#include <limits>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

double load(const StageLoad& stage, int first, int end) {
  const std::vector<double>& before = stage.before->whole;
  const double whole = before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(first)];
  if (stage.repeated == 0) return whole;
  const auto last = static_cast<std::size_t>(std::min(first + stage.repeated, end));
  return whole + stage.before->repeat[last] - stage.before->repeat[static_cast<std::size_t>(first)];
}

int layer_count(const std::vector<StageLoad>& stages) {
  return static_cast<int>(stages.front().before->whole.size()) - 1;
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

std::optional<std::vector<LayerRange>> least_slowest_split(const std::vector<StageLoad>& stages) {
  ORRERY_ENSURE(!stages.empty());
  const int layers = layer_count(stages);
  if (layers < static_cast<int>(stages.size())) return std::nullopt;
  const Table least = least_slowest(stages, layers);
  if (least.back().back() == kImpossible) return std::nullopt;
  return fill_from_the_back(stages, least, layers);
}

namespace {

StageWork work_of(const StageLoad& stage, int first, int end) {
  const std::vector<double>& forward = stage.before->forward;
  return {forward[static_cast<std::size_t>(end)] - forward[static_cast<std::size_t>(first)],
          load(stage, first, end)};
}

// Finds the split with the least pipeline_time, knowing one.
class QuickestSplit {
 public:
  QuickestSplit(const std::vector<StageLoad>& stages, const PipelineShape& shape,
                const std::vector<LayerRange>& known)
      : stages_(stages), shape_(shape), layers_(layer_count(stages)) {
    std::vector<StageWork> work;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      const LayerRange& range = known[stage];
      work.push_back(work_of(stages[stage], range.first, range.first + range.count));
    }
    limit_ = pipeline_time(work, shape) * (1 + kRounding);
    find_least_before();
    find_most_before();
  }

  // Empty where none is better than the known one but for rounding.
  std::vector<LayerRange> find() {
    points_.push_back({0, 0, 0, -1});
    std::vector<Front> after(static_cast<std::size_t>(layers_) + 1);
    after.back() = {0, 1};
    for (int stage = shape_.stages; stage-- > 0;) {
      std::vector<Front> here(static_cast<std::size_t>(layers_) + 1);
      const int last = std::min(most_before_[static_cast<std::size_t>(stage)], layers_ - 1);
      for (int first = stage; first <= last; ++first) {
        here[static_cast<std::size_t>(first)] = front_of(stage, first, after);
      }
      after = std::move(here);
    }
    std::vector<LayerRange> ranges;
    const Front whole = after.front();
    if (whole.first == whole.end) return ranges;
    const auto best = std::min_element(points_.begin() + whole.first, points_.begin() + whole.end,
                                       [](const Point& a, const Point& b) { return a.time < b.time; });
    int next = 0;
    for (const Point* at = &*best; at->then >= 0; at = &points_[static_cast<std::size_t>(at->then)]) {
      ranges.push_back({next, at->count});
      next += at->count;
    }
    return ranges;
  }

 private:
  static constexpr double kRounding = 1e-12;

  // A split of the last layers over the last stages.
  struct Point {
    double work;  // s a microbatch
    double time;  // pipeline_time of these stages alone
    int count;    // layers of the first of them
    int then;     // of points_: the stages after it; -1: there are none
  };
  struct Front {
    std::ptrdiff_t first = 0, end = 0;  // of points_
  };

  Front front_of(int stage, int first, const std::vector<Front>& after) {
    const StageLoad& here = stages_[static_cast<std::size_t>(stage)];
    const auto begin = static_cast<std::ptrdiff_t>(points_.size());
    const double before = stage > 0 ? least_before_[static_cast<std::size_t>(first)] : 0;
    const int most = std::min(here.most_layers, layers_ - first);
    for (int count = 1; count <= most; ++count) {
      const StageWork work = work_of(here, first, first + count);
      if (before + shape_.microbatches * work.whole > limit_) break;
      const Front& front = after[static_cast<std::size_t>(first + count)];
      for (std::ptrdiff_t then = front.first; then < front.end; ++then) {
        const Point behind = points_[static_cast<std::size_t>(then)];
        const double time = std::max(stage_span(work, behind.work, stage, shape_), work.whole + behind.time);
        if (before + time > limit_) continue;
        add({work.whole + behind.work, time, count, static_cast<int>(then)}, begin);
      }
    }
    return {begin, static_cast<std::ptrdiff_t>(points_.size())};
  }

  void add(const Point& point, std::ptrdiff_t begin) {
    const auto better = [](const Point& a, const Point& b) {
      return a.work <= b.work * (1 + kRounding) && a.time <= b.time;
    };
    const auto first = points_.begin() + begin;
    if (std::any_of(first, points_.end(), [&](const Point& other) { return better(other, point); })) return;
    points_.erase(
        std::remove_if(first, points_.end(), [&](const Point& other) { return better(point, other); }),
        points_.end());
    points_.push_back(point);
  }

  // Of the first i layers, each on the stage that is quickest with it.
  void find_least_before() {
    std::vector<const PrefixTimes*> tables;
    for (const StageLoad& stage : stages_) {
      if (tables.empty() || tables.back() != stage.before) tables.push_back(stage.before);
    }
    least_before_.assign(1, 0.0);
    for (std::size_t i = 0; i < static_cast<std::size_t>(layers_); ++i) {
      double least = kImpossible;
      for (const PrefixTimes* table : tables) least = std::min(least, table->whole[i + 1] - table->whole[i]);
      least_before_.push_back(least_before_.back() + least * (1 - kRounding));
    }
  }

  // Layers that the stages before one can hold within the limit.
  void find_most_before() {
    int end = 0;
    for (const StageLoad& stage : stages_) {
      most_before_.push_back(end);
      const int first = end;
      while (end < layers_ && end - first < stage.most_layers &&
             shape_.microbatches * load(stage, first, end + 1) <= limit_) {
        ++end;
      }
    }
  }

  const std::vector<StageLoad>& stages_;
  const PipelineShape& shape_;
  int layers_;
  double limit_ = 0;                  // s
  std::vector<double> least_before_;  // [layers] s of one microbatch
  std::vector<int> most_before_;      // [stage] layers
  std::vector<Point> points_;
};

}  // namespace

std::optional<std::vector<LayerRange>> quickest_split(const std::vector<StageLoad>& stages,
                                                      const PipelineShape& shape) {
  std::optional<std::vector<LayerRange>> known = least_slowest_split(stages);
  if (!known || stages.size() == 1) return known;
  std::vector<LayerRange> best = QuickestSplit(stages, shape, *known).find();
  return best.empty() ? std::move(known) : std::move(best);
}

std::vector<LayerRange> equal_parts(int layers, int parts) {
  std::vector<LayerRange> result;
  if (parts > layers) return result;
  int next = 0;
  for (int part = 0; part < parts; ++part) {
    result.push_back({next, layers / parts + (part < layers % parts ? 1 : 0)});
    next += result.back().count;
  }
  return result;
}

// least[r][n]: the least slowest load of the runs from r on with n layers.
std::vector<int> equal_split(const std::vector<EqualStages>& runs, int layers) {
  Table least(runs.size() + 1, std::vector<double>(static_cast<std::size_t>(layers) + 1, kImpossible));
  std::vector<std::vector<int>> choice(runs.size(), std::vector<int>(static_cast<std::size_t>(layers) + 1));
  least.back()[0] = 0;
  for (std::size_t run = runs.size(); run-- > 0;) {
    for (int left = 1; left <= layers; ++left) {
      double& best = least[run][static_cast<std::size_t>(left)];
      for (int each = 1; each * runs[run].stages <= left; ++each) {
        const double here = each * runs[run].layer + runs[run].extra;
        const double rest = least[run + 1][static_cast<std::size_t>(left - each * runs[run].stages)];
        if (std::max(here, rest) >= best) continue;
        best = std::max(here, rest);
        choice[run][static_cast<std::size_t>(left)] = each;
      }
    }
  }
  std::vector<int> counts;
  if (least.front().back() == kImpossible) return counts;
  int left = layers;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    counts.push_back(choice[run][static_cast<std::size_t>(left)]);
    left -= counts.back() * runs[run].stages;
  }
  return counts;
}

}  // namespace orrery
