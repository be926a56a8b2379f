#include "sim/replay/children.hpp"

#include <unistd.h>
#include <csignal>

#include "platforms/errors.hpp"
#include "tests/catch.hpp"

using namespace orrery;

TEST_CASE("answers come back in the order of tasks, whatever the order they end in") {
  std::vector<ChildTask> tasks;
  for (int i = 0; i < 9; ++i) {
    tasks.push_back([i] {
      ::usleep(static_cast<useconds_t>(1000 * (9 - i)));
      return std::string(static_cast<std::size_t>(i) * 100'000, static_cast<char>('a' + i));
    });
  }
  for (const int jobs : {1, 3, 20}) {
    std::size_t heard = 0;
    const auto answers = run_in_children(tasks, jobs, [&](std::size_t done) { heard = done; });
    CHECK(heard == 9);
    for (std::size_t i = 0; i < 9; ++i) {
      CHECK(answers[i] == std::string(i * 100'000, static_cast<char>('a' + static_cast<int>(i))));
    }
  }
}

TEST_CASE("an input error of a child is thrown again whole") {
  const ChildTask task = []() -> std::string { throw InputError("plan.yaml:3", "'x'", "a number"); };
  try {
    run_in_children({task}, 1);
    FAIL("nothing was thrown");
  } catch (const InputError& error) {
    CHECK(error.place == "plan.yaml:3");
    CHECK(error.found == "'x'");
    CHECK(error.expected == "a number");
  }
}

TEST_CASE("a defect of a child, its death by a signal and its silent exit are defects that say so") {
  CHECK_THROWS_AS(run_in_children({[]() -> std::string { throw Defect("broken"); }}, 1), Defect);
  CHECK_THROWS_WITH(run_in_children({[]() -> std::string {
                                      ::raise(SIGKILL);
                                      return "";
                                    }},
                                    1),
                    contains_text("signal 9"));
  CHECK_THROWS_WITH(run_in_children({[]() -> std::string { ::_exit(0); }}, 1),
                    contains_text("without an answer"));
}
