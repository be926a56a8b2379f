// Deadlocks of schedules that are not files; those of files are in schedule_file_test.cpp.
#include "strategies/schedule.hpp"
#include "strategies/schedule_file.hpp"
#include "tests/catch.hpp"
#include "tests/strategies/random_schedule.hpp"
#include "tests/strategies/schedule_player.hpp"

namespace orrery {

using test::between;

// Rank 0: F0 [>a0] F1 [>a1 <g0] B0 [<g1] B1. Rank 1: [<a0] F0 B0 [>g0 <a1] F1 B1 [>g1].
TEST_CASE("blocking exchanges that do not meet are found") {
  Schedule schedule = make_schedule({ScheduleKind::one_f_one_b, TransferMode::blocking, 2, 1, 2});
  CHECK(schedule_deadlock(schedule) == std::nullopt);
  const auto send_first = [&schedule](std::size_t rank, std::size_t at) {
    auto& program = schedule.programs[rank];
    Step receive = program[at];
    receive.sends = {};
    program[at].awaits = {};
    program.insert(program.begin() + static_cast<std::ptrdiff_t>(at) + 1, receive);
  };
  send_first(0, 3);
  CHECK(schedule_deadlock(schedule) == std::nullopt);  // rank 1's joined call meets both halves
  send_first(1, 3);
  CHECK(schedule_deadlock(schedule) ==
        "rank 0 at the exchange of 0F1 waits for rank 1 to receive 0F1; rank 1 at the exchange of 1B0 waits "
        "for rank 0 "
        "to receive 1B0");
}

TEST_CASE("a message that is never sent is found") {
  Schedule schedule = make_schedule({ScheduleKind::one_f_one_b, TransferMode::eager, 2, 1, 1});
  schedule.programs[1].pop_back();
  CHECK(schedule_deadlock(schedule) == "rank 0 at 0B0 waits for 1B0 of rank 1, which is at its end");
}

TEST_CASE("a schedule deadlocks where the player of times finds no end, and only there") {
  std::mt19937 random(22);
  int stuck = 0;
  for (int i = 0; i < 400; ++i) {
    ScheduleShape shape = test::random_shape(random);
    if (shape.kind == ScheduleKind::zb_v) continue;  // the player of times knows no order within a rank
    shape.microbatches = std::min(shape.microbatches, 2 * shape.ranks);
    if (schedule_obstacle(shape)) continue;
    Schedule schedule = make_schedule(shape);
    auto& program = schedule.programs[static_cast<std::size_t>(between(random, 0, shape.ranks - 1))];
    const auto any = [&] {
      return static_cast<std::size_t>(between(random, 0, static_cast<int>(program.size()) - 1));
    };
    const std::size_t from = any();
    const std::size_t to = any();
    if (!is_compute(program[from].kind) || !is_compute(program[to].kind)) continue;
    if (program[from].microbatch == program[to].microbatch) continue;
    if (program[from].kind != StepKind::forward || program[to].kind != StepKind::forward) continue;
    std::swap(program[from], program[to]);
    const auto found = schedule_deadlock(schedule);
    if (found && found->find("comes before") != std::string::npos) continue;
    INFO(test::describe(shape) << "\n" << to_csv(schedule) << found.value_or("goes through"));
    const auto played = test::play(schedule, test::equal_times(schedule, 1, 1, 1));
    REQUIRE(found.has_value() == !played.has_value());
    stuck += found ? 1 : 0;
  }
  CHECK(stuck > 10);
}

}  // namespace orrery
