#include "analysis/pareto.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/catch.hpp"

namespace orrery {

using Front = std::vector<std::size_t>;

TEST_CASE("a plan that is slower and dearer than another is never listed") {
  CHECK(pareto_front({{1, 1}, {2, 2}}) == Front{0});
  CHECK(pareto_front({{2, 2}, {1, 1}}) == Front{1});
  CHECK(pareto_front({{1, 2}, {2, 1}}) == Front{0, 1});
  CHECK(pareto_front({}).empty());
}

TEST_CASE("equal in one and worse in the other is dominated; equal in both is a tie") {
  CHECK(pareto_front({{1, 2}, {1, 1}, {2, 1}}) == Front{1});
  CHECK(pareto_front({{1, 1}, {2, 0}, {1, 1}}) == Front{0, 2, 1});
}

TEST_CASE("a plan without a price is never listed") {
  CHECK(pareto_front({{1, std::nan("")}, {2, 5}, {std::nan(""), 1}}) == Front{1});
  CHECK(pareto_front({{1, std::numeric_limits<double>::infinity()}}) == Front{0});
}

TEST_CASE("the front is exactly the points that nothing dominates") {
  const auto dominates = [](const ParetoPoint& a, const ParetoPoint& b) {
    return a.hours <= b.hours && a.dollars <= b.dollars && a != b;
  };
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<ParetoPoint> points(random() % 60);
    const unsigned values = 2 + seed % 20;  // few values make many ties
    for (ParetoPoint& point : points) {
      point.hours = static_cast<double>(random() % values);
      point.dollars = static_cast<double>(random() % values);
    }
    Front expected;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const bool dominated = std::any_of(points.begin(), points.end(), [&](const ParetoPoint& other) {
        return dominates(other, points[i]);
      });
      if (!dominated) expected.push_back(i);
    }
    Front front = pareto_front(points);
    INFO("seed " << seed);
    CHECK(std::is_sorted(front.begin(), front.end(),
                         [&](auto a, auto b) { return points[a].hours < points[b].hours; }));
    std::sort(front.begin(), front.end());
    CHECK(front == expected);
  }
}

}  // namespace orrery
