#include "sim/search/coarse_candidates.hpp"

#include <algorithm>
#include <numeric>

#include "costmodels/money/interruptions.hpp"
#include "sim/search/stage_boxes.hpp"

namespace orrery {
namespace {

// Multiples of their steps by 1, 2, 3, 4, 6, 8, 12, ...
bool are_round(const StageCounts& stages, const StageGrid& grid) {
  for (std::size_t group = 0; group < stages.size(); ++group) {
    int steps = stages[group] / grid.steps[group];
    while (steps > 3 && steps % 2 == 0) steps /= 2;
    if (steps > 3) return false;
  }
  return true;
}

}  // namespace

Least least_of(const CoarseCandidate& coarse, const NodeRate& rate) {
  return {coarse.least_time, coarse.least_time * rate.dollars_per_second};
}

CoarseCandidate in_whole_layers(CoarseCandidate coarse, const StageCounts& stages, const NodeRate& rate,
                                const TimeBound& bound) {
  coarse.least_time = std::max(coarse.least_time, bound.whole_layers(stages) * rate.stretch);
  coarse.in_whole_layers = true;
  return coarse;
}

CoarseCandidates::CoarseCandidates(const SearchJob& job, const PriceBook& book, const CandidateSpace& space,
                                   const BestPlans& best, const SearchProgress& progress)
    : job_(job),
      space_(space),
      best_(best),
      progress_(progress),
      bounds_(book, job.space.most_stages, job.global_batch) {}

void CoarseCandidates::for_each(Which which, const Visit& visit) {
  for (std::uint32_t c = 0; c < space_.cases.size(); ++c) {
    progress_("bounding plans", c, space_.cases.size());
    const WaysCase& at = space_.cases[c];
    if (which == Which::some_of_equal_ways && !at.ways.tensors.empty()) return;  // they come last
    const std::vector<TimeBound>& bounds = bounds_of(c);
    const auto visit_families = [&](const StageCounts& stages, const std::vector<std::uint32_t>& families) {
      const auto all = static_cast<std::size_t>(std::accumulate(stages.begin(), stages.end(), 0));
      const NodeRate rate = rate_of(at.ways, stages);
      const std::uint64_t serial = serial_of(stages);
      for (const std::uint32_t f : families) {
        if (at.families[f].stages_fit[all] == 0) continue;
        visit({bounds[f].spread(stages) * rate.stretch, c, f, serial}, stages, rate, bounds[f]);
      }
    };
    // Of equal ways most counts would be looked at one by one after all.
    if (which == Which::that_may_matter && !at.ways.tensors.empty()) {
      StageBoxes(job_, at, bounds, best_).for_each(visit_families);
      continue;
    }
    std::vector<std::uint32_t> all_families(bounds.size());
    std::iota(all_families.begin(), all_families.end(), 0U);
    const StageGrid grid = stage_grid(job_.cluster, job_.space, at.ways);
    const LeastBound of_families(bounds, job_.cluster.groups.size());
    for_each_stage_counts(job_.cluster, job_.space, job_.mode, at.ways, [&](const StageCounts& stages) {
      if (!at.fits(stages)) return;
      if (which == Which::some_of_equal_ways && !are_round(stages, grid)) return;
      if (which == Which::that_may_matter && !may_matter(of_families, at.ways, stages)) return;
      visit_families(stages, all_families);
    });
  }
}

NodeRate CoarseCandidates::rate_of(const Ways& ways, const StageCounts& stages) const {
  const std::vector<int> used = nodes_in_use(job_.cluster, ways, stages);
  const auto cost = run_cost(job_.cluster, paid_nodes(job_.cluster, used), Seconds(1), 1, 1);
  return {cost ? cost->price.value() / 3600 : 0, interruptions(job_.cluster, used).stretch};
}

const TimeBound& CoarseCandidates::bound_of(const CoarseCandidate& coarse) {
  return bounds_of(coarse.at)[coarse.family];
}

// Of the families of a case.
const std::vector<TimeBound>& CoarseCandidates::bounds_of(std::uint32_t of_case) {
  if (case_bounds_.empty()) case_bounds_.resize(space_.cases.size());
  std::vector<TimeBound>& bounds = case_bounds_[of_case];
  const WaysCase& at = space_.cases[of_case];
  for (std::size_t f = bounds.size(); f < at.families.size(); ++f) {
    std::vector<Setting> settings;
    for (const std::uint32_t index : at.families[f].settings) settings.push_back(space_.settings[index]);
    bounds.push_back(
        bounds_.bound(at.ways, at.group_fits, space_.families[at.families[f].family].common, settings));
  }
  return bounds;
}

// Whether any family may, at a first look.
bool CoarseCandidates::may_matter(const LeastBound& of_families, const Ways& ways,
                                  const StageCounts& stages) const {
  const double time = of_families.spread_within(stages);
  return best_.may_matter({time, time * least_rate(ways, stages)});
}

// Not above NodeRate::dollars_per_second.
double CoarseCandidates::least_rate(const Ways& ways, const StageCounts& stages) const {
  double dollars = 0;  // an hour
  for (std::size_t group = 0; group < stages.size(); ++group) {
    const NodeGroup& nodes = job_.cluster.groups[group];
    const double used = static_cast<double>(stages[group] * ways.gpus_of_stage(static_cast<int>(group))) /
                        nodes.gpus_per_node;
    if (used > 0 && !nodes.price) return 0;
    if (nodes.price) dollars += used * nodes.price->value();
  }
  return dollars / 3600 * (1 - 1e-9);
}

// In the order of for_each_stage_counts.
std::uint64_t CoarseCandidates::serial_of(const StageCounts& stages) const {
  std::uint64_t serial = 0;
  for (const int of_group : stages) {
    serial = serial * (static_cast<std::uint64_t>(job_.space.most_stages) + 1) +
             static_cast<std::uint64_t>(of_group);
  }
  return serial;
}

}  // namespace orrery
