// Of a search that found nothing: the candidate that came closest to fitting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "sim/search/refiner.hpp"

namespace orrery {

class NearestMiss {
 public:
  // All that is given outlives this.
  NearestMiss(const SearchJob&, const CandidateSpace&, const Refiner&, StageFitter&, CoarseCandidates&);

  // The least by StageFitter::excess. Exact where there are at most 10,000 candidates; else of so many evenly
  // spread ones, then of all settings on the layout of the best of these, then of that setting on other
  // layouts, of each again 10,000 at most. Absent where nothing lacks memory.
  std::optional<NearMiss> find();

 private:
  // A candidate, but for the order of its groups.
  using Wanted = std::function<bool(const CoarseCandidate&, std::uint32_t setting)>;
  using Visit = std::function<void(const CoarseCandidate&, const Allocation&, std::uint32_t setting)>;
  void look_at(const Wanted&);
  void for_each(const Wanted&, const Visit&);
  void look_at(const CoarseCandidate&, const Allocation&, std::uint32_t setting);

  const SearchJob& job_;
  const CandidateSpace& space_;
  const Refiner& refiner_;
  StageFitter& fitter_;
  CoarseCandidates& coarse_;
  std::optional<NearMiss> best_;
  CoarseCandidate of_best_;
  std::uint32_t setting_of_best_ = 0;
};

}  // namespace orrery
