// What the tests of a search begin with: jobs made up, their prices, and each candidate and mix of theirs.
#pragma once

#include "sim/bounds/feasibility.hpp"
#include "tests/catch.hpp"
#include "tests/sim/random_search.hpp"
#include "tests/strategies/random_schedule.hpp"

namespace orrery {

using test::between;
using test::book_of;
using test::describe;
using test::for_each_candidate;
using test::for_each_mix;
using test::PlanTimes;
using test::random_job;
using test::run;

namespace test {

// With the prices of all that a search of the job asks for.
inline PriceBook priced_book_of(const SearchJob& job) {
  PriceBook book = book_of(job);
  static_cast<void>(run(job, book));
  return book;
}

}  // namespace test

using test::priced_book_of;

}  // namespace orrery
