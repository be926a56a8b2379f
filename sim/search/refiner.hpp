// From the coarse candidates of a search to plans: the order of their groups, a setting, layers that fit.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/bounds/feasibility.hpp"
#include "sim/bounds/layer_limits.hpp"
#include "sim/search/coarse_candidates.hpp"
#include "sim/search/play_ahead.hpp"

namespace orrery {

// A feasible candidate with the least time and money it can take.
struct Refined {
  Least least;
  CoarseCandidate from;
  std::uint32_t order = 0;    // of its groups
  std::uint32_t setting = 0;  // index into CandidateSpace::settings
  [[nodiscard]] CandidatePlace place() const { return {from.at, from.serial, order, setting}; }
};

struct SoonerOf {
  bool operator()(const Refined& a, const Refined& b) const {
    return std::pair(a.least.time, a.place()) < std::pair(b.least.time, b.place());
  }
  bool operator()(const CoarseCandidate& a, const CoarseCandidate& b) const {
    return std::pair(a.least_time, a.place()) < std::pair(b.least_time, b.place());
  }
};

class Refiner {
 public:
  // All that is given outlives this.
  Refiner(const SearchJob&, const PriceBook&, const CandidateSpace&, StageFitter&);

  [[nodiscard]] const WaysCase& case_of(const CoarseCandidate&) const;
  [[nodiscard]] const FamilyCase& family_of(const CoarseCandidate&) const;
  // Its stage counts are shared with those of other families kept right before it.
  void keep_counts(CoarseCandidate&, const StageCounts&);
  [[nodiscard]] StageCounts stages_of(const CoarseCandidate&) const;
  void forget_counts() { kept_counts_.clear(); }

  // Orders of the groups.
  [[nodiscard]] std::vector<Allocation> orders_of(const CoarseCandidate& coarse) const {
    return orders_of(coarse, stages_of(coarse));
  }
  [[nodiscard]] std::vector<Allocation> orders_of(const CoarseCandidate&, const StageCounts&) const;
  [[nodiscard]] const Setting& setting(std::uint32_t index) const;
  [[nodiscard]] ParallelStrategy strategy(const Allocation&, std::uint32_t setting) const;
  // False only where no split of the layers fits.
  bool may_fit(const Allocation&, std::uint32_t setting, std::int64_t microbatches);
  // Of the splits that are tried: the fitted one, and equal layers where these fit. What has most overlaps is
  // bounded the lowest.
  Seconds least_time(const ParallelStrategy& fitted);
  // Those splits with their overlaps, of a candidate that fits.
  std::vector<Split> splits_of(const Refined&);

 private:
  [[nodiscard]] std::size_t groups() const { return job_.cluster.groups.size(); }

  const SearchJob& job_;
  const PriceBook& book_;
  const CandidateSpace& space_;
  StageFitter& fitter_;
  LayerLimits limits_;
  StageCounts kept_counts_;  // of each group, for each candidate that is kept
};

}  // namespace orrery
