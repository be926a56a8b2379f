#include "strategies/partition.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/catch.hpp"
#include "tests/strategies/random_schedule.hpp"
#include "tests/strategies/schedule_player.hpp"

namespace orrery {
namespace {

using test::between;

struct Problem {
  std::vector<std::vector<double>> layers;  // [stage][layer] load of one layer
  std::vector<int> most_layers;

  [[nodiscard]] int layer_count() const { return static_cast<int>(layers.front().size()); }
  [[nodiscard]] std::size_t stages() const { return layers.size(); }
};

std::string to_text(const Problem& problem) {
  std::string text;
  for (std::size_t stage = 0; stage < problem.stages(); ++stage) {
    text +=
        "stage " + std::to_string(stage) + " most " + std::to_string(problem.most_layers[stage]) + " layers";
    for (const double load : problem.layers[stage]) text += " " + std::to_string(load);
    text += "\n";
  }
  return text;
}

// Whole numbers, so that sums are exact whatever their order. `uneven`: layers differ; `kinds`: stages
// differ.
Problem random_problem(std::mt19937& random, bool uneven, bool kinds) {
  Problem problem;
  const int stages = between(random, 1, 4);
  const int count = between(random, 1, 8);
  std::vector<double> base;
  const double equal = between(random, 0, 9);
  for (int i = 0; i < count; ++i) base.push_back(uneven ? between(random, 0, 9) : equal);
  for (int stage = 0; stage < stages; ++stage) {
    const double speed = kinds ? between(random, 1, 4) : 1;
    std::vector<double> row;
    for (const double load : base) row.push_back(load * speed);
    if (between(random, 0, 2) == 0) row.front() += between(random, 0, 20);  // embedding
    if (between(random, 0, 2) == 0) row.back() += between(random, 0, 20);   // head
    problem.layers.push_back(row);
    problem.most_layers.push_back(between(random, 0, 9) < 2 ? between(random, 0, 4) : count);
  }
  return problem;
}

// Forwards take `forward` of a layer's load.
std::vector<PrefixTimes> prefix_times(const Problem& problem, double forward) {
  std::vector<PrefixTimes> before;
  for (const auto& row : problem.layers) {
    before.push_back({{0.0}, {0.0}});
    for (const double load : row) {
      before.back().forward.push_back(before.back().forward.back() + forward * load);
      before.back().whole.push_back(before.back().whole.back() + load);
    }
  }
  return before;
}

std::vector<StageLoad> loads_of(const Problem& problem, const std::vector<PrefixTimes>& before) {
  std::vector<StageLoad> stages;
  for (std::size_t i = 0; i < problem.stages(); ++i) stages.push_back({&before[i], problem.most_layers[i]});
  return stages;
}

std::optional<std::vector<LayerRange>> solve(const Problem& problem) {
  const std::vector<PrefixTimes> before = prefix_times(problem, 1.0 / 3);
  return least_slowest_split(loads_of(problem, before));
}

double slowest(const Problem& problem, const std::vector<LayerRange>& ranges) {
  double most = 0;
  for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
    double sum = 0;
    for (int i = 0; i < ranges[stage].count; ++i) {
      sum += problem.layers[stage][static_cast<std::size_t>(ranges[stage].first + i)];
    }
    most = std::max(most, sum);
  }
  return most;
}

// Every split, one after the other.
void for_each_split(const Problem& problem,
                    const std::function<void(const std::vector<LayerRange>&)>& visit) {
  std::vector<LayerRange> ranges;
  const std::function<void(int)> extend = [&](int first) {
    if (ranges.size() == problem.stages()) {
      if (first == problem.layer_count()) visit(ranges);
      return;
    }
    const int most = std::min(problem.most_layers[ranges.size()], problem.layer_count() - first);
    for (int count = 1; count <= most; ++count) {
      ranges.push_back({first, count});
      extend(first + count);
      ranges.pop_back();
    }
  };
  extend(0);
}

// Counts of layers from the last stage to the first.
std::vector<int> counts_from_the_back(const std::vector<LayerRange>& ranges) {
  std::vector<int> counts;
  for (auto range = ranges.rbegin(); range != ranges.rend(); ++range) counts.push_back(range->count);
  return counts;
}

// The least slowest stage; among equals, the most layers at the last stage, then at the one before.
std::optional<std::vector<LayerRange>> brute_force(const Problem& problem) {
  std::optional<std::vector<LayerRange>> best;
  for_each_split(problem, [&](const std::vector<LayerRange>& ranges) {
    const double load = slowest(problem, ranges);
    const bool better =
        !best || load < slowest(problem, *best) ||
        (load == slowest(problem, *best) && counts_from_the_back(ranges) > counts_from_the_back(*best));
    if (better) best = ranges;
  });
  return best;
}

void check_against_brute_force(unsigned seed, bool uneven, bool kinds) {
  std::mt19937 random(seed);
  for (int i = 0; i < 500; ++i) {
    const Problem problem = random_problem(random, uneven, kinds);
    INFO(to_text(problem));
    const auto expected = brute_force(problem);
    const auto found = solve(problem);
    REQUIRE(found.has_value() == expected.has_value());
    if (found) REQUIRE(*found == *expected);
  }
}

}  // namespace

TEST_CASE("equal layers on equal stages are split as brute force splits them") {
  check_against_brute_force(1, false, false);
}

TEST_CASE("equal layers on stages of several speeds are split as brute force splits them") {
  check_against_brute_force(2, false, true);
}

TEST_CASE("unequal layers on equal stages are split as brute force splits them") {
  check_against_brute_force(3, true, false);
}

TEST_CASE("unequal layers on stages of several speeds are split as brute force splits them") {
  check_against_brute_force(4, true, true);
}

// The last stage could take two layers within 10, but then the slow first stage would be left with the heavy
// one: 4 x 9 = 36. Taking the light layer 0 there and 9 + 1 at the fast stage: max(4 x 1, 10) = 10.
TEST_CASE("a slow stage gets the light layer") {
  CHECK(solve({{{36, 4, 4}, {9, 1, 1}}, {3, 3}}) == std::vector<LayerRange>{{0, 1}, {1, 2}});
  CHECK(solve({{{4, 36, 4}, {1, 9, 1}}, {3, 3}}) == std::vector<LayerRange>{{0, 1}, {1, 2}});
}

TEST_CASE("the embedding and the head count as load") {
  // 6 layers of 1 and a head of 2: (2, 2, 2) loads the last stage with 4, (2, 3, 1) and (3, 2, 1) at most 3.
  const std::vector<double> layers{1, 1, 1, 1, 1, 3};
  CHECK(solve({{layers, layers, layers}, {6, 6, 6}}) == std::vector<LayerRange>{{0, 2}, {2, 3}, {5, 1}});
}

TEST_CASE("real loads are split within rounding of the best") {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> load(1e-4, 1e-2);
  for (int i = 0; i < 300; ++i) {
    Problem problem = random_problem(random, true, true);
    for (auto& row : problem.layers) {
      for (double& value : row) value = load(random);
    }
    INFO(to_text(problem));
    const auto expected = brute_force(problem);
    const auto found = solve(problem);
    REQUIRE(found.has_value() == expected.has_value());
    if (!found) continue;
    REQUIRE(slowest(problem, *found) == Approx(slowest(problem, *expected)).epsilon(1e-9));
  }
}

TEST_CASE("large problems are covered in order, each stage within its limit") {
  std::mt19937 random(6);
  for (int i = 0; i < 50; ++i) {
    Problem problem;
    const int stages = between(random, 1, 16);
    const int layers = between(random, stages, 128);
    for (int stage = 0; stage < stages; ++stage) {
      problem.layers.emplace_back(static_cast<std::size_t>(layers), between(random, 1, 5));
      problem.layers.back().back() += between(random, 0, 10);
      problem.most_layers.push_back(between(random, (layers + stages - 1) / stages, layers));
    }
    INFO(to_text(problem));
    const auto found = solve(problem);
    REQUIRE(found.has_value());
    int next = 0;
    for (std::size_t stage = 0; stage < problem.stages(); ++stage) {
      const LayerRange range = (*found)[stage];
      REQUIRE(range.first == next);
      REQUIRE((range.count >= 1 && range.count <= problem.most_layers[stage]));
      next += range.count;
    }
    REQUIRE(next == layers);
  }
}

namespace {

std::vector<StageWork> work_of(const Problem& problem, const std::vector<LayerRange>& ranges,
                               double forward) {
  std::vector<StageWork> work;
  for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
    double sum = 0;
    for (int i = 0; i < ranges[stage].count; ++i) {
      sum += problem.layers[stage][static_cast<std::size_t>(ranges[stage].first + i)];
    }
    work.push_back({forward * sum, sum});
  }
  return work;
}

double played(const std::vector<StageWork>& stages, const PipelineShape& shape) {
  test::PlayTimes times;
  for (const StageWork& stage : stages) {
    times.forward.push_back(stage.forward);
    times.backward.push_back(stage.whole - stage.forward);
    times.weight.push_back(0);
  }
  times.transfer.assign(stages.size() - 1, 0.0);
  const Schedule schedule = make_schedule(
      {shape.schedule, TransferMode::eager, shape.stages, 1, static_cast<int>(shape.microbatches), 0});
  return test::Player(schedule, times).play()->makespan();
}

// Stages between `least` and 1 s; forwards take between a quarter (all is recomputed) and a third of them.
struct RandomPipeline {
  std::vector<StageWork> stages;
  PipelineShape shape;
};
RandomPipeline random_pipeline(std::mt19937& random, ScheduleKind kind, double least) {
  std::uniform_real_distribution<double> load(least, 1), share(0.25, 0.35);
  RandomPipeline pipeline;
  pipeline.shape = {kind, static_cast<double>(between(random, 1, 16)), between(random, 1, 7)};
  const double forward = share(random);
  for (int stage = 0; stage < pipeline.shape.stages; ++stage) {
    const double whole = load(random);
    pipeline.stages.push_back({forward * whole, whole});
  }
  return pipeline;
}

}  // namespace

// Against a player that shares no code. Of 300 pipelines with stages of 0.7 to 1 s few are not met exactly.
TEST_CASE("the time of a pipeline is that of its schedule, and never above it") {
  const ScheduleKind kind = GENERATE(ScheduleKind::one_f_one_b, ScheduleKind::gpipe);
  std::mt19937 random(8);
  int exact = 0;
  for (int i = 0; i < 300; ++i) {
    const RandomPipeline mild = random_pipeline(random, kind, 0.7);
    const double time = pipeline_time(mild.stages, mild.shape), truth = played(mild.stages, mild.shape);
    REQUIRE(time <= truth * (1 + 1e-12));
    REQUIRE(time >= truth * 0.99);
    exact += time >= truth * (1 - 1e-12) ? 1 : 0;
    const RandomPipeline wild = random_pipeline(random, kind, 0.1);
    REQUIRE(pipeline_time(wild.stages, wild.shape) <= played(wild.stages, wild.shape) * (1 + 1e-12));
  }
  CHECK(exact > 290);
}

// (M + P - 1)(F + BW). Where the first of two stages takes 4 s and the second 2 s, the first works 4 x 4 s,
// and waits for the second after its first forward: 2 s, of which its next forward fills 4 / 3 s.
TEST_CASE("pipelines whose time is known") {
  CHECK(pipeline_time(std::vector<StageWork>(8, {1, 3}), {ScheduleKind::one_f_one_b, 32, 8}) == Approx(117));
  CHECK(pipeline_time(std::vector<StageWork>(8, {1, 3}), {ScheduleKind::gpipe, 32, 8}) == Approx(117));
  CHECK(pipeline_time({{4.0 / 3, 4}, {2.0 / 3, 2}}, {ScheduleKind::one_f_one_b, 4, 2}) ==
        Approx(16 + 2 - 4.0 / 3));
}

TEST_CASE("the quickest split has the least time of all splits, by the formula and as played") {
  const ScheduleKind kind = GENERATE(ScheduleKind::one_f_one_b, ScheduleKind::gpipe);
  std::mt19937 random(9);
  int better = 0, certain = 0;
  for (int i = 0; i < 400; ++i) {
    const Problem problem = random_problem(random, i % 2 == 0, i % 4 < 2);
    const PipelineShape shape{kind, static_cast<double>(between(random, 1, 12)),
                              static_cast<int>(problem.stages())};
    INFO(to_text(problem) << shape.microbatches << " microbatches");
    const double forward = 1.0 / between(random, 2, 4);
    const std::vector<PrefixTimes> before = prefix_times(problem, forward);
    double least = std::numeric_limits<double>::infinity(), least_played = least;
    for_each_split(problem, [&](const std::vector<LayerRange>& ranges) {
      const std::vector<StageWork> work = work_of(problem, ranges, forward);
      least = std::min(least, pipeline_time(work, shape));
      if (slowest(problem, ranges) > 0) least_played = std::min(least_played, played(work, shape));
    });
    const auto found = quickest_split(loads_of(problem, before), shape);
    REQUIRE(found.has_value() == std::isfinite(least));
    if (!found || least == 0) continue;
    const std::vector<StageWork> work = work_of(problem, *found, forward);
    const double time = pipeline_time(work, shape);
    REQUIRE(time == Approx(least).epsilon(1e-9));
    // Where the formula is the schedule's time, no other split can be played faster.
    if (played(work, shape) <= time * (1 + 1e-9)) {
      REQUIRE(time == Approx(least_played).epsilon(1e-9));
      ++certain;
    }
    const auto balanced = least_slowest_split(loads_of(problem, before));
    better += time < pipeline_time(work_of(problem, *balanced, forward), shape) * (1 - 1e-9) ? 1 : 0;
  }
  CHECK(certain > 250);
  CHECK(better > 5);
}

// Equal layers, forwards a third of them, embedding and head besides; stage s takes n_s layers, of which
// min(n_s, r) pass forward once more.
TEST_CASE("the quickest split counts the layers that `block` recomputes of each stage") {
  std::mt19937 random(10);
  int differs = 0;
  for (int i = 0; i < 150; ++i) {
    const int layers = between(random, 1, 8), repeated = between(random, 1, 4);
    Problem problem;
    std::vector<double> repeat;  // [stage] s of one layer
    for (int stage = between(random, 1, 4); stage > 0; --stage) {
      const double layer = between(random, 1, 9);
      repeat.push_back(layer / 3);
      problem.layers.emplace_back(static_cast<std::size_t>(layers), layer);
      problem.layers.back().front() += between(random, 0, 9);
      problem.layers.back().back() += between(random, 0, 9);
      problem.most_layers.push_back(between(random, 0, 4) == 0 ? between(random, 1, 4) : layers);
    }
    const PipelineShape shape{ScheduleKind::one_f_one_b, static_cast<double>(between(random, 1, 12)),
                              static_cast<int>(problem.stages())};
    INFO(to_text(problem) << shape.microbatches << " microbatches, " << repeated << " layers repeated");
    std::vector<PrefixTimes> before = prefix_times(problem, 1.0 / 3);
    std::vector<StageLoad> loads = loads_of(problem, before);
    const auto plain = quickest_split(loads, shape);
    for (std::size_t stage = 0; stage < before.size(); ++stage) {
      for (int layer = 0; layer <= layers; ++layer) before[stage].repeat.push_back(layer * repeat[stage]);
      loads[stage].repeated = repeated;
    }
    const auto time_of = [&](const std::vector<LayerRange>& ranges) {
      std::vector<StageWork> work = work_of(problem, ranges, 1.0 / 3);
      for (std::size_t stage = 0; stage < work.size(); ++stage)
        work[stage].whole += std::min(ranges[stage].count, repeated) * repeat[stage];
      return pipeline_time(work, shape);
    };
    double least = std::numeric_limits<double>::infinity();
    for_each_split(problem,
                   [&](const std::vector<LayerRange>& ranges) { least = std::min(least, time_of(ranges)); });
    const auto found = quickest_split(loads, shape);
    REQUIRE(found.has_value() == std::isfinite(least));
    if (!found) continue;
    REQUIRE(time_of(*found) == Approx(least).epsilon(1e-9));
    differs += time_of(*plain) > least * (1 + 1e-9) ? 1 : 0;
  }
  CHECK(differs > 3);
}

// 80 layers of 1 s over 29 stages, forwards a third, 64 microbatches: three layers a stage are 80 + 63 x 3 =
// 269 s at the last of them with three, less a forward of 1 s for each stage behind it. Two layers each from
// the last stage on, three in front: 22 stages of three and 7 of two make 80, and stage 21 has 7 stages
// behind it: 80 + 63 x 3 - 7 x 1 = 262 s. With four in front, stage s of four takes 80 + 63 x 4 - (28 - s) 4
// / 3, 294.7 s at the very first: more.
TEST_CASE("early stages take more layers than late ones") {
  Problem problem{std::vector<std::vector<double>>(29, std::vector<double>(80, 1.0)),
                  std::vector<int>(29, 80)};
  const std::vector<PrefixTimes> before = prefix_times(problem, 1.0 / 3);
  const PipelineShape shape{ScheduleKind::one_f_one_b, 64, 29};
  const auto found = quickest_split(loads_of(problem, before), shape);
  const std::vector<StageWork> work = work_of(problem, *found, 1.0 / 3);
  CHECK(pipeline_time(work, shape) == Approx(262));
  CHECK(played(work, shape) == Approx(262));
}

// Four layers over the stages of runs: one fast stage (1 s a layer), one slow (2 s), one slower (3 s). 1 + 1
// + 2 would load the slowest with 6 s; 2 + 1 + 1 loads it with 3.
TEST_CASE("stages of one kind get as many layers each") {
  CHECK(equal_split({{1, 1}, {1, 2}, {1, 3}}, 4) == std::vector<int>{2, 1, 1});
  CHECK(equal_split({{2, 1}, {1, 1}}, 5) == std::vector<int>{2, 1});
  // A head of three layers' time: 5 and 3 + 3 against 6 and 2 + 3.
  CHECK(equal_split({{1, 1, 0}, {1, 1, 3}}, 8) == std::vector<int>{5, 3});
  CHECK(equal_split({{2, 1}}, 5).empty());
  CHECK(equal_split({{2, 1}, {2, 1}}, 3).empty());
}

}  // namespace orrery
