#include "strategies/partition.hpp"

#include <algorithm>
#include <functional>

#include "tests/catch.hpp"
#include "tests/strategies/random_schedule.hpp"

namespace orrery {
namespace {

using test::between;

struct Problem {
  std::vector<std::vector<double>> layers;  // [stage][layer] load of one layer
  std::vector<double> extra;
  std::vector<int> most_layers;

  [[nodiscard]] int layer_count() const { return static_cast<int>(layers.front().size()); }
  [[nodiscard]] std::size_t stages() const { return layers.size(); }
};

std::string to_text(const Problem& problem) {
  std::string text;
  for (std::size_t stage = 0; stage < problem.stages(); ++stage) {
    text += "stage " + std::to_string(stage) + " extra " + std::to_string(problem.extra[stage]) + " most " +
            std::to_string(problem.most_layers[stage]) + " layers";
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
    problem.layers.push_back(row);
    problem.extra.push_back(between(random, 0, 2) == 0 ? between(random, 0, 20) : 0);
    problem.most_layers.push_back(between(random, 0, 9) < 2 ? between(random, 0, 4) : count);
  }
  return problem;
}

std::optional<std::vector<LayerRange>> solve(const Problem& problem) {
  std::vector<std::vector<double>> before;
  for (const auto& row : problem.layers) {
    before.emplace_back(1, 0.0);
    for (const double load : row) before.back().push_back(before.back().back() + load);
  }
  std::vector<StageLoad> stages;
  for (std::size_t i = 0; i < problem.stages(); ++i) {
    stages.push_back({&before[i], problem.extra[i], problem.most_layers[i]});
  }
  return partition_layers(stages);
}

double slowest(const Problem& problem, const std::vector<LayerRange>& ranges) {
  double most = 0;
  for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
    double sum = problem.extra[stage];
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
  CHECK(solve({{{36, 4, 4}, {9, 1, 1}}, {0, 0}, {3, 3}}) == std::vector<LayerRange>{{0, 1}, {1, 2}});
  CHECK(solve({{{4, 36, 4}, {1, 9, 1}}, {0, 0}, {3, 3}}) == std::vector<LayerRange>{{0, 1}, {1, 2}});
}

TEST_CASE("the embedding and the head count as load") {
  // 6 layers of 1 and a head of 2: (2, 2, 2) loads the last stage with 4, (2, 3, 1) and (3, 2, 1) at most 3.
  const std::vector<double> ones(6, 1.0);
  CHECK(solve({{ones, ones, ones}, {0, 0, 2}, {6, 6, 6}}) == std::vector<LayerRange>{{0, 2}, {2, 3}, {5, 1}});
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
      problem.extra.push_back(between(random, 0, 10));
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

}  // namespace orrery
