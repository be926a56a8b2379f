#include "sim/search/stage_boxes.hpp"

#include <algorithm>
#include <numeric>

namespace orrery {

StageBoxes::StageBoxes(const SearchJob& job, const WaysCase& at, const std::vector<TimeBound>& bounds,
                       const BestPlans& best)
    : job_(job), case_(at), bounds_(bounds), best_(best), grid_(stage_grid(job.cluster, job.space, at.ways)) {
  for (std::size_t group = 0; group < grid_.caps.size(); ++group) {
    const NodeGroup& nodes = job.cluster.groups[group];
    const double of_node = nodes.price ? nodes.price->value() / 3600 : 0;
    stage_rate_.push_back(of_node * static_cast<double>(grid_.gpus[group]) / nodes.gpus_per_node);
    fixed_rate_.push_back(of_node * nodes.count.minimum);
  }
}

void StageBoxes::for_each(const Visit& visit) {
  std::vector<std::uint32_t> families(bounds_.size());
  std::iota(families.begin(), families.end(), 0U);
  const std::size_t groups = grid_.caps.size();
  for (std::size_t mask = 1; mask < std::size_t{1} << groups; ++mask) {
    Box box{StageCounts(groups, 0), StageCounts(groups, 0)};
    bool fits = true;
    priced_ = true;
    for (std::size_t group = 0; group < groups; ++group) {
      const bool used = (mask >> group & 1U) != 0;
      const NodeGroup& nodes = job_.cluster.groups[group];
      if (used) box.least[group] = grid_.steps[group];
      if (used) box.most[group] = grid_.caps[group] - grid_.caps[group] % grid_.steps[group];
      fits = fits && box.least[group] <= box.most[group];
      priced_ = priced_ && (nodes.price || (!used && nodes.count.minimum == 0));
    }
    const auto used = mask & (mask - 1);  // more than one
    if (!fits || !case_.fits(box.least) || !at_home(case_.ways, box.least)) continue;
    if (job_.mode == SearchMode::homogeneous && used != 0) continue;
    search(box, families, visit);
  }
}

void StageBoxes::search(const Box& box, const std::vector<std::uint32_t>& families, const Visit& visit) {
  const int fewest = std::accumulate(box.least.begin(), box.least.end(), 0);
  if (!job_.space.allows_stages(fewest, std::accumulate(box.most.begin(), box.most.end(), 0))) return;
  std::int64_t gpus = 0;
  for (std::size_t group = 0; group < grid_.gpus.size(); ++group)
    gpus += box.least[group] * grid_.gpus[group];
  if (gpus > job_.space.most_gpus) return;
  std::vector<std::uint32_t> left;
  for (const std::uint32_t family : families) {
    if (best_.may_matter(least(box, bounds_[family]))) left.push_back(family);
  }
  if (left.empty()) return;
  std::size_t widest = 0;
  const auto width = [&](std::size_t group) {
    return (box.most[group] - box.least[group]) / grid_.steps[group];
  };
  for (std::size_t group = 1; group < grid_.steps.size(); ++group) {
    if (width(group) > width(widest)) widest = group;
  }
  if (width(widest) == 0) {
    visit(box.least, left);
    return;
  }
  Box lower = box, upper = box;
  lower.most[widest] = box.least[widest] + width(widest) / 2 * grid_.steps[widest];
  upper.least[widest] = lower.most[widest] + grid_.steps[widest];
  search(lower, left, visit);
  search(upper, left, visit);
}

Least StageBoxes::least(const Box& box, const TimeBound& bound) const {
  const double time = bound.spread_within(box.most);
  if (!priced_) return {time, 0};
  double rate = 0;  // USD/s
  for (std::size_t group = 0; group < stage_rate_.size(); ++group)
    rate += std::max(box.least[group] * stage_rate_[group], fixed_rate_[group]);
  return {time, std::max(time * rate, bound.least_money(box.least, box.most, stage_rate_))};
}

}  // namespace orrery
