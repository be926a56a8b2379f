#include "costmodels/estimate/date_queue.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/catch.hpp"

namespace orrery {
namespace {

struct Waiting {
  double date = 0;  // s
  int event = 0;
};

// Takes what comes out next of a list of all that wait: the first one of the least date.
Waiting take_first(std::vector<Waiting>& all) {
  const auto first = std::min_element(all.begin(), all.end(),
                                      [](const Waiting& a, const Waiting& b) { return a.date < b.date; });
  const Waiting taken = *first;
  all.erase(first);
  return taken;
}

// Dates to come, of `distinct`: fewer than a queue remembers, or more.
void play(int distinct, unsigned seed) {
  std::mt19937 random(seed);
  DateQueue<int> queue;
  std::vector<Waiting> all;
  int added = 0;
  double now = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (all.empty() || (added < 10'000 && random() % 5 < 3)) {
      const double date = now + static_cast<double>(random() % static_cast<unsigned>(distinct)) / 7;
      queue.add(date, added);
      all.push_back({date, added++});
      continue;
    }
    const Waiting next = take_first(all);
    REQUIRE(queue.next() == next.date);
    REQUIRE(queue.take() == next.event);
    REQUIRE(queue.empty() == all.empty());
    now = std::floor(next.date);
  }
}

}  // namespace

TEST_CASE("events come out by date, those of one date in the order they went in") {
  for (const int distinct : {1, 3, 50, 5000}) {
    for (unsigned seed = 0; seed < 3; ++seed) {
      CAPTURE(distinct, seed);
      play(distinct, seed);
    }
  }
}

TEST_CASE("an event that is added at the date that is being taken follows those that wait there") {
  DateQueue<int> queue;
  queue.add(2.0, 1);
  queue.add(0.0, 2);
  queue.add(2.0, 3);
  CHECK(queue.take() == 2);
  CHECK(queue.take() == 1);
  queue.add(2.0, 4);  // behind 3
  CHECK(queue.take() == 3);
  queue.add(2.0, 5);
  CHECK(queue.take() == 4);
  CHECK(queue.take() == 5);
  CHECK(queue.empty());
  queue.add(-0.0, 6);  // one date
  queue.add(0.0, 7);
  queue.add(-0.0, 8);
  CHECK(queue.take() == 6);
  CHECK(queue.take() == 7);
  CHECK(queue.take() == 8);
}

}  // namespace orrery
