#include "sim/search/nearest_miss.hpp"

#include <variant>

#include "strategies/obstacles.hpp"

namespace orrery {

NearestMiss::NearestMiss(const SearchJob& job, const CandidateSpace& space, const Refiner& refiner,
                         StageFitter& fitter, CoarseCandidates& coarse)
    : job_(job), space_(space), refiner_(refiner), fitter_(fitter), coarse_(coarse) {}

std::optional<NearMiss> NearestMiss::find() {
  look_at([](const CoarseCandidate&, std::uint32_t) { return true; });
  if (!best_) return std::nullopt;
  const CoarseCandidate layout = of_best_;
  look_at([&](const CoarseCandidate& one, std::uint32_t) {
    return one.at == layout.at && one.serial == layout.serial;
  });
  const std::uint32_t setting = setting_of_best_;
  look_at([&](const CoarseCandidate&, std::uint32_t one) { return one == setting; });
  return best_;
}

void NearestMiss::look_at(const Wanted& wanted) {
  constexpr std::size_t kMostLooks = 10'000;
  std::size_t count = 0;
  for_each(wanted, [&](const CoarseCandidate&, const Allocation&, std::uint32_t) { ++count; });
  const std::size_t every = count / kMostLooks + 1;
  std::size_t at = 0;
  for_each(wanted, [&](const CoarseCandidate& coarse, const Allocation& allocation, std::uint32_t setting) {
    if (at++ % every == 0) look_at(coarse, allocation, setting);
  });
}

void NearestMiss::for_each(const Wanted& wanted, const Visit& visit) {
  coarse_.for_each(CoarseCandidates::Which::all, [&](const CoarseCandidate& coarse, const StageCounts& stages,
                                                     const NodeRate&, const TimeBound&) {
    for (const Allocation& allocation : refiner_.orders_of(coarse, stages)) {
      for (const std::uint32_t setting : refiner_.family_of(coarse).settings) {
        if (wanted(coarse, setting)) visit(coarse, allocation, setting);
      }
    }
  });
}

void NearestMiss::look_at(const CoarseCandidate& coarse, const Allocation& allocation,
                          std::uint32_t setting) {
  if (order_obstacle(space_.settings[setting], allocation.data, allocation.stages())) return;
  ParallelStrategy plan = refiner_.strategy(allocation, setting);
  const auto fitted = fitter_.fit(plan);
  const auto* trouble = std::get_if<Infeasible>(&fitted);
  if (trouble == nullptr || trouble->kind != InfeasibleKind::memory) return;
  const double excess = fitter_.excess(plan, fitter_.memory_of(plan));
  if (best_ && best_->excess <= excess) return;
  best_ = NearMiss{std::move(plan), *trouble, excess};
  of_best_ = coarse;
  setting_of_best_ = setting;
}

}  // namespace orrery
