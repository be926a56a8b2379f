#include "sim/search/refiner.hpp"

#include <algorithm>

#include "sim/bounds/plan_bound.hpp"

namespace orrery {

Refiner::Refiner(const SearchJob& job, const PriceBook& book, const CandidateSpace& space,
                 StageFitter& fitter)
    : job_(job),
      book_(book),
      space_(space),
      fitter_(fitter),
      limits_(book, job.space.most_stages, job.global_batch) {}

const WaysCase& Refiner::case_of(const CoarseCandidate& coarse) const {
  return space_.cases[coarse.at];
}

const FamilyCase& Refiner::family_of(const CoarseCandidate& coarse) const {
  return case_of(coarse).families[coarse.family];
}

void Refiner::keep_counts(CoarseCandidate& coarse, const StageCounts& stages) {
  const bool are_kept =
      !kept_counts_.empty() && std::equal(stages.rbegin(), stages.rend(), kept_counts_.rbegin());
  if (!are_kept) kept_counts_.insert(kept_counts_.end(), stages.begin(), stages.end());
  coarse.counts = static_cast<std::uint32_t>(kept_counts_.size() / groups() - 1);
}

StageCounts Refiner::stages_of(const CoarseCandidate& coarse) const {
  const auto first = kept_counts_.begin() + static_cast<std::ptrdiff_t>(coarse.counts * groups());
  return {first, first + static_cast<std::ptrdiff_t>(groups())};
}

std::vector<Allocation> Refiner::orders_of(const CoarseCandidate& coarse, const StageCounts& stages) const {
  return orders(job_.cluster, space_.alike, case_of(coarse).ways, stages);
}

const Setting& Refiner::setting(std::uint32_t index) const {
  return space_.settings[index];
}

ParallelStrategy Refiner::strategy(const Allocation& allocation, std::uint32_t setting) const {
  return strategy_of(allocation, space_.settings[setting], job_.global_batch, job_.sequence, job_.type);
}

bool Refiner::may_fit(const Allocation& allocation, std::uint32_t setting, std::int64_t microbatches) {
  return limits_.may_fit(allocation, space_.settings[setting], microbatches);
}

Seconds Refiner::least_time(const ParallelStrategy& fitted) {
  const Seconds least = least_plan_time(book_, fitted);
  if (fitted.chunks > 1) return least;
  ParallelStrategy equal = fitted;
  equal.parts = equal_parts(job_.model.layer_count(), fitted.part_count());
  const Seconds of_equal = least_plan_time(book_, equal);
  return of_equal < least && fitter_.fit_equal(fitted) ? of_equal : least;
}

std::vector<Split> Refiner::splits_of(const Refined& refined) {
  ParallelStrategy plan = strategy(orders_of(refined.from)[refined.order], refined.setting);
  auto fitted = fitter_.fit(plan);
  std::vector<Split> splits;
  const auto add = [&](const std::vector<StageMemory>& memory) {
    for (ParallelStrategy& choice : with_overlaps(plan, setting(refined.setting))) {
      const Seconds least = least_plan_time(book_, choice);
      splits.push_back({std::move(choice), memory, least});
    }
  };
  const auto equal = fitter_.fit_equal(plan);
  add(std::get<FittedStages>(fitted).memory);
  if (equal) {
    plan.parts = equal->parts;
    add(equal->memory);
  }
  return splits;
}

}  // namespace orrery
