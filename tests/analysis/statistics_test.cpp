#include "analysis/statistics.hpp"

#include <cmath>
#include <limits>
#include <random>

#include "platforms/errors.hpp"
#include "tests/catch.hpp"

namespace orrery {

TEST_CASE("errors are fractions of the measured value") {
  // Errors: +10 %, -20 %, 0 %, +50 %.
  const ErrorSummary errors = summarize_errors({{110, 80, 7, 3}, {100, 100, 7, 2}});
  CHECK(errors.mean == Approx(0.8 / 4));
  CHECK(errors.median == Approx(0.15));          // between 10 % and 20 %
  CHECK(errors.p90 == Approx(0.2 + 0.7 * 0.3));  // position 0.9 x 3 = 2.7
  CHECK(errors.maximum == Approx(0.5));
  CHECK(errors.bias == Approx(0.4 / 4));
  CHECK(summarize_errors({}) == ErrorSummary{});
}

TEST_CASE("a quantile interpolates between rows") {
  CHECK(quantile({3, 1, 2}, 0) == 1);
  CHECK(quantile({3, 1, 2}, 0.5) == 2);
  CHECK(quantile({3, 1, 2}, 0.75) == 2.5);
  CHECK(quantile({3, 1, 2}, 1) == 3);
  CHECK(quantile({}, 0.5) == 0);
}

TEST_CASE("spearman is 1 for the same order, -1 for the reverse, undefined without order") {
  CHECK(spearman({{1, 2, 3}, {10, 100, 1000}}) == Approx(1));
  CHECK(spearman({{3, 2, 1}, {10, 100, 1000}}) == Approx(-1));
  // Without ties 1 - 6 sum d^2 / (n (n^2 - 1)): one swap of neighbours among 5, d = 1, -1: 1 - 12 / 120.
  CHECK(spearman({{1, 2, 3, 5, 4}, {1, 2, 3, 4, 5}}) == Approx(0.9));
  // Ranks 1.5 1.5 3 against 1 2 3: 1.5 / sqrt(1.5 x 2).
  CHECK(spearman({{7, 7, 9}, {1, 2, 3}}) == Approx(1.5 / std::sqrt(3.0)));
  CHECK(std::isnan(spearman({{1, 1}, {1, 2}})));
  CHECK(std::isnan(spearman({{1}, {1}})));
  CHECK(std::isnan(spearman({})));
}

TEST_CASE("kendall counts pairs that agree and pairs that do not") {
  CHECK(kendall_tau_b({{1, 2, 3}, {4, 5, 6}}) == 1);  // not 1.0000000000000002
  CHECK(kendall_tau_b({{3, 2, 1}, {4, 5, 6}}) == Approx(-1));
  CHECK(kendall_tau_b({{1, 3, 2}, {4, 5, 6}}) == Approx((2.0 - 1) / 3));
  // Pairs (1,2) tied in x; two agree: 2 / sqrt((3 - 1) x 3).
  CHECK(kendall_tau_b({{1, 1, 2}, {4, 5, 6}}) == Approx(2 / std::sqrt(6.0)));
  CHECK(std::isnan(kendall_tau_b({{1, 1}, {1, 2}})));
  CHECK(std::isnan(kendall_tau_b({})));
}

TEST_CASE("kendall in n log n is kendall by its definition") {
  const auto sign = [](double value) { return (value > 0) - (value < 0); };
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    PredictedAndMeasured rows;
    const unsigned values = 2 + seed % 30;  // few values make many ties
    for (auto count = random() % 50; count > 0; --count) {
      rows.predicted.push_back(static_cast<double>(random() % values));
      rows.measured.push_back(static_cast<double>(1 + random() % values));
    }
    double agreement = 0, untied_x = 0, untied_y = 0;
    for (std::size_t i = 0; i < rows.measured.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const int x = sign(rows.predicted[i] - rows.predicted[j]),
                  y = sign(rows.measured[i] - rows.measured[j]);
        agreement += x * y;
        untied_x += x * x;
        untied_y += y * y;
      }
    }
    INFO("seed " << seed);
    const double tau = kendall_tau_b(rows);
    if (untied_x == 0 || untied_y == 0) {
      CHECK(std::isnan(tau));
    } else {
      CHECK(tau == Approx(agreement / std::sqrt(untied_x * untied_y)).margin(1e-12));
    }
  }
}

TEST_CASE("regret is what the plan predicted best loses to the best") {
  CHECK(top1_regret({{1, 2, 3}, {10, 11, 12}}) == 0);
  CHECK(top1_regret({{3, 2, 1}, {10, 11, 12}}) == Approx(0.2));
  CHECK(top1_regret({{1, 1}, {15, 10}}) == Approx(0.5));  // of equals the first
  CHECK(top1_regret({}) == 0);
}

TEST_CASE("columns that do not fit together are a defect") {
  CHECK_THROWS_AS(summarize_errors({{1}, {}}), Defect);
  CHECK_THROWS_AS(spearman({{1}, {0}}), Defect);
  CHECK_THROWS_AS(kendall_tau_b({{std::nan("")}, {1}}), Defect);
  CHECK_THROWS_AS(top1_regret({{1}, {std::numeric_limits<double>::infinity()}}), Defect);
}

}  // namespace orrery
