// From a mix of replicas and a setting to a plan that fits: one split of the layers, shares, memory of each
// kind.
#pragma once

#include <variant>
#include <vector>

#include "sim/bounds/feasibility.hpp"
#include "strategies/replica_mixes.hpp"

namespace orrery {

struct FittedMix {
  ParallelStrategy strategy;
  std::vector<StageMemory> memory;  // [kind * P + stage]
  Seconds least;                    // of an iteration: no stage works less than on all its microbatches
};

class MixFitter {
 public:
  MixFitter(const PriceBook& book, StageFitter& fitter) : book_(book), fitter_(fitter) {}

  // Seconds of an iteration at least, before anything is split: all GPUs at work all the time.
  [[nodiscard]] Seconds least_time(const ReplicaMix&, const Setting&, std::int64_t global_batch) const;

  // All replicas hold the same parameters, stage by stage, since gradients are reduced over them. The split
  // is the one that suits one of the groups: of those that fit on all, that whose slowest replica is fastest
  // by replica_paces. Where none fits, the trouble with the last.
  std::variant<FittedMix, Infeasible> fit(const ReplicaMix&, const Setting&, std::int64_t global_batch);
  // The same with equal layers, as StageFitter::fit_equal, and shares that suit them.
  std::optional<FittedMix> fit_equal(const FittedMix&);

 private:
  std::variant<FittedMix, Infeasible> fit_as_on(int group, ParallelStrategy);
  std::variant<FittedMix, Infeasible> with_shares(const ParallelStrategy&);
  [[nodiscard]] Seconds slowest(const ParallelStrategy&) const;
  [[nodiscard]] Seconds least_time(const ParallelStrategy&) const;

  const PriceBook& book_;
  StageFitter& fitter_;
};

}  // namespace orrery
