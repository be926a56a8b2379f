// What the search drops without a closer look is never among the best: the same plans come out of a search
// that prunes, of one that does not, and of brute force.
#include <algorithm>
#include <limits>
#include <set>

#include "analysis/pareto.hpp"
#include "costmodels/estimate.hpp"
#include "sim/best_plans.hpp"
#include "sim/feasibility.hpp"
#include "sim/layer_limits.hpp"
#include "sim/layer_mover.hpp"
#include "sim/mix_fitter.hpp"
#include "sim/plan_bound.hpp"
#include "sim/priced_bounds.hpp"
#include "sim/search.hpp"
#include "sim/stage_boxes.hpp"
#include "tests/catch.hpp"
#include "tests/strategies/random_schedule.hpp"

namespace orrery {
namespace {

using test::between;

SearchResult run(const SearchJob& job, PriceBook& book) {
  std::vector<Rule> rules;
  return search(job, rules, CostModels::built_in(), book,
                [](const std::string&, std::size_t, std::size_t) {});
}

// Of a stack that knows overlaps, and slows what is computed beside them.
PriceBook book_of(const SearchJob& job) {
  SoftwareStack stack;
  stack.overlap_grad_reduce = stack.overlap_param_gather = true;
  stack.overlap_slowdown = 1.1256;
  return PriceBook(job.model, job.cluster, {job.type, true, job.sequence, stack});
}

NodeGroup random_group(std::mt19937& random, const std::string& name) {
  const std::vector<std::string> kinds{"A100-SXM4-80GB", "H100-SXM5-80GB", "A100-SXM4-40GB"};
  NodeGroup group;
  group.name = name;
  group.gpu = find_gpu(kinds[static_cast<std::size_t>(between(random, 0, 2))], "test");
  group.gpu.memory = group.gpu.memory / (1 << between(random, 0, 3));  // few layers: small cards, too
  group.gpus_per_node = 1 << between(random, 0, 2);
  group.count = {between(random, 0, 3) == 0 ? 1 : 0, between(random, 1, 3)};
  group.gpu_link = {group.gpu.link_bandwidth, microseconds(2)};
  group.nics_per_node = between(random, 0, 1) == 0 ? 1 : group.gpus_per_node;
  group.nic = {gigabits_per_second(between(random, 0, 1) == 0 ? 10 : 200), microseconds(3)};
  if (between(random, 0, 4) > 0) group.price = DollarsPerHour(between(random, 1, 9));
  return group;
}

ModelSpec random_model(std::mt19937& random) {
  const std::vector<std::string> names{"llama2-7b", "gpt2-345m", "mixtral-8x7b", "transgan"};
  const std::string name = names[static_cast<std::size_t>(between(random, 0, 3))];
  ModelSpec model = read_model(name);
  const auto most =
      std::min<std::size_t>(model.layers.size(), static_cast<std::size_t>(between(random, 2, 9)));
  model.layers.resize(most);
  return model;
}

// None, and all of it: by groups, by the first layers of each part, by as few of them as fit.
std::vector<Recompute> random_recompute(std::mt19937& random) {
  const auto full = RecomputeGranularity::full;
  std::vector<Recompute> all{{}, {full, RecomputeMethod::uniform, between(random, 1, 2)}};
  if (between(random, 0, 1) == 0) all.push_back({full, RecomputeMethod::block, between(random, 1, 3)});
  if (between(random, 0, 1) == 0) all.push_back({full, RecomputeMethod::block, 0});
  return all;
}

// One of them or none, since each multiplies the space.
void add_switches(SearchJob& job, std::mt19937& random) {
  const int which = between(random, 0, 5);
  if (which == 0) {
    job.space.sequence_parallel = {true, false};
    job.space.tensor_overlap = {std::nullopt, between(random, 0, 3) > 0};
  } else if (which == 1) {
    job.space.optimizer_offload = {0.0, between(random, 0, 1) == 0 ? 0.5 : 1.0};
    for (NodeGroup& group : job.cluster.groups) group.host.memory = gibibytes(1 << between(random, 0, 6));
  } else if (which == 2) {
    job.space.overlap_p2p = {true, false};
  } else if (which == 3) {
    job.space.optimizer_instances = {1, between(random, 2, 4)};
  } else if (which == 4) {
    job.space.fully_sharded = {true, false};
  }
}

// Left to the search, said, or both tried as candidates of their own.
void add_overlaps(SearchJob& job, std::mt19937& random) {
  const auto choices = [&]() -> std::vector<std::optional<bool>> {
    const int which = between(random, 0, 7);
    if (which == 0) return {true, false};
    if (which == 1) return {true};
    if (which == 2) return {false};
    return {std::nullopt};
  };
  job.space.overlap_grad_reduce = choices();
  job.space.overlap_param_gather = choices();
}

SearchJob random_job(std::mt19937& random) {
  SearchJob job;
  job.model = random_model(random);
  const int groups = between(random, 1, 3);
  for (int i = 0; i < groups; ++i) {
    job.cluster.groups.push_back(random_group(random, "g" + std::to_string(i)));
  }
  job.cluster.name = "random";
  job.space.tensor = {1, 2};
  job.space.context = {1, between(random, 2, 3)};
  job.space.chunks = {1, 2};
  job.space.micro_batch = {1, 2};
  job.space.most_stages = between(random, 2, 5);
  if (between(random, 0, 3) == 0) job.space.stages = {job.space.most_stages / 2, job.space.most_stages};
  job.space.recompute = random_recompute(random);
  job.space.flash_attention = {true};
  if (between(random, 0, 3) == 0) job.space.flash_attention.push_back(false);
  job.space.sequence_parallel = {false};
  add_overlaps(job, random);
  job.space.schedules = {ScheduleKind::one_f_one_b, ScheduleKind::gpipe};
  if (between(random, 0, 2) == 0) job.space.orders = {RankOrder::cp_dp_pp, RankOrder::cp_pp_dp};
  job.mode = static_cast<SearchMode>(between(random, 0, 1));
  job.global_batch = 4 * between(random, 1, 6);
  job.sequence = 256 * between(random, 1, 8);
  job.model.learned_positions = 0;
  job.total_tokens = job.tokens_per_iteration() * 10;
  job.top = between(random, 1, 5);
  add_switches(job, random);
  return job;
}

std::string describe(const SearchJob& job) {
  std::string text = job.model.name + " of " + std::to_string(job.model.layer_count()) + " layers, batch " +
                     std::to_string(job.global_batch) + ", sequence " + std::to_string(job.sequence) +
                     ", at most " + std::to_string(job.space.most_stages) + " stages, best " +
                     std::to_string(job.top) + "\n";
  return text + to_yaml(job.cluster);
}

// Every candidate that has a shape, fitted or not.
template <class Visit>
void for_each_candidate(const SearchJob& job, Visit visit) {
  for (const Ways& ways : all_ways(job.cluster, job.space, job.mode, job.global_batch)) {
    for_each_stage_counts(job.cluster, job.space, job.mode, ways, [&](const StageCounts& stages) {
      for (const Allocation& allocation : orders(job.cluster, ways, stages)) {
        for (const Setting& setting : settings(job.space)) {
          if (shape_obstacle(job.model, job.cluster, allocation, setting, job.global_batch, job.sequence))
            continue;
          visit(stages, allocation, setting);
        }
      }
    });
  }
}

constexpr int kTriedOfAJob = 1000;

// About kTriedOfAJob of the candidates, all of them where there are fewer.
template <class Visit>
void for_some_candidates(const SearchJob& job, std::mt19937& random, Visit visit) {
  int count = 0;
  for_each_candidate(job, [&](const auto&...) { ++count; });
  for_each_candidate(job, [&](const auto&... candidate) {
    if (between(random, 1, std::max(count, 1)) <= kTriedOfAJob) visit(candidate...);
  });
}

template <class Visit>
void for_each_mix(const SearchJob& job, Visit visit) {
  for (const ReplicaMix& mix : replica_mixes(job.cluster, job.space, job.mode, job.global_batch)) {
    for (const Setting& setting : settings(job.space)) {
      if (!mix_obstacle(job.model, job.cluster, mix, setting, job.global_batch, job.sequence))
        visit(mix, setting);
    }
  }
}

Seconds played(const PriceBook& book, const ParallelStrategy& strategy) {
  const Topology topology(book.cluster(), strategy.nodes);
  const PricedPlan priced = book.price(strategy, topology);
  return estimate_iteration(priced, make_programs(priced), topology);
}

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
constexpr int kMoved = 10;

// The fastest and the front, fastest first.
std::vector<Tried> select(const SearchJob& job, std::vector<Tried> all, int top) {
  std::stable_sort(all.begin(), all.end(),
                   [](const Tried& a, const Tried& b) { return a.plan.iteration < b.plan.iteration; });
  std::vector<ParetoPoint> points;
  for (const Tried& tried : all) {
    const auto cost = run_cost(job.cluster, tried.plan.strategy.nodes, tried.plan.iteration,
                               job.tokens_per_iteration(), job.total_tokens);
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
  const std::vector<int>& nodes = plan.strategy.nodes;
  const auto cost =
      run_cost(job.cluster, nodes, plan.iteration, job.tokens_per_iteration(), job.total_tokens);
  return !limit_obstacle(job, total_time(job, nodes, plan.iteration), cost);
}

// Everything that fits is played, with equal layers and every overlap too; then the layers of the ten fastest
// are moved.
Found brute_force(const SearchJob& job, const PriceBook& book, Fitting& fitting) {
  std::vector<Tried> all;
  StageFitter fitter(book);
  const auto add = [&](const ParallelStrategy& fitted, const std::optional<ParallelStrategy>& equal,
                       const Setting& setting) {
    RatedPlan plan;
    const auto take_faster = [&](const ParallelStrategy& split, std::size_t& faster) {
      const Seconds before = plan.iteration;
      for (const ParallelStrategy& choice : with_overlaps(split, setting)) {
        const Seconds time = played(book, choice);
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
    if (within_limits(job, plan)) all.push_back({std::move(plan), setting});
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
  std::vector<Tried> best = select(job, std::move(all), std::max(job.top, kMoved));
  const std::vector<Rule> no_rules;
  RuleBook rules(job.model, no_rules);
  PlanPlayer player(job, book, fitter);
  LayerMover mover(book, fitter, player, rules);
  for (std::size_t i = 0; i < std::min<std::size_t>(kMoved, best.size()); ++i) {
    const Seconds before = best[i].plan.iteration;
    best[i].plan = mover.improved(best[i].plan);
    fitting.moved += best[i].plan.iteration < before ? 1 : 0;
  }
  Found found;
  for (const Tried& tried : select(job, std::move(best), job.top))
    found.emplace_back(tried.plan.iteration.value(), tried.plan.strategy);
  return found;
}

}  // namespace

TEST_CASE("a search that prunes, one that does not and brute force find the same plans") {
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

TEST_CASE("within limits, too, pruning changes nothing, and limits that nothing meets are seen by bounds") {
  std::mt19937 random(6);
  std::size_t some = 0, none = 0, pruned = 0;
  Fitting fitting;
  for (int i = 0; i < 12; ++i) {
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

TEST_CASE("no plan takes less time than its bound, and none fits that the quick look at memory drops") {
  std::mt19937 random(2);
  std::size_t fitting = 0, dropped = 0;
  double tightest = 0;  // of the bounds of plans whose layers are split, over their times
  for (int i = 0; i < 24; ++i) {
    SearchJob job = random_job(random);
    if (i % 4 == 3) job.space.schedules = {ScheduleKind::zb_h1, ScheduleKind::zb_h2, ScheduleKind::zb_v};
    if (i % 4 == 1) job.space.optimizer_instances = {4, 2, 1};
    if (i % 4 == 2) job.space.fully_sharded = {false, true};
    INFO(describe(job));
    PriceBook book = book_of(job);
    static_cast<void>(run(job, book));  // prices all
    StageFitter fitter(book);
    TimeBounds bounds(book, job.space.most_stages, job.global_batch);
    LayerLimits limits(book, job.space.most_stages, job.global_batch);
    const auto fits = [&](const Ways& ways) {
      std::vector<char> groups;
      for (int group = 0; group < static_cast<int>(job.cluster.groups.size()); ++group) {
        groups.push_back(
            !group_obstacle(job.cluster.groups[static_cast<std::size_t>(group)], ways.of_group(group)));
      }
      return groups;
    };
    for_some_candidates(job, random,
                        [&](const StageCounts& stages, const Allocation& allocation, const Setting& setting) {
                          ParallelStrategy strategy =
                              strategy_of(allocation, setting, job.global_batch, job.sequence, job.type);
                          const bool may_fit = limits.may_fit(allocation, setting, strategy.microbatches());
                          if (!std::holds_alternative<FittedStages>(fitter.fit(strategy))) {
                            dropped += may_fit ? 0 : 1;
                            return;
                          }
                          REQUIRE(may_fit);
                          ++fitting;
                          const Ways ways = allocation.ways();
                          const TimeBound bound = bounds.bound(ways, fits(ways), setting, {setting});
                          const double least = std::max(bound.spread(stages), bound.whole_layers(stages));
                          REQUIRE(least > 0);
                          const std::vector<ParallelStrategy> choices = with_overlaps(strategy, setting);
                          const double of_any = least_plan_time(book, choices.back()).value();
                          double time = std::numeric_limits<double>::infinity();
                          for (const ParallelStrategy& choice : choices) {
                            const double of_choice = played(book, choice).value();
                            const double split = least_plan_time(book, choice).value();
                            REQUIRE(split <= of_choice);
                            REQUIRE(of_any <= split);
                            tightest = std::max(tightest, split / of_choice);
                            time = std::min(time, of_choice);
                          }
                          REQUIRE(least <= time);
                          if (const auto equal = fitter.fit_equal(strategy)) {
                            ParallelStrategy even = strategy;
                            even.parts = equal->parts;
                            for (const ParallelStrategy& choice : with_overlaps(even, setting))
                              REQUIRE(least_plan_time(book, choice) <= played(book, choice));
                          }
                          // Of any box of counts that this one is in.
                          StageCounts fewest = stages, most = stages;
                          std::vector<double> rates;
                          double rate = 0;
                          for (std::size_t group = 0; group < stages.size(); ++group) {
                            fewest[group] -= between(random, 0, stages[group]);
                            most[group] += between(random, 0, 3);
                            rates.push_back(between(random, 1, 9));
                            rate += rates.back() * stages[group];
                          }
                          REQUIRE(bound.spread_within(most) <= bound.spread(stages) * (1 + 1e-12));
                          REQUIRE(bound.least_money(fewest, most, rates) <= time * rate);
                        });
    MixFitter mixer(book, fitter);
    for_each_mix(job, [&](const ReplicaMix& mix, const Setting& setting) {
      const auto fitted = mixer.fit(mix, setting, job.global_batch);
      const auto* plan = std::get_if<FittedMix>(&fitted);
      if (plan == nullptr) return;
      const double time = played(book, plan->strategy).value();
      REQUIRE(mixer.least_time(mix, setting, job.global_batch).value() <= time);
      REQUIRE(plan->least.value() <= time);
    });
  }
  CHECK(fitting > 3000);
  CHECK(dropped > 100);
  CHECK(tightest > 0.99);
}

TEST_CASE("stage counts that a search leaves out in boxes could not matter") {
  std::mt19937 random(3);
  std::size_t visited = 0, left_out = 0;
  for (int i = 0; i < 12; ++i) {
    const SearchJob job = random_job(random);
    INFO(describe(job));
    PriceBook book = book_of(job);
    const SearchResult result = run(job, book);
    BestPlans best(1);
    for (const RatedPlan& plan : result.plans) {
      best.add({plan.iteration.value(),
                plan.cost ? plan.cost->per_iteration.value() : std::numeric_limits<double>::infinity()});
    }
    TimeBounds bounds(book, job.space.most_stages, job.global_batch);
    const CandidateSpace space = candidate_space(job);
    for (const WaysCase& at : space.cases) {
      std::vector<TimeBound> of_families;
      for (const FamilyCase& family : at.families) {
        const Setting& common = space.families[family.family].common;
        of_families.push_back(bounds.bound(at.ways, at.group_fits, common, {common}));
      }
      std::set<std::pair<StageCounts, std::uint32_t>> seen;
      StageBoxes(job, at, of_families, best)
          .for_each([&](const StageCounts& stages, const std::vector<std::uint32_t>& families) {
            for (const std::uint32_t family : families) REQUIRE(seen.insert({stages, family}).second);
          });
      visited += seen.size();
      for_each_stage_counts(job.cluster, job.space, job.mode, at.ways, [&](const StageCounts& stages) {
        if (!at.fits(stages)) return;
        const auto cost = run_cost(job.cluster, nodes_of(job.cluster, at.ways, stages), Seconds(1), 1, 1);
        for (std::uint32_t family = 0; family < of_families.size(); ++family) {
          if (seen.erase({stages, family}) > 0) continue;
          const double time = of_families[family].spread(stages);
          ++left_out;
          REQUIRE(!best.may_matter({time, cost ? time * cost->price.value() / 3600 : 0}));
        }
      });
      REQUIRE(seen.empty());
    }
  }
  CHECK(visited > 100);
  CHECK(left_out > 100);
}

// 6 equal layers on stages that take 1 s and 2 s a layer, 10 microbatches, without fill. Perfectly spread
// over one fast and one slow stage: 6 / (1 + 1 / 2) = 4 s a microbatch, which is 4 layers and 2. Over one
// fast and two slow: 6 / 2 = 3 s, but a slow stage takes 2 s or 4 s: 3 layers and 1 and 1 are 5, so 4 s.
TEST_CASE("the bound spreads the model and then counts whole layers") {
  WorkRates rates;
  rates.blocks = {std::vector<double>(6, 1.0), std::vector<double>(6, 2.0)};
  rates.layer = {1.0, 2.0};
  TimeBound::Pipeline pipeline;
  pipeline.microbatches = 10;
  pipeline.layers = 6;
  pipeline.most_stages = 4;
  pipeline.schedule = ScheduleKind::zb_h1;
  const std::vector<LeastTraffic> none(2);
  const TimeBound bound(rates, none, pipeline);
  CHECK(bound.spread({1, 1}) == Approx(40));
  CHECK(bound.whole_layers({1, 1}) == Approx(40));
  CHECK(bound.spread({1, 2}) == Approx(30));
  CHECK(bound.whole_layers({1, 2}) == Approx(40));
  // Of this bound and one where the other kind of stage is the fast one: as if both were, 6 / 2 = 3 s.
  WorkRates other = rates;
  std::swap(other.blocks[0], other.blocks[1]);
  std::swap(other.layer[0], other.layer[1]);
  CHECK(LeastBound({bound, TimeBound(other, none, pipeline)}, 2).spread_within({1, 1}) == Approx(30));
  CHECK(LeastBound({bound}, 2).spread_within({1, 2}) == Approx(30));
  // A reduction of 5 s a layer is half a second more a microbatch on each: 1.5 s and 2.5 s.
  // 6 / (1 / 1.5 + 1 / 2.5) = 5.625 s; 3 and 2 layers within 5 s are 5, so 4 x 1.5 = 6 s.
  const TimeBound reduced(rates, {{5, 0}, {5, 0}}, pipeline);
  CHECK(reduced.spread({1, 1}) == Approx(56.25));
  CHECK(reduced.whole_layers({1, 1}) == Approx(60));
  // With fill, M loads of T / M (1 - 1 / M)^s: two equal stages hold 1 + 0.9 of the first one's load.
  pipeline.fill = 1;
  CHECK(TimeBound(rates, none, pipeline).spread({2, 0}) == Approx(60 / 1.9));
  // 1f1b, forwards a third: two fast stages hold 1 / (9 - 1 / 3) + 1 / 9 of the excess over the 6 s of all
  // work. Whole layers: with 26 s the first holds three of 8 2/3 s and the second two of 9 s, with 27 s three
  // and three. A fast one and a slow one hold 3 / 26 and 1 / 18.
  pipeline.schedule = ScheduleKind::one_f_one_b;
  rates.lesser_most = 1.0 / 3;
  const TimeBound closed(rates, none, pipeline);
  CHECK(closed.spread({2, 0}) == Approx(6 + 6 / (3.0 / 26 + 1.0 / 9)));
  CHECK(closed.whole_layers({2, 0}) == Approx(6 + 27));
  const double excess = 6 / (3.0 / 26 + 1.0 / 18), fast = excess * 3 / 26;
  CHECK(closed.spread({1, 1}) == Approx(excess + fast + 2 * (6 - fast)));
}

TEST_CASE("the best plans know what may still matter") {
  BestPlans best(2);
  CHECK(best.may_matter({100, 100}));
  best.add({10, 8});
  best.add({20, 4});
  CHECK(best.may_matter({20, 9}));    // as fast as the second
  CHECK(!best.may_matter({21, 4}));   // dearer than, or as dear as, a faster one
  CHECK(best.may_matter({21, 3.9}));  // cheaper
  CHECK(!best.may_matter({21, 0}));   // its price is not known, and two are faster
  best.add({15, 9});                  // dominated, but among the two fastest
  CHECK(!best.may_matter({16, 8}));
  CHECK(best.may_matter({16, 7.9}));
}

}  // namespace orrery
