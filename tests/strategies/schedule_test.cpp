// Golden pictures of schedules: forward one column, backward two, transfers free.
#include "strategies/schedule.hpp"

#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/strategies/schedule_player.hpp"

namespace orrery {
namespace {

using test::picture;

Schedule eager(ScheduleKind kind, int ranks, int chunks, int microbatches) {
  return make_schedule({kind, TransferMode::eager, ranks, chunks, microbatches});
}

}  // namespace

TEST_CASE("1f1b on four stages warms up with 3, 2, 1 and 0 forwards, then alternates") {
  CHECK(picture(eager(ScheduleKind::one_f_one_b, 4, 1, 4)) ==
        "stage 0  0123......aa.bb.cc.dd\n"
        "stage 1  .012....aa3bb.cc.dd..\n"
        "stage 2  ..01..aa2bb3cc.dd....\n"
        "stage 3  ...0aa1bb2cc3dd......\n");
}

TEST_CASE("1f1b with 8 microbatches on 4 stages takes (8 + 4 - 1) (1 + 2) = 33 columns") {
  CHECK(picture(eager(ScheduleKind::one_f_one_b, 4, 1, 8)) ==
        "stage 0  0123......aa4bb5cc6dd7ee.ff.gg.hh\n"
        "stage 1  .012....aa3bb4cc5dd6ee7ff.gg.hh..\n"
        "stage 2  ..01..aa2bb3cc4dd5ee6ff7gg.hh....\n"
        "stage 3  ...0aa1bb2cc3dd4ee5ff6gg7hh......\n");
}

TEST_CASE("1f1b with fewer microbatches than stages never alternates on the first stages") {
  CHECK(picture(eager(ScheduleKind::one_f_one_b, 4, 1, 2)) ==
        "stage 0  01........aa.bb\n"
        "stage 1  .01.....aa.bb..\n"
        "stage 2  ..01..aa.bb....\n"
        "stage 3  ...0aa1bb......\n");
}

TEST_CASE("gpipe runs all forwards before its first backward") {
  CHECK(picture(eager(ScheduleKind::gpipe, 3, 1, 4)) ==
        "stage 0  0123......aabbccdd\n"
        "stage 1  .0123...aabbccdd..\n"
        "stage 2  ..0123aabbccdd....\n");
}

// P = 2: warm-up min(4 x 2, 2 (2 - s - 1) + (2 - 1) 2) is 4 and 2; 4 x 2 x 3 + (2 - 1) x 3 = 27 columns.
TEST_CASE("interleaved goes through its chunks in groups of P microbatches") {
  CHECK(picture(eager(ScheduleKind::interleaved, 2, 2, 4)) ==
        "stage 0  01012.aa3bb2aa3bb.cc.ddccdd\n"
        "  chunk  00110.11011100100.11.110000\n"
        "stage 1  .010aa1bb2aa3bb2cc3ddccdd..\n"
        "  chunk  .001111110000001111110000..\n");
}

// P = 4: warm-up 2 (4 - s - 1) + 4 is 10, 8, 6 and 4 of 16; 8 x 2 x 3 + (4 - 1) x 3 = 57 columns.
TEST_CASE("interleaved on four stages of two chunks") {
  CHECK(picture(eager(ScheduleKind::interleaved, 4, 2, 8)) ==
        "stage 0  01230123456...aa7bb.4cc5dd6aa7bbcc.dd.ee.ff.gg.hheeffgghh\n"
        "  chunk  00001111000...11011.11111110010000.00.11.11.11.1100000000\n"
        "stage 1  .012301234..aa5bb6cc7dd4aa5bb6cc7dd.ee.ff.gg.hheeffgghh..\n"
        "  chunk  .000011110..11011011011100100100100.11.11.11.1100000000..\n"
        "stage 2  ..0123012.aa3bb4cc5dd6aa7bb4cc5dd6ee7ff.gg.hheeffgghh....\n"
        "  chunk  ..0000111.11111011011000000100100111111.11.1100000000....\n"
        "stage 3  ...01230aa1bb2cc3dd4aa5bb6cc7dd4ee5ff6gg7hheeffgghh......\n"
        "  chunk  ...000011111111111100000000000011111111111100000000......\n");
}

TEST_CASE("interleaved with a single group warms up with everything on the first stages") {
  CHECK(picture(eager(ScheduleKind::interleaved, 2, 2, 2)) ==
        "stage 0  0101..aa.bbaabb\n"
        "  chunk  0011..11.110000\n"
        "stage 1  .010aa1bbaabb..\n"
        "  chunk  .001111110000..\n");
}

TEST_CASE("a schedule that cannot be made says why") {
  struct Row {
    ScheduleShape shape;
    std::string obstacle;
  };
  using enum ScheduleKind;
  using enum TransferMode;
  const auto row = GENERATE(values<Row>({
      {{one_f_one_b, eager, 0, 1, 1}, "stages, microbatches and chunks must be 1 or more"},
      {{gpipe, eager, 1, 1, 0}, "stages, microbatches and chunks must be 1 or more"},
      {{interleaved, overlapped, 2, 0, 2}, "stages, microbatches and chunks must be 1 or more"},
      {{one_f_one_b, eager, 4096, 1, 1'000'000},  // 2 x 4095 x 10^6 messages: beyond 2^31
       "stages times microbatches is more than the messages of a schedule can count"},
      {{gpipe, eager, 2, 2, 4}, "gpipe has 1 chunk(s) a rank, not 2"},
      {{one_f_one_b, blocking, 2, 3, 4}, "1f1b has 1 chunk(s) a rank, not 3"},
      {{interleaved, eager, 2, 1, 4}, "interleaved needs 2 chunks a rank or more"},
      {{interleaved, eager, 1, 2, 4}, "interleaved needs 2 pipeline stages or more"},
      {{interleaved, eager, 4, 2, 6},
       "interleaved needs a number of microbatches (6) that the group (4) divides, or a last group of at "
       "least as many "
       "as stages (4)"},
      {{interleaved, eager, 4, 2, 8, 3},
       "interleaved needs microbatch groups (3) of at least as many as stages (4) and at most as many as "
       "microbatches (8)"},
      {{zb_h1, eager, 4, 2, 8}, "zb-h1 has 1 chunk(s) a rank, not 2"},
      {{zb_v, eager, 4, 1, 8}, "zb-v has 2 chunk(s) a rank, not 1"},
      {{zb_h2, blocking, 4, 1, 8}, "zb-h2 is played with eager or overlapped transfers"},
      {{from_file, eager, 4, 1, 8}, "a schedule from a file comes with its own orders"},
  }));
  CHECK(schedule_obstacle(row.shape) == row.obstacle);
  CHECK_THROWS_AS(make_schedule(row.shape), InputError);
}

TEST_CASE("every schedule without an obstacle is made") {
  using enum ScheduleKind;
  using enum TransferMode;
  for (const ScheduleShape& shape : std::vector<ScheduleShape>{{one_f_one_b, blocking, 1, 1, 1},
                                                               {gpipe, overlapped, 1, 1, 3},
                                                               {one_f_one_b, eager, 5, 1, 2},
                                                               {interleaved, overlapped, 3, 2, 6},
                                                               {zb_h1, eager, 1, 1, 1},
                                                               {zb_h2, overlapped, 6, 1, 2},
                                                               {zb_v, eager, 5, 2, 3}}) {
    INFO(test::describe(shape));
    CHECK(!schedule_obstacle(shape));
    CHECK(make_schedule(shape).programs.size() == static_cast<std::size_t>(shape.ranks));
  }
}

}  // namespace orrery
