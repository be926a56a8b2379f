// Intervals from residuals of groups: against closed forms and groups drawn from a known model.
#include "costmodels/intervals.hpp"

#include <cmath>
#include <random>

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

namespace orrery {
namespace {

ResidualGroup group(const std::string& name, const std::string& family, double mean, double variance,
                    int runs = 10) {
  RunKind kind;
  kind.family = family;
  return {name, name, kind, runs, mean, variance};
}

RunKind dense(const std::string& family) {
  RunKind kind;
  kind.family = family;
  return kind;
}

}  // namespace

TEST_CASE("Student's quantiles are those of the tables") {
  struct Row {
    double freedom, quantile;
  };
  const auto row = GENERATE(values<Row>(
      {{1, 6.3138}, {2, 2.9200}, {3, 2.3534}, {5, 2.0150}, {10, 1.8125}, {30, 1.6973}, {1e6, 1.6449}}));
  CHECK(student_95(row.freedom) == Approx(row.quantile).epsilon(0.005));
}

TEST_CASE("a family that was not seen gets Student's prediction interval over the groups") {
  // Biases -0.1, 0, 0.1, no scatter inside: mean 0, variance 0.01, of a new group 0.01 (1 + 1/3), 2 degrees.
  const std::vector<ResidualGroup> groups{group("a", "f", -0.1, 0), group("b", "g", 0, 0),
                                          group("c", "h", 0.1, 0)};
  const TimeBand band = band_of(groups, dense("unseen"));
  const double half = student_95(2) * std::sqrt(0.01 * 4 / 3);
  CHECK(std::log(band.high) == Approx(half));
  CHECK(std::log(band.low) == Approx(-half));
}

TEST_CASE("the centre of a seen family is its own bias, and the interval lies on its side") {
  std::vector<ResidualGroup> groups;
  for (int i = 0; i < 4; ++i)
    groups.push_back(group("fast" + std::to_string(i), "fast", -0.2 + 0.001 * i, 1e-4));
  for (int i = 0; i < 4; ++i) groups.push_back(group("true" + std::to_string(i), "true", 0.001 * i, 1e-4));
  const TimeBand band = band_of(groups, dense("fast"));
  CHECK(band.low > 1.1);  // predictions are 20 % too fast: the true time is e^0.2 of them
  CHECK(band.low < std::exp(0.1985));
  CHECK(band.high > std::exp(0.1985));
  CHECK(band_of(groups, dense("new")).low < 1);
}

TEST_CASE("kinds with too few groups count together, experts last") {
  std::vector<ResidualGroup> groups{group("a", "f", 0, 1e-4), group("b", "f", 0.01, 1e-4),
                                    group("c", "f", -0.01, 1e-4)};
  ResidualGroup experts = group("d", "f", 0.8, 0.1);
  experts.kind.experts = true;
  RunKind host = dense("f");
  host.host_bound = true;
  CHECK(band_of(groups, host).low == Approx(band_of(groups, dense("f")).low));
  ResidualGroup unmeasured = group("e", "f", -0.5, 0.05);
  unmeasured.kind.new_kernels = true;
  groups.push_back(experts);
  groups.push_back(unmeasured);
  const TimeBand narrow = band_of(groups, dense("f"));
  CHECK(
      (narrow.low > 0.9 && narrow.high < 1.1));  // neither the wild experts nor kernels nobody measured count
  CHECK(band_of(groups, unmeasured.kind).high > 1.2);  // which, being one group, count with the others
}

TEST_CASE("nine runs in ten of groups left out lie inside, when groups and runs scatter normally") {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  double inside = 0, runs = 0;
  for (int world = 0; world < 400; ++world) {
    std::vector<ResidualGroup> groups;
    for (int i = 0; i < 6; ++i) {
      const double bias = 0.05 + 0.1 * normal(random);
      std::vector<double> values;
      double mean = 0, squares = 0;
      for (int run = 0; run < 8; ++run) values.push_back(bias + 0.06 * normal(random));
      for (const double value : values) mean += value / 8;
      for (const double value : values) squares += (value - mean) * (value - mean);
      groups.push_back(group("g" + std::to_string(i), "f", mean, squares / 7, 8));
    }
    const TimeBand band = band_of(groups, dense("f"));
    const double bias = 0.05 + 0.1 * normal(random);
    for (int run = 0; run < 8; ++run, ++runs) {
      const double truth = std::exp(-(bias + 0.06 * normal(random)));
      inside += truth >= band.low && truth <= band.high;
    }
  }
  // 400 groups of their own: two standard errors are 0.03.
  CHECK(inside / runs > 0.86);
  CHECK(inside / runs < 0.94);
}

TEST_CASE("the table of groups is read as it was written, and wrong ones are refused") {
  const std::vector<ResidualGroup> groups{group("a", "f", -0.125, 0.25), group("b", "g", 0.5, 0)};
  CHECK(parse_residual_groups(to_yaml(groups, {"where from"}), "t.yaml") == groups);
  CHECK(contains(input_error([] { parse_residual_groups("groups: [{name: a, sorce: b}]", "t.yaml"); }),
                 "sorce"));
  CHECK(built_in_residuals().size() >= 9);
}

}  // namespace orrery
