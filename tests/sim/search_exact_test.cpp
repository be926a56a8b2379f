// What the search drops without a closer look is never among the best: the same plans come out of a search
// that prunes, of one that does not, and of brute force.
#include <algorithm>
#include <limits>

#include "analysis/pareto.hpp"
#include "sim/search/best_plans.hpp"
#include "sim/search/layer_mover.hpp"
#include "sim/search/mix_fitter.hpp"
#include "tests/sim/search_tests.hpp"

namespace orrery {
namespace {

using Found = std::vector<std::pair<double, ParallelStrategy>>;

struct Tried {
  RatedPlan plan;
  Setting setting;
};

Found found(const SearchResult& result) {
  Found plans;
  for (const RatedPlan& plan : result.plans) plans.emplace_back(plan.iteration.value(), plan.strategy);
  return plans;
}

struct Fitting {
  std::size_t unequal = 0;     // plans of unequal tensor ways
  std::size_t mixed = 0;       // mixes of replicas
  std::size_t sharded = 0;     // plans of fully sharded weights
  std::size_t equal = 0;       // faster with equal layers than as fitted
  std::size_t overlapped = 0;  // faster with an overlap more
  std::size_t moved = 0;       // faster with some layers moved
};
constexpr int kNearest = 10;

// The fastest and the front, fastest first.
std::vector<Tried> select(const SearchJob& job, std::vector<Tried> all, int top) {
  std::stable_sort(all.begin(), all.end(),
                   [](const Tried& a, const Tried& b) { return a.plan.iteration < b.plan.iteration; });
  std::vector<ParetoPoint> points;
  for (const Tried& tried : all) {
    const auto cost = job_cost(job, tried.plan.strategy, tried.plan.iteration);
    points.push_back({cost ? to_hours(cost->total_time) : 0,
                      cost ? cost->total.value() : std::numeric_limits<double>::quiet_NaN()});
  }
  const std::vector<std::size_t> front = pareto_front(points);
  std::vector<Tried> best;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool on_front = std::find(front.begin(), front.end(), i) != front.end();
    if (i < static_cast<std::size_t>(top) || on_front) best.push_back(all[i]);
  }
  return best;
}

bool within_limits(const SearchJob& job, const RatedPlan& plan) {
  return !limit_obstacle(job, plan.iteration * job.iterations(),
                         job_cost(job, plan.strategy, plan.iteration));
}

// Plans beyond a limit by less than 10 % that would be among the best of those within, the ten nearest first.
std::vector<Tried> near_misses(const SearchJob& job, const std::vector<Tried>& within,
                               std::vector<Tried> beyond) {
  const auto least = [&](const Tried& tried) {
    const auto cost = job_cost(job, tried.plan.strategy, tried.plan.iteration);
    return Least{tried.plan.iteration.value(), cost ? cost->per_iteration.value() : 0};
  };
  const auto excess = [&](const Tried& tried) {
    const auto cost = job_cost(job, tried.plan.strategy, tried.plan.iteration);
    const double late = job.deadline ? tried.plan.iteration * job.iterations() / *job.deadline : 0;
    return job.budget ? std::max(late, cost->total / *job.budget) : late;
  };
  BestPlans best(std::max(job.top, plans_to_move(job.cluster)));
  for (const Tried& tried : within) best.add(least(tried));
  std::erase_if(beyond,
                [&](const Tried& tried) { return !best.may_matter(least(tried)) || excess(tried) > 1.1; });
  std::stable_sort(beyond.begin(), beyond.end(),
                   [&](const Tried& a, const Tried& b) { return excess(a) < excess(b); });
  beyond.resize(std::min<std::size_t>(beyond.size(), kNearest));
  return beyond;
}

// Everything that fits is played, with equal layers and every overlap too; then the layers of the fastest
// are moved (plans_to_move), and of the ten nearest to the limits.
Found brute_force(const SearchJob& job, const PriceBook& book, Fitting& fitting) {
  std::vector<Tried> all, beyond;
  StageFitter fitter(book);
  PlanTimes times(book);
  const auto add = [&](const ParallelStrategy& fitted, const std::optional<ParallelStrategy>& equal,
                       const Setting& setting) {
    RatedPlan plan;
    const auto take_faster = [&](const ParallelStrategy& split, std::size_t& faster) {
      const Seconds before = plan.iteration;
      for (const ParallelStrategy& choice : with_overlaps(split, setting)) {
        const Seconds time = times.played(choice);
        if (!plan.strategy.parts.empty() && time >= plan.iteration) continue;
        if (!(choice == split)) ++fitting.overlapped;
        plan.strategy = choice;
        plan.iteration = time;
      }
      faster += plan.iteration < before ? 1 : 0;
    };
    std::size_t fitted_first = 0;
    take_faster(fitted, fitted_first);
    if (equal) take_faster(*equal, fitting.equal);
    (within_limits(job, plan) ? all : beyond).push_back({std::move(plan), setting});
  };
  for_each_candidate(job, [&](const StageCounts&, const Allocation& allocation, const Setting& setting) {
    ParallelStrategy strategy = strategy_of(allocation, setting, job.global_batch, job.sequence, job.type);
    if (!std::holds_alternative<FittedStages>(fitter.fit(strategy))) return;
    fitting.unequal += allocation.tensors.empty() ? 0 : 1;
    fitting.sharded += setting.fully_sharded ? 1 : 0;
    std::optional<ParallelStrategy> even;
    if (const auto equal = fitter.fit_equal(strategy)) {
      even = strategy;
      even->parts = equal->parts;
    }
    add(strategy, even, setting);
  });
  MixFitter mixer(book, fitter);
  for_each_mix(job, [&](const ReplicaMix& mix, const Setting& setting) {
    const auto fitted = mixer.fit(mix, setting, job.global_batch);
    const auto* plan = std::get_if<FittedMix>(&fitted);
    if (plan == nullptr) return;
    ++fitting.mixed;
    const auto equal = mixer.fit_equal(*plan);
    add(plan->strategy, equal ? std::optional(equal->strategy) : std::nullopt, setting);
  });
  beyond = near_misses(job, all, std::move(beyond));
  const int most = plans_to_move(job.cluster);
  std::vector<Tried> best = select(job, std::move(all), std::max(job.top, most));
  const std::vector<Rule> no_rules;
  RuleBook rules(job.model, no_rules);
  SearchJob open = job;
  open.deadline.reset();
  open.budget.reset();
  PlanPlayer player(open, book, fitter);
  LayerMover mover(book, fitter, player, rules);
  for (std::size_t i = 0; i < std::min(static_cast<std::size_t>(most), best.size()); ++i) {
    const Seconds before = best[i].plan.iteration;
    best[i].plan = mover.improved(best[i].plan, i);
    fitting.moved += best[i].plan.iteration < before ? 1 : 0;
  }
  for (Tried& tried : beyond) {
    tried.plan = mover.improved(tried.plan);
    if (!within_limits(job, tried.plan)) continue;
    best.push_back(std::move(tried));
  }
  Found found;
  for (const Tried& tried : select(job, std::move(best), job.top))
    found.emplace_back(tried.plan.iteration.value(), tried.plan.strategy);
  return found;
}

}  // namespace

TEST_CASE("a search that prunes, one that does not and brute force find the same plans", "[slow]") {
  std::mt19937 random(4);
  std::size_t pruned = 0, plans = 0;
  Fitting fitting;
  for (int i = 0; i < 20; ++i) {
    SearchJob job = random_job(random);
    INFO(describe(job));
    job.pruning = Pruning::always;
    if (i % 4 == 1) job.space.optimizer_instances = {4, 2, 1};
    if (i % 4 > 1) job.space.fully_sharded = {false, true};
    if (i % 4 == 3) job.space.optimizer_instances = {1, 2};
    PriceBook book = book_of(job);
    const SearchResult fast = run(job, book);
    job.pruning = Pruning::never;
    PriceBook second = book_of(job);
    const SearchResult thorough = run(job, second);
    const Found expected = brute_force(job, book, fitting);
    REQUIRE(found(thorough) == expected);
    REQUIRE(found(fast) == expected);
    CHECK(thorough.counts.pruned == 0);
    CHECK(fast.counts.enumerated == thorough.counts.enumerated);
    const auto rejected = [](const SearchResult& result) {
      std::size_t sum = 0;
      for (const auto& [reason, count] : result.counts.reasons) sum += count;
      return sum;
    };
    // Every candidate ends in one place.
    CHECK(rejected(thorough) + thorough.counts.evaluated == thorough.counts.enumerated);
    CHECK(rejected(fast) + fast.counts.evaluated + fast.counts.pruned == fast.counts.enumerated);
    pruned += fast.counts.pruned;
    plans += expected.size();
  }
  CHECK(pruned > 500);  // the property is not empty
  CHECK(plans > 50);
  CHECK(fitting.unequal > 100);
  CHECK(fitting.mixed > 100);
  CHECK(fitting.sharded > 100);
  CHECK(fitting.equal > 100);
  CHECK(fitting.overlapped > 100);
  CHECK(fitting.moved > 3);
}

// Limits about what some plan of the front takes: a little less, as much, or a little more.
SearchJob limited(SearchJob job, const RatedPlan& plan, std::mt19937& random) {
  const auto about = [&] { return 0.97 + 0.03 * between(random, 0, 2); };
  if (!plan.cost || between(random, 0, 2) > 0) job.deadline = plan.total_time * about();
  if (plan.cost && (!job.deadline || between(random, 0, 1) == 0)) job.budget = plan.cost->total * about();
  return job;
}

// Plans that are fast only once their layers are moved: the whole search has to look at them, too.
TEST_CASE("a search of a part of the space finds nothing faster than the whole search", "[slow]") {
  SearchJob job;
  job.model = read_model("llama2-7b");
  job.cluster = read_cluster("mixed-p5en-p4de");
  job.global_batch = 64;
  job.sequence = 2048;
  job.total_tokens = 1e9;
  job.top = 1;
  const auto fastest = [](const SearchJob& asked) {
    PriceBook book = book_of(asked);
    return run(asked, book).plans.front().iteration;
  };
  const Seconds whole = fastest(job);
  for (const int tensor : {1, 2, 4}) {
    SearchJob part = job;
    part.space.tensor = {tensor};
    CHECK(whole <= fastest(part));
  }
}

TEST_CASE("threads that play ahead change neither what is found nor what is counted", "[slow]") {
  std::mt19937 random(8);
  std::size_t plans = 0, estimated = 0;
  for (int i = 0; i < 8; ++i) {
    SearchJob job = random_job(random);
    job.pruning = i % 2 == 0 ? Pruning::always : Pruning::never;
    if (i % 4 == 1)
      job.space.schedules = {ScheduleKind::one_f_one_b, ScheduleKind::zb_h1, ScheduleKind::zb_v};
    if (i % 4 == 2) job.cluster.groups.front().nics_per_node = 1;  // transfers that contend
    PriceBook book = book_of(job);
    const SearchResult open = run(job, book);
    if (i % 4 == 3 && !open.plans.empty()) job = limited(job, open.plans.back(), random);
    INFO(describe(job));
    PriceBook first = book_of(job);
    const SearchResult alone = run(job, first);
    job.jobs = 3;
    PriceBook second = book_of(job);
    const SearchResult threaded = run(job, second);
    REQUIRE(found(threaded) == found(alone));
    CHECK(threaded.counts == alone.counts);
    for (std::size_t at = 0; at < alone.plans.size(); ++at)
      CHECK(threaded.plans[at].memory == alone.plans[at].memory);
    plans += alone.plans.size();
    estimated += alone.counts.estimated;
  }
  CHECK(plans > 15);
  CHECK(estimated > 200);
}

TEST_CASE("within limits, too, pruning changes nothing, and limits that nothing meets are seen by bounds",
          "[slow]") {
  std::mt19937 random(6);
  std::size_t some = 0, none = 0, pruned = 0;
  Fitting fitting;
  for (int i = 0; i < 9; ++i) {
    SearchJob job = random_job(random);
    PriceBook book = book_of(job);
    const SearchResult open = run(job, book);
    if (open.plans.empty()) continue;
    const auto any = static_cast<std::size_t>(between(random, 0, static_cast<int>(open.plans.size()) - 1));
    job = limited(job, open.plans[any], random);
    INFO(describe(job));
    job.pruning = Pruning::always;
    PriceBook first = book_of(job), second = book_of(job);
    const SearchResult fast = run(job, first);
    job.pruning = Pruning::never;
    const SearchResult thorough = run(job, second);
    const Found expected = brute_force(job, second, fitting);
    REQUIRE(found(thorough) == expected);
    REQUIRE(found(fast) == expected);
    (expected.empty() ? none : some) += 1;
    if (!expected.empty()) continue;
    CHECK(thorough.counts.rejected.at(InfeasibleKind::budget) > 0);
    CHECK(fast.counts.evaluated == 0);
    pruned += fast.counts.pruned;
  }
  CHECK(some > 2);
  CHECK(none > 0);
  CHECK(pruned > 100);
}

TEST_CASE("a limit that the best plan just meets leaves it the best", "[slow]") {
  std::mt19937 random(4);
  std::size_t plans = 0;
  for (int i = 0; i < 20; ++i) {
    SearchJob job = random_job(random);
    job.pruning = i % 2 == 0 ? Pruning::always : Pruning::never;
    PriceBook book = book_of(job);
    const SearchResult open = run(job, book);
    if (open.plans.empty()) continue;
    ++plans;
    const RatedPlan& best = open.plans.front();
    INFO(describe(job));
    const auto finds_it = [&](const SearchJob& limited) {
      PriceBook again = book_of(limited);
      const SearchResult within = run(limited, again);
      return !within.plans.empty() && within.plans.front().iteration == best.iteration;
    };
    SearchJob limited = job;
    limited.deadline = best.total_time;
    CHECK(finds_it(limited));
    if (!best.cost) continue;
    limited.deadline.reset();
    limited.budget = best.cost->total;
    CHECK(finds_it(limited));
  }
  CHECK(plans > 10);
}

}  // namespace orrery
