// No plan is better than the bounds by which a search drops candidates.
#include <algorithm>
#include <limits>
#include <set>

#include "sim/bounds/layer_limits.hpp"
#include "sim/bounds/plan_bound.hpp"
#include "sim/bounds/priced_bounds.hpp"
#include "sim/search/best_plans.hpp"
#include "sim/search/mix_fitter.hpp"
#include "sim/search/stage_boxes.hpp"
#include "tests/sim/search_tests.hpp"

namespace orrery {
namespace {

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

// To another region.
void move_last_group_away(ClusterSpec& cluster) {
  cluster.groups.back().region = "far";
  for (const NodeGroup& group : cluster.groups) {
    if (group.region == "far" || link_between(cluster.fabric.regions, group.region, "far")) continue;
    cluster.fabric.regions.push_back({group.region, "far", {gigabits_per_second(5), milliseconds(1)}});
  }
}

// DeepSeek-V3's: dense layers, then mixtures, here of so many experts that some of them fit.
ModelSpec small_mixture(std::mt19937& random) {
  ModelSpec model = read_model("deepseek-v3");
  model.layers.resize(static_cast<std::size_t>(between(random, 4, 6)));
  for (LayerShape& shape : model.shapes) {
    if (shape.experts > 1) shape.experts = between(random, 8, 40);
  }
  return model;
}

}  // namespace

TEST_CASE("no plan takes less time than its bound, and none fits that the quick look at memory drops",
          "[slow]") {
  std::mt19937 random(2);
  std::size_t fitting = 0, dropped = 0;
  std::size_t unlike_fitting = 0, unlike_dropped = 0;  // of models whose layers are unlike
  double tightest = 0;  // of the bounds of plans whose layers are split, over their times
  for (int i = 0; i < 24; ++i) {
    SearchJob job = random_job(random);
    if (i % 4 == 3) job.space.schedules = {ScheduleKind::zb_h1, ScheduleKind::zb_h2, ScheduleKind::zb_v};
    if (i % 4 == 1) job.space.optimizer_instances = {4, 2, 1};
    if (i % 4 == 2) job.space.fully_sharded = {false, true};
    if (i % 3 == 0) move_last_group_away(job.cluster);
    if (i % 3 == 2) job.model = small_mixture(random);
    const auto& layers = job.model.layers;
    const bool unlike =
        std::any_of(layers.begin(), layers.end(), [&](int shape) { return shape != layers.front(); });
    INFO(describe(job));
    PriceBook book = priced_book_of(job);
    StageFitter fitter(book);
    PlanTimes times(book);
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
    for_some_candidates(
        job, random, [&](const StageCounts& stages, const Allocation& allocation, const Setting& setting) {
          ParallelStrategy strategy =
              strategy_of(allocation, setting, job.global_batch, job.sequence, job.type);
          const bool may_fit = limits.may_fit(allocation, setting, strategy.microbatches());
          if (!std::holds_alternative<FittedStages>(fitter.fit(strategy))) {
            dropped += may_fit ? 0 : 1;
            unlike_dropped += unlike && !may_fit ? 1 : 0;
            return;
          }
          REQUIRE(may_fit);
          ++fitting;
          unlike_fitting += unlike ? 1 : 0;
          const Ways ways = allocation.ways();
          const TimeBound bound = bounds.bound(ways, fits(ways), setting, {setting});
          const double least = std::max(bound.spread(stages), bound.whole_layers(stages));
          REQUIRE(least > 0);
          const std::vector<ParallelStrategy> choices = with_overlaps(strategy, setting);
          const double of_any = least_plan_time(book, choices.back()).value();
          double time = std::numeric_limits<double>::infinity();
          for (const ParallelStrategy& choice : choices) {
            const double of_choice = times.played(choice).value();
            const double split = least_plan_time(book, choice).value();
            REQUIRE(split <= of_choice);
            REQUIRE(least_plan_time(book, choice, times.priced(choice).parts).value() <= of_choice);
            REQUIRE(of_any <= split);
            tightest = std::max(tightest, split / of_choice);
            time = std::min(time, of_choice);
          }
          REQUIRE(least <= time);
          if (const auto equal = fitter.fit_equal(strategy)) {
            ParallelStrategy even = strategy;
            even.parts = equal->parts;
            for (const ParallelStrategy& choice : with_overlaps(even, setting))
              REQUIRE(least_plan_time(book, choice) <= times.played(choice));
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
      const double time = times.played(plan->strategy).value();
      REQUIRE(mixer.least_time(mix, setting, job.global_batch).value() <= time);
      REQUIRE(plan->least.value() <= time);
    });
  }
  CHECK(fitting > 3000);
  CHECK(dropped > 100);
  CHECK(unlike_dropped > 100);
  CHECK(unlike_fitting > 100);
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
        const auto cost =
            run_cost(job.cluster, paid_nodes(job.cluster, nodes_in_use(job.cluster, at.ways, stages)),
                     Seconds(1), 1, 1);
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
