#include "sim/search.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>

#include "analysis/pareto.hpp"
#include "costmodels/interruptions.hpp"
#include "sim/best_plans.hpp"
#include "sim/candidates.hpp"
#include "sim/feasibility.hpp"
#include "sim/layer_limits.hpp"
#include "sim/layer_mover.hpp"
#include "sim/mix_fitter.hpp"
#include "sim/plan_bound.hpp"
#include "sim/plan_player.hpp"
#include "sim/stage_boxes.hpp"
#include "sim/time_bound.hpp"
#include "strategies/rule_book.hpp"

namespace orrery {
namespace {

// What --explain counts it under.
std::string memory_reason(const Infeasible& trouble) {
  return trouble.reason.ends_with(to_text(MemoryVerdict::risky))
             ? "memory risky: within the error of its count"
             : "out of memory";
}

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

using Played = std::variant<RatedPlan, Infeasible>;
using Place = decltype(std::declval<Refined>().place());

// Unlike replicas, with the settings that have a shape.
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

// Soonest first.
struct LaterOf {
  bool operator()(const Refined& a, const Refined& b) const {
    return std::pair(a.least.time, a.place()) > std::pair(b.least.time, b.place());
  }
};

// Below so many candidates with a shape nothing is pruned, so that every rejection is counted.
constexpr std::size_t kFewCandidates = 20'000;
// Coarse candidates kept at once: 24 bytes each.
constexpr std::size_t kMostKept = 1'000'000;
// The fastest plans, whose layers are moved on at the end; so many are looked for, however few are asked for.
constexpr int kMostMoved = 10;

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
        player_(job, book, fitter_),
        limits_(book, job.space.most_stages, job.global_batch),
        bounds_(book, job.space.most_stages, job.global_batch),
        best_(std::max(job.top, kMostMoved)) {}

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
        [&](Coarse coarse, const StageCounts& stages, const NodeRate& rate, const TimeBound& bound) {
          if (pruning_ && !best_.may_matter(least(coarse, rate))) return;
          coarse.least_time = std::max(coarse.least_time, bound.whole_layers(stages) * rate.stretch);
          if (pruning_ && !best_.may_matter(least(coarse, rate))) return;
          if (seeds_.count(coarse.place()) > 0) return;
          keep(coarse, stages);
          if (kept_.size() >= kMostKept) work_off();
        });
    work_off();
    result_.counts.pruned += space_.shaped - refined_count_;
    play_mixes();
    select(std::max(job_.top, kMostMoved));
    move_layers();
    select(job_.top);
    for (Rated& rated : rated_) result_.plans.push_back(std::move(rated.plan));
    result_.elapsed.estimate = lap();
    return std::move(result_);
  }

 private:
  void reject(InfeasibleKind kind, const std::string& reason, std::size_t count = 1) {
    result_.counts.rejected[kind] += count;
    result_.counts.reasons[reason] += count;
  }

  void reject(const Infeasible& trouble) {
    const bool memory = trouble.kind == InfeasibleKind::memory;
    reject(trouble.kind, memory ? memory_reason(trouble) : trouble.reason);
  }

  void enumerate() {
    progress_("enumerating", 0, 1);
    space_ = candidate_space(job_);
    result_.counts.enumerated = space_.enumerated;
    for (const auto& [obstacle, count] : space_.obstacles) reject(InfeasibleKind::shape, obstacle, count);
    pruning_ = job_.pruning == Pruning::always ||
               (job_.pruning == Pruning::where_large && space_.shaped > kFewCandidates);
    for (const WaysCase& at : space_.cases) need_prices(at);
    enumerate_mixes();
  }

  void enumerate_mixes() {
    for (ReplicaMix& mix : replica_mixes(job_.cluster, job_.space, job_.mode, job_.global_batch)) {
      MixCase at{std::move(mix), {}};
      for (std::uint32_t index = 0; index < space_.settings.size(); ++index) {
        const Setting& setting = space_.settings[index];
        ++result_.counts.enumerated;
        if (const auto obstacle =
                mix_obstacle(job_.model, job_.cluster, at.mix, setting, job_.global_batch, job_.sequence)) {
          reject(InfeasibleKind::shape, std::string(*obstacle));
          continue;
        }
        at.settings.push_back(index);
        book_.need(strategy_of(at.mix, setting, job_.global_batch, job_.sequence, job_.type));
      }
      if (at.settings.empty()) continue;
      if (job_.may_reorder()) need_spread_rings(at.mix);
      mixes_.push_back(std::move(at));
    }
  }

  void need_spread_rings(const ReplicaMix& mix) {
    for (int group = 0; group < static_cast<int>(mix.replicas.size()); ++group) {
      if (mix.replicas[static_cast<std::size_t>(group)] == 0) continue;
      book_.need_spread_rings(group, mix.ways.tensor, mix.ways.data * mix.ways.context);
    }
  }

  void need_prices(const WaysCase& at) {
    for (int group = 0; group < static_cast<int>(at.group_fits.size()); ++group) {
      if (at.group_fits[static_cast<std::size_t>(group)] == 0) continue;
      for (const FamilyCase& family : at.families) {
        const Setting& setting = space_.families[family.family].common;
        book_.need(shard_key(group, at.ways, setting));
      }
      const int tensor = at.ways.tensor_of(group);
      const int members = at.ways.data * at.ways.context;
      book_.need_rings(group, tensor, members, at.ways.expert);
      // Experts of each tensor rank's own are shared by fewer replicas.
      const auto& choices = job_.space.expert_tensor;
      const bool own =
          std::any_of(choices.begin(), choices.end(), [](const auto& ways) { return ways == 1; });
      if (own && at.ways.expert % tensor == 0)
        book_.need_rings(group, tensor, members, at.ways.expert / tensor);
      if (job_.may_reorder())
        book_.need_spread_rings(group, tensor, at.ways.data * at.ways.context, at.ways.expert);
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

  // Calls visit(coarse, stages, rate of its nodes, bound) for every candidate with a shape, or for those that
  // may matter and some more; its time is that of the perfect spread.
  enum class Counts { all_of_equal_ways, all, that_may_matter };
  template <class Visit>
  void for_each_bounded(Counts which, Visit visit) {
    for (std::uint32_t c = 0; c < space_.cases.size(); ++c) {
      progress_("bounding plans", c, space_.cases.size());
      const WaysCase& at = space_.cases[c];
      if (which == Counts::all_of_equal_ways && !at.ways.tensors.empty()) return;  // they come last
      std::vector<TimeBound> bounds;
      for (const FamilyCase& family : at.families) {
        std::vector<Setting> settings;
        for (const std::uint32_t index : family.settings) settings.push_back(space_.settings[index]);
        bounds.push_back(
            bounds_.bound(at.ways, at.group_fits, space_.families[family.family].common, settings));
      }
      const auto visit_families = [&](const StageCounts& stages, const std::vector<std::uint32_t>& families) {
        const auto all = static_cast<std::size_t>(std::accumulate(stages.begin(), stages.end(), 0));
        const NodeRate rate = rate_of(at.ways, stages);
        const std::uint64_t serial = serial_of(stages);
        counts_are_kept_ = false;
        for (const std::uint32_t f : families) {
          if (at.families[f].stages_fit[all] == 0) continue;
          visit(Coarse{bounds[f].spread(stages) * rate.stretch, c, f, serial, 0}, stages, rate, bounds[f]);
        }
      };
      // Of equal ways most counts would be looked at one by one after all.
      if (which == Counts::that_may_matter && !at.ways.tensors.empty()) {
        StageBoxes(job_, at, bounds, best_).for_each(visit_families);
        continue;
      }
      std::vector<std::uint32_t> all_families(bounds.size());
      std::iota(all_families.begin(), all_families.end(), 0U);
      for_each_stage_counts(job_.cluster, job_.space, job_.mode, at.ways, [&](const StageCounts& stages) {
        if (at.fits(stages)) visit_families(stages, all_families);
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

  // Good plans early, so that few candidates need to be kept: of every stretch of times the cheapest.
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
    for_each_bounded(Counts::all_of_equal_ways, [&](Coarse coarse, const StageCounts& stages,
                                                    const NodeRate& rate, const TimeBound& bound) {
      if (beaten(stretch_of(coarse), least(coarse, rate))) return;
      coarse.least_time = std::max(coarse.least_time, bound.whole_layers(stages) * rate.stretch);
      const int stretch = stretch_of(coarse);
      if (beaten(stretch, least(coarse, rate)) || !may_fit(coarse, stages)) return;
      seeds[stretch] = {least(coarse, rate), coarse, stages};
    });
    for (const auto& [stretch, seed] : seeds) {
      if (!best_.may_matter(seed.least)) continue;
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

  // Refines and plays what is kept, soonest first.
  void work_off() {
    std::stable_sort(kept_.begin(), kept_.end(),
                     [](const Coarse& a, const Coarse& b) { return a.least_time < b.least_time; });
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (i % 1024 == 0) progress_("fitting plans", i, kept_.size());
      play_until(kept_[i].least_time);
      refine(kept_[i]);
    }
    play_until(std::numeric_limits<double>::infinity());
    kept_.clear();
    kept_counts_.clear();
    counts_are_kept_ = false;
  }

  void refine(const Coarse& coarse) {
    const StageCounts stages = stages_of(coarse);
    const WaysCase& at = case_of(coarse);
    const FamilyCase& family = family_at(coarse);
    if (pruning_) {
      if (!best_.may_matter(least(coarse, rate_of(at.ways, stages)))) return;
    }
    const std::vector<Allocation> all = orders(job_.cluster, at.ways, stages);
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
      reject(InfeasibleKind::shape, std::string(*obstacle));
      return;
    }
    const bool may_fit = limits_.may_fit(allocation, space_.settings[refined.setting], microbatches);
    if (!may_fit && result_.nearest) {
      reject(InfeasibleKind::memory, "out of memory");
      return;
    }
    ParallelStrategy plan = strategy(allocation, refined.setting);
    const auto fitted = fitter_.fit(plan);
    if (const auto* trouble = std::get_if<Infeasible>(&fitted)) {
      if (trouble->kind == InfeasibleKind::memory && !result_.nearest) result_.nearest = *trouble;
      reject(*trouble);
      return;
    }
    ORRERY_ENSURE(may_fit);
    if (dropped_by_rule(plan)) return;
    const Seconds time = least_time(plan, setting);
    const auto cost = player_.cost(plan.nodes, time);
    if (const auto obstacle = player_.limit_obstacle(plan.nodes, time, cost)) {
      reject(InfeasibleKind::budget, *obstacle);
      return;
    }
    ++result_.counts.evaluated;
    refined.least = {player_.stretched(plan.nodes, time).value(), cost ? cost->per_iteration.value() : 0};
    refined_.push(refined);
  }

  // Of the splits that are tried: the fitted one and equal layers, whether these fit or not.
  Seconds least_time(ParallelStrategy plan, const Setting& setting) const {
    const Seconds fitted = least_plan_time(book_, plan, setting);
    if (plan.chunks > 1) return fitted;
    plan.parts = equal_parts(job_.model.layer_count(), plan.part_count());
    return std::min(fitted, least_plan_time(book_, plan, setting));
  }

  bool dropped_by_rule(const ParallelStrategy& strategy) {
    const Rule* rule = rules_.dropping(strategy);
    if (rule != nullptr) reject(InfeasibleKind::rule, "rule: " + rule->text());
    return rule != nullptr;
  }

  void play_until(double least_time) {
    for (; !refined_.empty() && refined_.top().least.time <= least_time; refined_.pop()) {
      if (best_.may_matter(refined_.top().least)) play(refined_.top());
    }
  }

  void play(const Refined& refined) {
    const Coarse& from = refined.from;
    ParallelStrategy plan =
        strategy(orders(job_.cluster, case_of(from).ways, stages_of(from))[refined.order], refined.setting);
    auto fitted = fitter_.fit(plan);
    Played played = player_.play(plan, std::move(std::get<FittedStages>(fitted).memory));
    if (auto equal = fitter_.fit_equal(plan)) {
      plan.parts = std::move(equal->parts);
      played = faster(std::move(played), play_if_allowed(std::move(plan), std::move(equal->memory)));
    }
    take(std::move(played), refined.place());
  }

  Played play_if_allowed(ParallelStrategy plan, std::vector<StageMemory> memory) {
    if (rules_.dropping(plan) != nullptr) return Infeasible{InfeasibleKind::rule, ""};
    return player_.play(std::move(plan), std::move(memory));
  }

  // The first unless the second is a plan that is faster.
  static Played faster(Played first, Played second) {
    const auto* plan = std::get_if<RatedPlan>(&first);
    const auto* other = std::get_if<RatedPlan>(&second);
    const bool better = other != nullptr && (plan == nullptr || other->iteration < plan->iteration);
    return better ? std::move(second) : std::move(first);
  }

  void take(Played played, const Place& place) {
    const auto* trouble = std::get_if<Infeasible>(&played);
    if (trouble == nullptr || trouble->kind == InfeasibleKind::budget) ++result_.counts.estimated;
    if (trouble != nullptr) {
      reject(*trouble);
      --result_.counts.evaluated;
      return;
    }
    auto& rated = std::get<RatedPlan>(played);
    const Seconds held = player_.stretched(rated.strategy.nodes, rated.iteration);
    best_.add({held.value(),
               rated.cost ? rated.cost->per_iteration.value() : std::numeric_limits<double>::infinity()});
    rated_.push_back({std::move(rated), held, place});
  }

  // Mixes of replicas come after all other candidates: much is found by then.
  void play_mixes() {
    MixFitter mixer(book_, fitter_);
    std::vector<FittedCase> fitted;
    for (std::uint32_t at = 0; at < mixes_.size(); ++at) {
      for (const std::uint32_t setting : mixes_[at].settings) fit_mix(mixer, at, setting, fitted);
    }
    std::stable_sort(fitted.begin(), fitted.end(),
                     [](const FittedCase& a, const FittedCase& b) { return a.least.time < b.least.time; });
    for (FittedCase& each : fitted) {
      if (!best_.may_matter(each.least)) continue;
      const auto at = static_cast<std::uint32_t>(space_.cases.size()) + each.at;
      Played played = player_.play(std::move(each.mix.strategy), std::move(each.mix.memory));
      if (auto& equal = each.equal) {
        played =
            faster(std::move(played), play_if_allowed(std::move(equal->strategy), std::move(equal->memory)));
      }
      take(std::move(played), {at, 0, 0, each.setting});
    }
  }

  void fit_mix(MixFitter& mixer, std::uint32_t at, std::uint32_t setting, std::vector<FittedCase>& all) {
    const ReplicaMix& mix = mixes_[at].mix;
    const auto least_of = [&](Seconds time) {
      const auto cost = player_.cost(mix.nodes, time);
      return Least{player_.stretched(mix.nodes, time).value(), cost ? cost->per_iteration.value() : 0};
    };
    if (pruning_ &&
        !best_.may_matter(least_of(mixer.least_time(mix, space_.settings[setting], job_.global_batch)))) {
      ++result_.counts.pruned;
      return;
    }
    auto fitted = mixer.fit(mix, space_.settings[setting], job_.global_batch);
    if (const auto* trouble = std::get_if<Infeasible>(&fitted)) {
      if (trouble->kind == InfeasibleKind::memory && !result_.nearest) result_.nearest = *trouble;
      reject(*trouble);
      return;
    }
    FittedCase found{std::get<FittedMix>(std::move(fitted)), {}, {}, at, setting};
    if (dropped_by_rule(found.mix.strategy)) return;
    found.equal = mixer.fit_equal(found.mix);
    const Seconds least = found.equal ? std::min(found.mix.least, found.equal->least) : found.mix.least;
    found.least = least_of(least);
    const auto cost = player_.cost(mix.nodes, least);
    if (const auto obstacle = player_.limit_obstacle(mix.nodes, least, cost)) {
      reject(InfeasibleKind::budget, *obstacle);
      return;
    }
    ++result_.counts.evaluated;
    all.push_back(std::move(found));
  }

  // So far the splits were the better of two.
  void move_layers() {
    LayerMover mover(book_, fitter_, player_, rules_);
    for (std::size_t i = 0; i < std::min<std::size_t>(kMostMoved, rated_.size()); ++i) {
      Rated& rated = rated_[i];
      rated.plan = mover.improved(std::move(rated.plan), space_.settings[std::get<3>(rated.place)]);
      rated.held = player_.stretched(rated.plan.strategy.nodes, rated.plan.iteration);
    }
  }

  // Keeps the fastest and the front, fastest first; equal times stay in the order of enumeration.
  void select(int top) {
    std::sort(rated_.begin(), rated_.end(), [](const Rated& a, const Rated& b) {
      return std::pair(a.held, a.place) < std::pair(b.held, b.place);
    });
    std::vector<ParetoPoint> points;
    for (const auto& [plan, held, place] : rated_) {
      // A plan without a price is worse than any that has one: NaN keeps it off the front.
      const double dollars = plan.cost ? plan.cost->total.value() : std::numeric_limits<double>::quiet_NaN();
      points.push_back({to_hours(plan.total_time), dollars});
    }
    for (std::size_t i = 0; i < rated_.size(); ++i) {
      rated_[i].plan.among_fastest = i < static_cast<std::size_t>(top);
      rated_[i].plan.on_front = false;
    }
    for (const std::size_t index : pareto_front(points)) rated_[index].plan.on_front = true;
    const auto last = std::remove_if(rated_.begin(), rated_.end(), [](const Rated& rated) {
      return !rated.plan.among_fastest && !rated.plan.on_front;
    });
    rated_.erase(last, rated_.end());
  }

  const SearchJob& job_;
  RuleBook rules_;
  const CostModels& models_;
  PriceBook& book_;
  const SearchProgress& progress_;
  StageFitter fitter_;
  PlanPlayer player_;
  LayerLimits limits_;
  TimeBounds bounds_;
  SearchResult result_;
  CandidateSpace space_;
  bool pruning_ = false;
  std::size_t refined_count_ = 0;
  std::set<decltype(std::declval<Coarse>().place())> seeds_;  // worked off already
  BestPlans best_;
  std::vector<Coarse> kept_;
  StageCounts kept_counts_;  // of each group, for each of kept_
  bool counts_are_kept_ = false;
  std::vector<MixCase> mixes_;
  std::priority_queue<Refined, std::vector<Refined>, LaterOf> refined_;
  struct Rated {
    RatedPlan plan;
    Seconds held;  // for one iteration, interruptions included
    Place place;
  };
  std::vector<Rated> rated_;
};

// Groups that nobody has said the price of.
std::string unpriced(const ClusterSpec& cluster) {
  std::string names;
  for (const NodeGroup& group : cluster.groups) {
    if (!group.price) names += (names.empty() ? "group " : ", ") + group.name;
  }
  return names;
}

}  // namespace

Seconds total_time(const SearchJob& job, const std::vector<int>& nodes, Seconds iteration) {
  return iteration * interruptions(job.cluster, nodes).stretch *
         std::ceil(job.total_tokens / job.tokens_per_iteration());
}

std::optional<std::string> limit_obstacle(const SearchJob& job, Seconds total_time,
                                          const std::optional<RunCost>& cost) {
  if (job.deadline && total_time > *job.deadline) return "later than the deadline";
  if (!job.budget || (cost && cost->total <= *job.budget)) return std::nullopt;
  return cost ? std::string("over the budget")
              : "no price, so the budget cannot be checked: " + unpriced(job.cluster);
}

SearchResult search(const SearchJob& job, std::vector<Rule>& rules, const CostModels& models, PriceBook& book,
                    const SearchProgress& progress) {
  return Searcher(job, rules, models, book, progress).run();
}

}  // namespace orrery
