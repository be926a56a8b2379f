#include "sim/search.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>

#include "costmodels/interruptions.hpp"
#include "sim/candidates.hpp"
#include "sim/feasibility.hpp"
#include "sim/found_plans.hpp"
#include "sim/layer_limits.hpp"
#include "sim/mix_search.hpp"
#include "sim/plan_bound.hpp"
#include "sim/priced_bounds.hpp"
#include "sim/stage_boxes.hpp"
#include "strategies/obstacles.hpp"
#include "strategies/rule_book.hpp"

namespace orrery {
namespace {

Seconds clock_now() {
  return Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// A candidate whose layers are not split yet: any order of the groups, any setting of the family.
struct Coarse {
  double least_time = 0;     // s of one iteration, stretched by interruptions as all times that are compared
  std::uint32_t at = 0;      // index into CandidateSpace::cases
  std::uint32_t family = 0;  // index into WaysCase::families
  std::uint64_t serial = 0;  // of its stage counts on these ways
  std::uint32_t counts = 0;  // index of its stage counts among those that are kept
  bool in_whole_layers = false;  // the bound, not only by the perfect spread
  [[nodiscard]] auto place() const { return std::tuple(at, family, serial); }
};

// A feasible candidate with the least time and money it can take.
struct Refined {
  Least least;
  Coarse from;
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
  bool operator()(const Coarse& a, const Coarse& b) const {
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
        bounds_(book, job.space.most_stages, job.global_batch) {}

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
    for_each_bounded(
        pruning_ ? Counts::that_may_matter : Counts::all,
        [&](const Coarse& coarse, const StageCounts& stages, const NodeRate& rate, const TimeBound&) {
          if (pruning_ && !found_.may_matter(least(coarse, rate))) return;
          if (seeds_.count(coarse.place()) > 0) return;
          keep(coarse, stages);
          if (kept_.size() >= kMostKept) work_off();
        });
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

  const WaysCase& case_of(const Coarse& coarse) const { return space_.cases[coarse.at]; }
  const FamilyCase& family_at(const Coarse& coarse) const { return case_of(coarse).families[coarse.family]; }
  StageCounts stages_of(const Coarse& coarse) const {
    const auto first = kept_counts_.begin() + static_cast<std::ptrdiff_t>(coarse.counts * groups());
    return {first, first + static_cast<std::ptrdiff_t>(groups())};
  }
  std::size_t groups() const { return job_.cluster.groups.size(); }

  // Of the nodes that such a plan uses.
  struct NodeRate {
    double dollars_per_second = 0;  // 0 where a price is not known
    double stretch = 1;             // by interruptions
  };
  NodeRate rate_of(const Ways& ways, const StageCounts& stages) const {
    const std::vector<int> nodes = nodes_of(job_.cluster, ways, stages);
    const auto cost = run_cost(job_.cluster, nodes, Seconds(1), 1, 1);
    return {cost ? cost->price.value() / 3600 : 0, interruptions(job_.cluster, nodes).stretch};
  }

  static Least least(const Coarse& coarse, const NodeRate& rate) {
    return {coarse.least_time, coarse.least_time * rate.dollars_per_second};
  }

  // Of the families of a case.
  const std::vector<TimeBound>& bounds_of(std::uint32_t c) {
    if (case_bounds_.empty()) case_bounds_.resize(space_.cases.size());
    std::vector<TimeBound>& bounds = case_bounds_[c];
    const WaysCase& at = space_.cases[c];
    for (std::size_t f = bounds.size(); f < at.families.size(); ++f) {
      std::vector<Setting> settings;
      for (const std::uint32_t index : at.families[f].settings) settings.push_back(space_.settings[index]);
      bounds.push_back(
          bounds_.bound(at.ways, at.group_fits, space_.families[at.families[f].family].common, settings));
    }
    return bounds;
  }

  // Multiples of their steps by 1, 2, 3, 4, 6, 8, 12, ...
  static bool are_round(const StageCounts& stages, const StageGrid& grid) {
    for (std::size_t group = 0; group < stages.size(); ++group) {
      int steps = stages[group] / grid.steps[group];
      while (steps > 3 && steps % 2 == 0) steps /= 2;
      if (steps > 3) return false;
    }
    return true;
  }

  // Whether any family may matter, at a first look.
  bool may_matter(const LeastBound& of_families, const Ways& ways, const StageCounts& stages) const {
    const double time = of_families.spread_within(stages);
    return found_.may_matter({time, time * least_rate(ways, stages)});
  }

  // Not above NodeRate::dollars_per_second.
  double least_rate(const Ways& ways, const StageCounts& stages) const {
    double dollars = 0;  // an hour
    for (std::size_t group = 0; group < stages.size(); ++group) {
      const NodeGroup& nodes = job_.cluster.groups[group];
      const double used = static_cast<double>(stages[group] * ways.gpus_of_stage(static_cast<int>(group))) /
                          nodes.gpus_per_node;
      if (used > 0 && !nodes.price) return 0;
      if (nodes.price) dollars += used * nodes.price->value();
    }
    return dollars / 3600 * (1 - 1e-9);
  }

  // Calls visit(coarse, stages, rate of its nodes, bound) for every candidate with a shape, for a few of
  // those of equal tensor ways, or for those that may matter and some more; its time is that of the perfect
  // spread.
  enum class Counts { some_of_equal_ways, all, that_may_matter };
  template <class Visit>
  void for_each_bounded(Counts which, Visit visit) {
    for (std::uint32_t c = 0; c < space_.cases.size(); ++c) {
      progress_("bounding plans", c, space_.cases.size());
      const WaysCase& at = space_.cases[c];
      if (which == Counts::some_of_equal_ways && !at.ways.tensors.empty()) return;  // they come last
      const std::vector<TimeBound>& bounds = bounds_of(c);
      const auto visit_families = [&](const StageCounts& stages, const std::vector<std::uint32_t>& families) {
        const auto all = static_cast<std::size_t>(std::accumulate(stages.begin(), stages.end(), 0));
        const NodeRate rate = rate_of(at.ways, stages);
        const std::uint64_t serial = serial_of(stages);
        counts_are_kept_ = false;
        for (const std::uint32_t f : families) {
          if (at.families[f].stages_fit[all] == 0) continue;
          visit(Coarse{bounds[f].spread(stages) * rate.stretch, c, f, serial}, stages, rate, bounds[f]);
        }
      };
      // Of equal ways most counts would be looked at one by one after all.
      if (which == Counts::that_may_matter && !at.ways.tensors.empty()) {
        StageBoxes(job_, at, bounds, found_.best()).for_each(visit_families);
        continue;
      }
      std::vector<std::uint32_t> all_families(bounds.size());
      std::iota(all_families.begin(), all_families.end(), 0U);
      const StageGrid grid = stage_grid(job_.cluster, job_.space, at.ways);
      const LeastBound of_families(bounds, groups());
      for_each_stage_counts(job_.cluster, job_.space, job_.mode, at.ways, [&](const StageCounts& stages) {
        if (!at.fits(stages)) return;
        if (which == Counts::some_of_equal_ways && !are_round(stages, grid)) return;
        if (which == Counts::that_may_matter && !may_matter(of_families, at.ways, stages)) return;
        visit_families(stages, all_families);
      });
    }
  }

  // In the order of for_each_stage_counts.
  std::uint64_t serial_of(const StageCounts& stages) const {
    std::uint64_t serial = 0;
    for (const int of_group : stages) {
      serial = serial * (static_cast<std::uint64_t>(job_.space.most_stages) + 1) +
               static_cast<std::uint64_t>(of_group);
    }
    return serial;
  }

  // The counts of a coarse candidate are shared with those of other families visited right before it.
  void keep(Coarse coarse, const StageCounts& stages) {
    if (!counts_are_kept_) kept_counts_.insert(kept_counts_.end(), stages.begin(), stages.end());
    counts_are_kept_ = true;
    coarse.counts = static_cast<std::uint32_t>(kept_counts_.size() / groups() - 1);
    kept_.push_back(coarse);
  }

  // Good plans early, so that few candidates need to be kept: of every stretch of times the cheapest of some.
  void plant_seeds() {
    if (space_.shaped < kMostKept) return;
    constexpr double kStretches = 64;  // of a factor of two
    struct Seed {
      Least least;
      Coarse coarse;
      StageCounts stages;
    };
    std::map<int, Seed> seeds;
    const auto beaten = [&](int stretch, const Least& by) {
      const auto found = seeds.find(stretch);
      return found != seeds.end() && found->second.least.money <= by.money;
    };
    const auto stretch_of = [](const Coarse& coarse) {
      return static_cast<int>(std::floor(kStretches * std::log2(coarse.least_time)));
    };
    for_each_bounded(Counts::some_of_equal_ways, [&](Coarse coarse, const StageCounts& stages,
                                                     const NodeRate& rate, const TimeBound& bound) {
      if (beaten(stretch_of(coarse), least(coarse, rate))) return;
      coarse = in_whole_layers(coarse, stages, rate, bound);
      const int stretch = stretch_of(coarse);
      if (beaten(stretch, least(coarse, rate)) || !may_fit(coarse, stages)) return;
      seeds[stretch] = {least(coarse, rate), coarse, stages};
    });
    for (const auto& [stretch, seed] : seeds) {
      if (!found_.may_matter(seed.least)) continue;
      counts_are_kept_ = false;
      keep(seed.coarse, seed.stages);
      seeds_.insert(seed.coarse.place());
    }
    work_off();
  }

  // Whether any order of the groups and any setting of the family may fit.
  bool may_fit(const Coarse& coarse, const StageCounts& stages) {
    const FamilyCase& family = family_at(coarse);
    for (const Allocation& allocation : orders(job_.cluster, case_of(coarse).ways, stages)) {
      for (const std::uint32_t setting : family.settings) {
        if (limits_.may_fit(allocation, space_.settings[setting], family.microbatches)) return true;
      }
    }
    return false;
  }

  static Coarse in_whole_layers(Coarse coarse, const StageCounts& stages, const NodeRate& rate,
                                const TimeBound& bound) {
    coarse.least_time = std::max(coarse.least_time, bound.whole_layers(stages) * rate.stretch);
    coarse.in_whole_layers = true;
    return coarse;
  }

  // Refines and plays what is kept, soonest first. The dearer bound is asked for when a candidate is due, and
  // may put it off.
  void work_off() {
    std::sort(kept_.begin(), kept_.end(), [](const Coarse& a, const Coarse& b) { return LaterOf()(b, a); });
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (i % 1024 == 0) progress_("fitting plans", i, kept_.size());
      refine_until(kept_[i].least_time);
      refine_if_due(kept_[i]);
    }
    refine_until(std::numeric_limits<double>::infinity());
    play_until(std::numeric_limits<double>::infinity());
    kept_.clear();
    kept_counts_.clear();
    counts_are_kept_ = false;
  }

  void refine_until(double least_time) {
    while (!put_off_.empty() && put_off_.top().least_time <= least_time) {
      const Coarse next = put_off_.top();
      put_off_.pop();
      refine_if_due(next);
    }
  }

  void refine_if_due(const Coarse& coarse) {
    play_until(coarse.least_time);
    const StageCounts stages = stages_of(coarse);
    if (pruning_) {
      const NodeRate rate = rate_of(case_of(coarse).ways, stages);
      if (!found_.may_matter(least(coarse, rate))) return;
      if (!coarse.in_whole_layers) {
        put_off_.push(in_whole_layers(coarse, stages, rate, bounds_of(coarse.at)[coarse.family]));
        return;
      }
    }
    refine(coarse, stages);
  }

  void refine(const Coarse& coarse, const StageCounts& stages) {
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
    if (found_.beyond_limits(plan.nodes, time)) return;
    refined.least = found_.least(plan.nodes, time);
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
    const Coarse& from = refined.from;
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
  TimeBounds bounds_;
  CandidateSpace space_;
  bool pruning_ = false;
  std::size_t refined_count_ = 0;
  std::set<decltype(std::declval<Coarse>().place())> seeds_;  // worked off already
  std::vector<std::vector<TimeBound>> case_bounds_;           // [case][family]
  std::vector<Coarse> kept_;
  StageCounts kept_counts_;  // of each group, for each of kept_
  bool counts_are_kept_ = false;
  std::priority_queue<Coarse, std::vector<Coarse>, LaterOf> put_off_;  // of kept_
  std::priority_queue<Refined, std::vector<Refined>, LaterOf> refined_;
};

}  // namespace

SearchResult search(const SearchJob& job, std::vector<Rule>& rules, const CostModels& models, PriceBook& book,
                    const SearchProgress& progress) {
  const SearchJob possible = as_stack_can(job, book.stack());
  return Searcher(possible, rules, models, book, progress).run();
}

}  // namespace orrery
