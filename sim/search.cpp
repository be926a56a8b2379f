#include "sim/search.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <queue>
#include <set>
#include <tuple>

#include "sim/candidates.hpp"
#include "sim/coarse_candidates.hpp"
#include "sim/feasibility.hpp"
#include "sim/found_plans.hpp"
#include "sim/layer_limits.hpp"
#include "sim/mix_search.hpp"
#include "sim/plan_bound.hpp"
#include "strategies/obstacles.hpp"
#include "strategies/rule_book.hpp"

namespace orrery {
namespace {

Seconds clock_now() {
  return Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// A feasible candidate with the least time and money it can take.
struct Refined {
  Least least;
  CoarseCandidate from;
  std::uint32_t order = 0;    // of its groups
  std::uint32_t setting = 0;  // index into CandidateSpace::settings
  // The place in the enumeration.
  [[nodiscard]] auto place() const { return std::tuple(from.at, from.serial, order, setting); }
};

// Soonest first.
struct LaterOf {
  bool operator()(const Refined& a, const Refined& b) const {
    return std::pair(a.least.time, a.place()) > std::pair(b.least.time, b.place());
  }
  bool operator()(const CoarseCandidate& a, const CoarseCandidate& b) const {
    return std::pair(a.least_time, a.place()) > std::pair(b.least_time, b.place());
  }
};

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
        limits_(book, job.space.most_stages, job.global_batch),
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

  const WaysCase& case_of(const CoarseCandidate& coarse) const { return space_.cases[coarse.at]; }
  const FamilyCase& family_at(const CoarseCandidate& coarse) const {
    return case_of(coarse).families[coarse.family];
  }
  StageCounts stages_of(const CoarseCandidate& coarse) const {
    const auto first = kept_counts_.begin() + static_cast<std::ptrdiff_t>(coarse.counts * groups());
    return {first, first + static_cast<std::ptrdiff_t>(groups())};
  }
  std::size_t groups() const { return job_.cluster.groups.size(); }

  // The counts of a coarse candidate are shared with those of other families visited right before it.
  void keep(CoarseCandidate coarse, const StageCounts& stages) {
    const bool are_kept =
        !kept_counts_.empty() && std::equal(stages.rbegin(), stages.rend(), kept_counts_.rbegin());
    if (!are_kept) kept_counts_.insert(kept_counts_.end(), stages.begin(), stages.end());
    coarse.counts = static_cast<std::uint32_t>(kept_counts_.size() / groups() - 1);
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
    const FamilyCase& family = family_at(coarse);
    for (const Allocation& allocation : orders(job_.cluster, case_of(coarse).ways, stages)) {
      for (const std::uint32_t setting : family.settings) {
        if (limits_.may_fit(allocation, space_.settings[setting], family.microbatches)) return true;
      }
    }
    return false;
  }

  // Refines and plays what is kept, soonest first. The dearer bound is asked for when a candidate is due, and
  // may put it off.
  void work_off() {
    std::sort(kept_.begin(), kept_.end(),
              [](const CoarseCandidate& a, const CoarseCandidate& b) { return LaterOf()(b, a); });
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (i % 1024 == 0) progress_("fitting plans", i, kept_.size());
      refine_until(kept_[i].least_time);
      refine_if_due(kept_[i]);
    }
    refine_until(std::numeric_limits<double>::infinity());
    play_until(std::numeric_limits<double>::infinity());
    kept_.clear();
    kept_counts_.clear();
  }

  void refine_until(double least_time) {
    while (!put_off_.empty() && put_off_.top().least_time <= least_time) {
      const CoarseCandidate next = put_off_.top();
      put_off_.pop();
      refine_if_due(next);
    }
  }

  void refine_if_due(const CoarseCandidate& coarse) {
    play_until(coarse.least_time);
    const StageCounts stages = stages_of(coarse);
    if (pruning_) {
      const NodeRate rate = coarse_.rate_of(case_of(coarse).ways, stages);
      if (!found_.may_matter(least_of(coarse, rate))) return;
      if (!coarse.in_whole_layers) {
        put_off_.push(in_whole_layers(coarse, stages, rate, coarse_.bound_of(coarse)));
        return;
      }
    }
    refine(coarse, stages);
  }

  void refine(const CoarseCandidate& coarse, const StageCounts& stages) {
    const FamilyCase& family = family_at(coarse);
    const std::vector<Allocation> all = orders(job_.cluster, case_of(coarse).ways, stages);
    for (std::uint32_t order = 0; order < all.size(); ++order) {
      for (const std::uint32_t setting : family.settings) {
        refine(all[order], {{}, coarse, order, setting}, family.microbatches);
      }
    }
  }

  ParallelStrategy strategy(const Allocation& allocation, std::uint32_t setting) const {
    return strategy_of(allocation, space_.settings[setting], job_.global_batch, job_.sequence, job_.type);
  }

  void refine(const Allocation& allocation, Refined refined, std::int64_t microbatches) {
    ++refined_count_;
    const Setting& setting = space_.settings[refined.setting];
    if (const auto obstacle = order_obstacle(setting, allocation.data, allocation.stages())) {
      found_.reject(InfeasibleKind::shape, std::string(*obstacle));
      return;
    }
    const bool may_fit = limits_.may_fit(allocation, space_.settings[refined.setting], microbatches);
    if (!may_fit && result_.nearest) {
      found_.reject(InfeasibleKind::memory, "out of memory");
      return;
    }
    ParallelStrategy plan = strategy(allocation, refined.setting);
    const auto fitted = fitter_.fit(plan);
    if (const auto* trouble = std::get_if<Infeasible>(&fitted)) {
      found_.reject(*trouble);
      return;
    }
    ORRERY_ENSURE(may_fit);
    const std::vector<ParallelStrategy> choices = found_.left_by_rules(with_overlaps(plan, setting));
    if (choices.empty()) return;
    const Seconds time = least_time(choices.back());
    if (found_.beyond_limits(plan, time)) return;
    refined.least = found_.least(plan, time);
    refined_.push(refined);
  }

  // Of the splits that are tried: the fitted one, and equal layers where these fit. What has most overlaps is
  // bounded the lowest.
  Seconds least_time(const ParallelStrategy& fitted) {
    const Seconds least = least_plan_time(book_, fitted);
    if (fitted.chunks > 1) return least;
    ParallelStrategy equal = fitted;
    equal.parts = equal_parts(job_.model.layer_count(), fitted.part_count());
    const Seconds of_equal = least_plan_time(book_, equal);
    return of_equal < least && fitter_.fit_equal(fitted) ? of_equal : least;
  }

  void play_until(double least_time) {
    for (; !refined_.empty() && refined_.top().least.time <= least_time; refined_.pop()) {
      if (found_.may_matter(refined_.top().least)) play(refined_.top());
    }
  }

  void play(const Refined& refined) {
    const CoarseCandidate& from = refined.from;
    ParallelStrategy plan =
        strategy(orders(job_.cluster, case_of(from).ways, stages_of(from))[refined.order], refined.setting);
    auto fitted = fitter_.fit(plan);
    const Setting& setting = space_.settings[refined.setting];
    std::vector<Split> splits;
    const auto add = [&](const std::vector<StageMemory>& memory) {
      for (ParallelStrategy& choice : with_overlaps(plan, setting)) {
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
    found_.play(std::move(splits), refined.place());
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
  LayerLimits limits_;
  CandidateSpace space_;
  CoarseCandidates coarse_;
  bool pruning_ = false;
  std::size_t refined_count_ = 0;
  std::set<decltype(std::declval<CoarseCandidate>().place())> seeds_;  // worked off already
  std::vector<CoarseCandidate> kept_;
  StageCounts kept_counts_;  // of each group, for each of kept_
  std::priority_queue<CoarseCandidate, std::vector<CoarseCandidate>, LaterOf> put_off_;  // of kept_
  std::priority_queue<Refined, std::vector<Refined>, LaterOf> refined_;
};

}  // namespace

SearchResult search(const SearchJob& job, std::vector<Rule>& rules, const CostModels& models, PriceBook& book,
                    const SearchProgress& progress) {
  const SearchJob possible = as_stack_can(job, book.stack());
  return Searcher(possible, rules, models, book, progress).run();
}

}  // namespace orrery
