#include "sim/search/search.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <tuple>

#include "sim/bounds/feasibility.hpp"
#include "sim/search/candidates.hpp"
#include "sim/search/coarse_candidates.hpp"
#include "sim/search/found_plans.hpp"
#include "sim/search/look_ahead.hpp"
#include "sim/search/mix_search.hpp"
#include "sim/search/nearest_miss.hpp"
#include "sim/search/refiner.hpp"
#include "strategies/obstacles.hpp"
#include "strategies/rule_book.hpp"

namespace orrery {
namespace {

Seconds clock_now() {
  return Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// Below so many candidates with a shape nothing is pruned, so that every rejection is counted.
constexpr std::size_t kFewCandidates = 20'000;
// Coarse candidates kept at once: 40 bytes each.
constexpr std::size_t kMostKept = 1'000'000;

class Searcher {
 public:
  Searcher(const SearchJob& job, std::vector<Rule>& rules, const CostModels& models, PriceBook& book,
           const SearchProgress& progress)
      : job_(job),
        rules_(job.model, rules),
        models_(models),
        book_(book),
        progress_(progress),
        fitter_(book),
        found_(job, book, fitter_, rules_, result_),
        mixes_(job, book, fitter_, found_, result_.counts),
        refiner_(job, book, space_, fitter_),
        ahead_(refiner_, fitter_, found_),
        coarse_(job, book, space_, found_.best(), progress) {}

  SearchResult run() {
    Seconds before = clock_now();
    const auto lap = [&before] {
      const Seconds now = clock_now();
      const Seconds elapsed = now - before;
      before = now;
      return elapsed;
    };
    enumerate();
    result_.elapsed.enumerate = lap();
    progress_("pricing operators", 0, 1);
    result_.counts.operators = book_.predict(models_);
    result_.elapsed.predict = lap();
    if (pruning_) plant_seeds();
    keep_all(pruning_ ? Which::that_may_matter : Which::all);
    work_off();
    result_.counts.pruned += space_.shaped - refined_count_;
    // Mixes come after all other candidates: much is found by then.
    mixes_.play(pruning_ ? MixSearch::Fitting::of_those_that_may_matter : MixSearch::Fitting::of_all,
                static_cast<std::uint32_t>(space_.cases.size()));
    result_.plans = found_.take_best();
    if (all_lack_memory()) result_.nearest = NearestMiss(job_, space_, refiner_, fitter_, coarse_).find();
    result_.elapsed.estimate = lap();
    return std::move(result_);
  }

 private:
  using Which = CoarseCandidates::Which;

  void enumerate() {
    progress_("enumerating", 0, 1);
    space_ = candidate_space(job_);
    result_.counts.enumerated = space_.enumerated;
    for (const auto& [obstacle, count] : space_.obstacles)
      found_.reject(InfeasibleKind::shape, obstacle, count);
    pruning_ = job_.pruning == Pruning::always ||
               (job_.pruning == Pruning::where_large && space_.shaped > kFewCandidates);
    for (const WaysCase& at : space_.cases) need_prices(at);
    mixes_.enumerate(space_.settings);
  }

  // Or a shape; no limit and no rule has dropped any.
  [[nodiscard]] bool all_lack_memory() const {
    const auto& rejected = result_.counts.rejected;
    return result_.counts.evaluated == 0 && result_.counts.pruned == 0 &&
           rejected.count(InfeasibleKind::memory) > 0 && rejected.count(InfeasibleKind::budget) == 0 &&
           rejected.count(InfeasibleKind::rule) == 0;
  }

  // And works them off where they become too many.
  void keep_all(Which which) {
    coarse_.for_each(which, [&](const CoarseCandidate& coarse, const StageCounts& stages,
                                const NodeRate& rate, const TimeBound&) {
      if (pruning_ && !found_.may_matter(least_of(coarse, rate))) return;
      if (seeds_.count(coarse.place()) > 0) return;
      keep(coarse, stages);
      if (kept_.size() >= kMostKept) work_off();
    });
  }

  void need_prices(const WaysCase& at) {
    for (int group = 0; group < static_cast<int>(at.group_fits.size()); ++group) {
      if (at.group_fits[static_cast<std::size_t>(group)] == 0) continue;
      for (const FamilyCase& family : at.families) {
        const Setting& setting = space_.families[family.family].common;
        book_.need(shard_key(group, at.ways, setting));
      }
      need_rings(group, at.ways);
    }
  }

  // Of gradients and parameters.
  void need_rings(int group, const Ways& ways) {
    const int tensor = ways.tensor_of(group), copies = ways.data * ways.context;
    // Experts of each tensor rank's own are shared by fewer replicas.
    const auto& choices = job_.space.expert_tensor;
    const bool own = ways.expert % tensor == 0 &&
                     std::any_of(choices.begin(), choices.end(), [](const auto& one) { return one == 1; });
    for (const int instances : job_.space.instance_counts()) {
      book_.need_rings(group, tensor, copies, ways.expert, instances);
      if (own) book_.need_rings(group, tensor, copies, ways.expert / tensor, instances);
      if (job_.may_reorder()) book_.need_spread_rings(group, tensor, copies, ways.expert, instances);
    }
  }

  void keep(CoarseCandidate coarse, const StageCounts& stages) {
    refiner_.keep_counts(coarse, stages);
    kept_.push_back(coarse);
  }

  // Good plans early, so that few candidates need to be kept: of every stretch of times the cheapest of some.
  void plant_seeds() {
    if (space_.shaped < kMostKept) return;
    constexpr double kStretches = 64;  // of a factor of two
    struct Seed {
      Least least;
      CoarseCandidate coarse;
      StageCounts stages;
    };
    std::map<int, Seed> seeds;
    const auto beaten = [&](int stretch, const Least& by) {
      const auto found = seeds.find(stretch);
      return found != seeds.end() && found->second.least.money <= by.money;
    };
    const auto stretch_of = [](const CoarseCandidate& coarse) {
      return static_cast<int>(std::floor(kStretches * std::log2(coarse.least_time)));
    };
    coarse_.for_each(Which::some_of_equal_ways, [&](CoarseCandidate coarse, const StageCounts& stages,
                                                    const NodeRate& rate, const TimeBound& bound) {
      if (beaten(stretch_of(coarse), least_of(coarse, rate))) return;
      coarse = in_whole_layers(coarse, stages, rate, bound);
      const int stretch = stretch_of(coarse);
      if (beaten(stretch, least_of(coarse, rate)) || !may_fit(coarse, stages)) return;
      seeds[stretch] = {least_of(coarse, rate), coarse, stages};
    });
    for (const auto& [stretch, seed] : seeds) {
      if (!found_.may_matter(seed.least)) continue;
      keep(seed.coarse, seed.stages);
      seeds_.insert(seed.coarse.place());
    }
    work_off();
  }

  // Whether any order of the groups and any setting of the family may fit.
  bool may_fit(const CoarseCandidate& coarse, const StageCounts& stages) {
    const FamilyCase& family = refiner_.family_of(coarse);
    for (const Allocation& allocation : refiner_.orders_of(coarse, stages)) {
      for (const std::uint32_t setting : family.settings) {
        if (refiner_.may_fit(allocation, setting, family.microbatches)) return true;
      }
    }
    return false;
  }

  // Refines and plays what is kept, soonest first. The dearer bound is asked for when a candidate is due, and
  // may put it off.
  void work_off() {
    std::sort(kept_.begin(), kept_.end(), SoonerOf());
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (i % 1024 == 0) progress_("fitting plans", i, kept_.size());
      refine_until(kept_[i].least_time);
      refine_if_due(kept_[i]);
    }
    refine_until(std::numeric_limits<double>::infinity());
    play_until(std::numeric_limits<double>::infinity());
    kept_.clear();
    refiner_.forget_counts();
    ahead_.forget_all();
  }

  void refine_until(double least_time) {
    while (!put_off_.empty() && put_off_.begin()->least_time <= least_time) {
      const CoarseCandidate next = *put_off_.begin();
      put_off_.erase(put_off_.begin());
      ahead_.forget(next);
      refine_if_due(next);
    }
  }

  void refine_if_due(const CoarseCandidate& coarse) {
    play_until(coarse.least_time);
    const StageCounts stages = refiner_.stages_of(coarse);
    if (pruning_) {
      const NodeRate rate = coarse_.rate_of(refiner_.case_of(coarse).ways, stages);
      if (!found_.may_matter(least_of(coarse, rate))) return;
      if (!coarse.in_whole_layers) {
        const CoarseCandidate later = in_whole_layers(coarse, stages, rate, coarse_.bound_of(coarse));
        put_off_.insert(later);
        ahead_.see(later);
        return;
      }
    }
    refine(coarse);
  }

  void refine(const CoarseCandidate& coarse) {
    const FamilyCase& family = refiner_.family_of(coarse);
    const std::vector<Allocation> all = refiner_.orders_of(coarse);
    for (std::uint32_t order = 0; order < all.size(); ++order) {
      for (const std::uint32_t setting : family.settings) {
        refine(all[order], {{}, coarse, order, setting}, family.microbatches);
      }
    }
  }

  void refine(const Allocation& allocation, Refined refined, std::int64_t microbatches) {
    ++refined_count_;
    const Setting& setting = refiner_.setting(refined.setting);
    if (const auto obstacle = order_obstacle(setting, allocation.data, allocation.stages())) {
      found_.reject(InfeasibleKind::shape, std::string(*obstacle));
      return;
    }
    if (!refiner_.may_fit(allocation, refined.setting, microbatches)) {
      found_.reject(InfeasibleKind::memory, "out of memory");
      return;
    }
    ParallelStrategy plan = refiner_.strategy(allocation, refined.setting);
    const auto fitted = fitter_.fit(plan);
    if (const auto* trouble = std::get_if<Infeasible>(&fitted)) {
      found_.reject(*trouble);
      return;
    }
    const std::vector<ParallelStrategy> choices = found_.left_by_rules(with_overlaps(plan, setting));
    if (choices.empty()) return;
    const Seconds time = refiner_.least_time(choices.back());
    if (found_.beyond_limits(plan, time)) return;
    refined.least = found_.least(plan, time);
    refined_.insert(refined);
    ahead_.see(refined);
  }

  void play_until(double least_time) {
    while (!refined_.empty() && refined_.begin()->least.time <= least_time) {
      const Refined next = *refined_.begin();
      refined_.erase(refined_.begin());
      ahead_.forget(next);
      auto begun = found_.begun(next.place());
      if (!found_.may_matter(next.least)) continue;
      ahead_.begin_next();
      found_.play(begun ? std::move(*begun) : refiner_.splits_of(next), next.place());
    }
  }

  const SearchJob& job_;
  RuleBook rules_;
  const CostModels& models_;
  PriceBook& book_;
  const SearchProgress& progress_;
  StageFitter fitter_;
  SearchResult result_;
  FoundPlans found_;
  MixSearch mixes_;
  CandidateSpace space_;
  Refiner refiner_;
  LookAhead ahead_;
  CoarseCandidates coarse_;
  bool pruning_ = false;
  std::size_t refined_count_ = 0;
  std::set<decltype(std::declval<CoarseCandidate>().place())> seeds_;  // worked off already
  std::vector<CoarseCandidate> kept_;
  std::set<CoarseCandidate, SoonerOf> put_off_;  // of kept_
  std::set<Refined, SoonerOf> refined_;
};

}  // namespace

SearchResult search(const SearchJob& job, std::vector<Rule>& rules, const CostModels& models, PriceBook& book,
                    const SearchProgress& progress) {
  const SearchJob possible = as_stack_can(job, book.stack());
  return Searcher(possible, rules, models, book, progress).run();
}

}  // namespace orrery
