// The mixes of replicas among the candidates of a search.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/search/found_plans.hpp"
#include "sim/search/mix_fitter.hpp"

namespace orrery {

class MixSearch {
 public:
  MixSearch(const SearchJob&, PriceBook&, StageFitter&, FoundPlans&, SearchSpaceCounts&);

  // Counts all, and asks the book for the prices of those that have a shape.
  void enumerate(std::vector<Setting>);
  // Whether all are fitted, so that every rejection is counted.
  enum class Fitting { of_all, of_those_that_may_matter };
  // Plays those that may matter beside what is found already, soonest first. Their places begin at `first`.
  void play(Fitting, std::uint32_t first);

 private:
  // With the settings that have a shape.
  struct MixCase {
    ReplicaMix mix;
    std::vector<std::uint32_t> settings;
  };
  struct FittedCase {
    FittedMix mix;
    std::optional<FittedMix> equal;  // the same with equal layers
    Least least;                     // of both
    std::uint32_t at = 0;            // index of the MixCase
    std::uint32_t setting = 0;
  };
  void need_spread_rings(const ReplicaMix&);
  [[nodiscard]] std::vector<Split> splits_of(const FittedCase&) const;
  [[nodiscard]] std::optional<FittedCase> fit(Fitting, std::uint32_t at, std::uint32_t setting);

  const SearchJob& job_;
  PriceBook& book_;
  MixFitter mixer_;
  FoundPlans& found_;
  SearchSpaceCounts& counts_;
  std::vector<Setting> settings_;
  std::vector<MixCase> cases_;
};

}  // namespace orrery
