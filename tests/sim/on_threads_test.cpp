// Work on several threads: each piece once, and the first failure by number.
#include "sim/replay/on_threads.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/catch.hpp"

namespace orrery {

TEST_CASE("each piece of work is done once, on however many threads") {
  const int threads = GENERATE(0, 1, 2, 7);
  for (const std::size_t count : {0, 1, 5, 1000}) {
    std::vector<int> done(count, 0);
    on_threads(count, threads, [&](std::size_t i) { ++done[i]; });
    CHECK(done == std::vector<int>(count, 1));
  }
}

TEST_CASE("of several failures the first by number is thrown, when all else is done") {
  std::vector<int> done(100, 0);
  const auto work = [&](std::size_t i) {
    if (i % 30 == 29) throw std::runtime_error(std::to_string(i));
    ++done[i];
  };
  CHECK_THROWS_WITH(on_threads(done.size(), 3, work), "29");
  CHECK(std::count(done.begin(), done.end(), 1) == 97);
}

}  // namespace orrery
