// The candidates of a search before their layers are split, each with the least time it can take.
#pragma once

#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

#include "sim/bounds/priced_bounds.hpp"
#include "sim/bounds/time_bound.hpp"
#include "sim/search/best_plans.hpp"
#include "sim/search/candidates.hpp"
#include "sim/search/search.hpp"

namespace orrery {

// A candidate whose layers are not split yet: any order of the groups, any setting of the family.
struct CoarseCandidate {
  double least_time = 0;     // s of one iteration, stretched by interruptions as all times that are compared
  std::uint32_t at = 0;      // index into CandidateSpace::cases
  std::uint32_t family = 0;  // index into WaysCase::families
  std::uint64_t serial = 0;  // of its stage counts on these ways
  std::uint32_t counts = 0;  // index of its stage counts among those that are kept
  bool in_whole_layers = false;  // the bound, not only by the perfect spread
  [[nodiscard]] auto place() const { return std::tuple(at, family, serial); }
};

// Of the nodes that a plan uses.
struct NodeRate {
  double dollars_per_second = 0;  // 0 where a price is not known
  double stretch = 1;             // by interruptions
};

// What such a candidate takes at least.
Least least_of(const CoarseCandidate&, const NodeRate&);
// With the dearer bound, which is not below the other.
CoarseCandidate in_whole_layers(CoarseCandidate, const StageCounts&, const NodeRate&, const TimeBound&);

class CoarseCandidates {
 public:
  // All that is given outlives this. Prices are asked for when a bound is.
  CoarseCandidates(const SearchJob&, const PriceBook&, const CandidateSpace&, const BestPlans&,
                   const SearchProgress&);

  enum class Which { some_of_equal_ways, all, that_may_matter };
  using Visit =
      std::function<void(const CoarseCandidate&, const StageCounts&, const NodeRate&, const TimeBound&)>;
  // Calls visit for every candidate with a shape, for a few of those of equal tensor ways, or for those that
  // may matter and some more; its time is that of the perfect spread.
  void for_each(Which, const Visit&);

  [[nodiscard]] NodeRate rate_of(const Ways&, const StageCounts&) const;
  [[nodiscard]] const TimeBound& bound_of(const CoarseCandidate&);

 private:
  const std::vector<TimeBound>& bounds_of(std::uint32_t of_case);
  [[nodiscard]] bool may_matter(const LeastBound& of_families, const Ways&, const StageCounts&) const;
  [[nodiscard]] double least_rate(const Ways&, const StageCounts&) const;
  [[nodiscard]] std::uint64_t serial_of(const StageCounts&) const;

  const SearchJob& job_;
  const CandidateSpace& space_;
  const BestPlans& best_;
  const SearchProgress& progress_;
  TimeBounds bounds_;
  std::vector<std::vector<TimeBound>> case_bounds_;  // [case][family]
};

}  // namespace orrery
