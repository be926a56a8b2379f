#include "sim/search/look_ahead.hpp"

#include "strategies/obstacles.hpp"

namespace orrery {

LookAhead::LookAhead(Refiner& refiner, StageFitter& fitter, FoundPlans& found)
    : is_on_(found.plays_ahead()), refiner_(refiner), fitter_(fitter), found_(found) {}

void LookAhead::forget_all() {
  unseen_.clear();
  soon_.clear();
}

// A coarse candidate is looked at when it may be refined to what comes next.
void LookAhead::begin_next() {
  if (!is_on_) return;
  found_.drop_begun();
  constexpr int kMostLooks = 32;  // at once: the thread that asks has plays of its own to wait for
  for (int looks = 0; found_.may_begin() && looks < kMostLooks;) {
    const bool is_sure =
        !soon_.empty() && (unseen_.empty() || soon_.begin()->least.time <= unseen_.begin()->least_time);
    if (is_sure) {
      const Refined next = *soon_.begin();
      soon_.erase(soon_.begin());
      if (found_.may_matter(next.least) && !found_.has_begun(next.place()))
        found_.begin(refiner_.splits_of(next), next.place());
    } else {
      if (unseen_.empty()) return;
      look_at(*unseen_.begin());
      unseen_.erase(unseen_.begin());
      ++looks;
    }
  }
}

void LookAhead::look_at(const CoarseCandidate& coarse) {
  const FamilyCase& family = refiner_.family_of(coarse);
  const std::vector<Allocation> all = refiner_.orders_of(coarse);
  for (std::uint32_t order = 0; order < all.size(); ++order) {
    for (const std::uint32_t index : family.settings) {
      const Setting& setting = refiner_.setting(index);
      if (order_obstacle(setting, all[order].data, all[order].stages())) continue;
      if (!refiner_.may_fit(all[order], index, family.microbatches)) continue;
      ParallelStrategy plan = refiner_.strategy(all[order], index);
      if (!std::holds_alternative<FittedStages>(fitter_.fit(plan))) continue;
      const Seconds time = refiner_.least_time(with_overlaps(plan, setting).back());
      soon_.insert(Refined{found_.least(plan, time), coarse, order, index});
    }
  }
}

}  // namespace orrery
