// zb-h1, zb-h2 (arXiv 2401.10241) and zb-v (arXiv 2405.15362): pictures, memory and bubbles.
#include <algorithm>

#include "strategies/schedule.hpp"
#include "tests/catch.hpp"
#include "tests/strategies/schedule_player.hpp"

namespace orrery {
namespace {

using test::picture;

Schedule make(ScheduleKind kind, int ranks, int microbatches) {
  const int chunks = kind == ScheduleKind::zb_v ? 2 : 1;
  return make_schedule({kind, TransferMode::eager, ranks, chunks, microbatches});
}

struct Times {
  double forward, backward, weight;
};

// The paper's measure for a step without a synchronising optimizer: from the first operation of a rank to the
// end of its last, less what it computes; the largest over ranks.
struct Bubbles {
  double own = 0;       // in a rank's own span
  double makespan = 0;  // from the first operation of all to the end of all
};
Bubbles bubbles(const Schedule& schedule, Times times) {
  const auto played =
      test::play(schedule, test::equal_times(schedule, times.forward, times.backward, times.weight));
  const double work =
      schedule.shape.microbatches * schedule.shape.chunks * (times.forward + times.backward + times.weight);
  Bubbles result;
  for (std::size_t rank = 0; rank < played->start.size(); ++rank) {
    result.own = std::max(result.own, played->end_of(rank) - played->start[rank].front() - work);
  }
  result.makespan = played->makespan() - work;
  return result;
}

template <class Check>
void for_pipelines(Check check) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (int microbatches = ranks; microbatches <= 4 * ranks; ++microbatches) {
      INFO("P=" << ranks << " M=" << microbatches);
      check(ranks, microbatches);
    }
  }
}

int most_in_flight(const Schedule& schedule) {
  int most = 0;
  for (int rank = 0; rank < schedule.shape.ranks; ++rank)
    most = std::max(most, in_flight(schedule, rank).total);
  return most;
}

}  // namespace

// P = 4: warm-up 3 2 1 0 forwards; 0, 1, 2, 3 weight gradients lag. 8 (1 + 1 + 1) + (4 - 1) (1 + 1 - 1) = 27
// columns.
TEST_CASE("zb-h1 starts as 1f1b and ends with weight gradients where 1f1b idles") {
  CHECK(picture(make(ScheduleKind::zb_h1, 4, 8)) ==
        "stage 0  0123...aA4bB5cC6dD7eEfFgGhH\n"
        "stage 1  .012..a3bA4cB5dC6eD7fEgFhGH\n"
        "stage 2  ..01.a2b3cA4dB5eC6fD7gEhFGH\n"
        "stage 3  ...0a1b2c3dA4eB5fC6gD7hEFGH\n");
}

// P = 4: warm-up 6 4 2 0. Every rank is busy for 8 x 3 columns on end, each a column later than the one
// before.
TEST_CASE("zb-h2 is a parallelogram without holes") {
  CHECK(picture(make(ScheduleKind::zb_h2, 4, 8)) ==
        "stage 0  0123456aA7bBcCdDeEfFgGhH...\n"
        "stage 1  .01234a5b6cA7dBeCfDgEhFGH..\n"
        "stage 2  ..012a3b4c5d6eA7fBgChDEFGH.\n"
        "stage 3  ...0a1b2c3d4e5f6gA7hBCDEFGH\n");
}

// P = 3: 2 (P - s) - 1 forwards down, 6 chunks alive everywhere, 6 x 2 x 3 = 36 columns on end.
TEST_CASE("zb-v goes down and up the V without holes") {
  CHECK(picture(make(ScheduleKind::zb_v, 3, 6)) ==
        "stage 0  012340aA1bB2cC5aA3dDbB4eEcC5fFdDeEfF..\n"
        "  chunk  000001111111110001110011100111000000..\n"
        "stage 1  .012031aA2bB4aA3cC5bB4dDcC5eEdfeDfEFF.\n"
        "  chunk  .000101111110001110001110011101000010.\n"
        "stage 2  ..001122aA3aA3bB4bB4cC5cC5dDdeeffDEFEF\n"
        "  chunk  ..010101110001110001110001110101001100\n");
}

// The paper's (P - 1) (F + B - W) is for W <= F. A longer W hides no more than the forward of the next rank:
// B is left.
TEST_CASE("zb-h1 loses (P - 1) (F + B - W), with W longer than F (P - 1) B") {
  const auto times = GENERATE(values<Times>(
      {{1, 1, 1}, {1, 1, 0.5}, {1, 1, 0.75}, {1, 2, 1}, {2, 2, 1}, {2, 1, 1}, {1, 1, 2}, {1, 2, 2}}));
  for_pipelines([&](int ranks, int microbatches) {
    const double ideal = (ranks - 1) * (std::max(0.0, times.forward - times.weight) + times.backward);
    const Bubbles found = bubbles(make(ScheduleKind::zb_h1, ranks, microbatches), times);
    REQUIRE(found.makespan == Approx(ideal));
    REQUIRE(found.own == Approx(ideal));
  });
}

TEST_CASE("zb-h1 keeps P microbatches alive: the most that 1f1b keeps") {
  for_pipelines([](int ranks, int microbatches) {
    const Schedule schedule = make(ScheduleKind::zb_h1, ranks, microbatches);
    for (int rank = 0; rank < ranks; ++rank) REQUIRE(in_flight(schedule, rank).total == ranks);
    REQUIRE(most_in_flight(make(ScheduleKind::one_f_one_b, ranks, microbatches)) == ranks);
  });
}

// Unequal times only hold with M >= 2 P - 1; with F = B = W a microbatch less costs rank 0 one column of
// waiting for its first gradient, which is back after 2 P - 1.
TEST_CASE(
    "zb-h2 loses (P - 1) (F + B - 2 W) within a rank's span, and a column for each microbatch below 2 P - "
    "1") {
  for_pipelines([](int ranks, int microbatches) {
    const Schedule schedule = make(ScheduleKind::zb_h2, ranks, microbatches);
    REQUIRE(bubbles(schedule, {1, 1, 1}).own == std::max(0, 2 * ranks - 1 - microbatches));
    REQUIRE(bubbles(schedule, {1, 1, 1}).makespan == ranks - 1);
    if (microbatches < 2 * ranks - 1) return;
    for (const Times times : {Times{1, 1, 0.5}, Times{1, 1, 0.75}, Times{2, 2, 1.5}}) {
      const double ideal = (ranks - 1) * (times.forward + times.backward - 2 * times.weight);
      REQUIRE(bubbles(schedule, times).own == Approx(ideal));
    }
  });
}

TEST_CASE("zb-h2 keeps 2 P - 1 microbatches alive on every rank, or all there are") {
  for_pipelines([](int ranks, int microbatches) {
    const Schedule schedule = make(ScheduleKind::zb_h2, ranks, microbatches);
    for (int rank = 0; rank < ranks; ++rank) {
      REQUIRE(in_flight(schedule, rank).total == std::min(2 * ranks - 1, microbatches));
    }
  });
}

// With fewer than 2 P - 1 microbatches rank 0 waits twice (chunk times): for the first to come back up the V,
// and for the last gradient to come down it.
TEST_CASE(
    "zb-v loses nothing within a rank's span for F = B = W and M >= 2 P - 1, and 2 (2 P - 1 - M) below") {
  for_pipelines([](int ranks, int microbatches) {
    const Bubbles found = bubbles(make(ScheduleKind::zb_v, ranks, microbatches), {1, 1, 1});
    REQUIRE(found.own == 2 * std::max(0, 2 * ranks - 1 - microbatches));
    REQUIRE(found.makespan == std::max<double>(ranks - 1, found.own));
  });
}

TEST_CASE("zb-v keeps 2 P chunks alive: P microbatches of a whole rank, as 1f1b") {
  for_pipelines([](int ranks, int microbatches) {
    const Schedule schedule = make(ScheduleKind::zb_v, ranks, microbatches);
    REQUIRE(most_in_flight(schedule) == 2 * ranks);
    if (microbatches < 2 * ranks - 1) return;
    for (int rank = 0; rank < ranks; ++rank) REQUIRE(in_flight(schedule, rank).total == 2 * ranks);
  });
}

TEST_CASE("zb-v has the first and the last part on rank 0 and no message at the bottom of the V") {
  for_pipelines([](int ranks, int microbatches) {
    const Schedule schedule = make(ScheduleKind::zb_v, ranks, microbatches);
    REQUIRE(schedule.rank_of_part.front() == 0);
    REQUIRE(schedule.rank_of_part.back() == 0);
    const MessageId bottom = schedule.message_id(false, ranks - 1, 0);
    REQUIRE(schedule.message(bottom).from_rank == schedule.message(bottom).to_rank);
  });
}

TEST_CASE("with F = B = W no zero-bubble schedule is slower than 1f1b, and h2 and v not slower than h1") {
  for_pipelines([](int ranks, int microbatches) {
    const double h1 = bubbles(make(ScheduleKind::zb_h1, ranks, microbatches), {1, 1, 1}).makespan;
    const double plain = bubbles(make(ScheduleKind::one_f_one_b, ranks, microbatches), {1, 2, 0}).makespan;
    REQUIRE(h1 * 3 == plain);  // (P - 1) (F + B - W) against (P - 1) (F + B + W)
    REQUIRE(bubbles(make(ScheduleKind::zb_h2, ranks, microbatches), {1, 1, 1}).makespan <= h1);
    // Chunk times are half of a rank's.
    REQUIRE(bubbles(make(ScheduleKind::zb_v, ranks, microbatches), {0.5, 0.5, 0.5}).makespan <= h1);
  });
}

// zb-h1, P = 4, M = 8: rank 0 pays at once; rank 3 starts no forward early and owes three weight gradients.
TEST_CASE("the states of a program are the most that waits for backwards and for weight gradients") {
  const Schedule schedule = make(ScheduleKind::zb_h1, 4, 8);
  CHECK(alive_states(schedule, 0) == std::vector<AliveState>{{{4}, {0}}, {{3}, {1}}});
  CHECK(alive_states(schedule, 3) == std::vector<AliveState>{{{1}, {3}}, {{0}, {4}}});
  CHECK(alive_states(make(ScheduleKind::gpipe, 2, 50), 1) == std::vector<AliveState>{{{50}, {0}}});
  for_pipelines([](int ranks, int microbatches) {
    for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zb_h2, ScheduleKind::zb_v}) {
      const Schedule each = make(kind, ranks, microbatches);
      for (int rank = 0; rank < ranks; ++rank) {
        int most = 0;
        for (const AliveState& state : alive_states(each, rank)) {
          int total = 0;
          for (const auto* counts : {&state.whole, &state.for_weights})
            for (const int count : *counts) total += count;
          most = std::max(most, total);
        }
        REQUIRE(most == in_flight(each, rank).total);
      }
    }
  });
}

TEST_CASE("weight gradients come after their backward, the late ones in the drain") {
  for (const ScheduleKind kind : {ScheduleKind::zb_h1, ScheduleKind::zb_h2, ScheduleKind::zb_v}) {
    const Schedule schedule = make(kind, 4, 8);
    for (const auto& program : schedule.programs) {
      CHECK(program.front().phase == Phase::warmup);
      CHECK(program.back().kind == StepKind::weight_gradient);
      CHECK(program.back().phase == Phase::drain);
      CHECK(std::is_sorted(program.begin(), program.end(),
                           [](const Step& a, const Step& b) { return a.phase < b.phase; }));
    }
  }
}

}  // namespace orrery
