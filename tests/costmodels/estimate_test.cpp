#include "costmodels/estimate/estimate.hpp"

#include "tests/catch.hpp"
#include "tests/costmodels/pipeline_plan.hpp"
#include "tests/strategies/random_schedule.hpp"
#include "tests/strategies/schedule_player.hpp"

namespace orrery {
namespace {

using test::between;
using test::PlayTimes;

double makespan(const Schedule& schedule, const PlayTimes& times) {
  return test::pipeline_makespan(test::pipeline_plan(schedule, times));
}

PlayTimes random_times(std::mt19937& random, const Schedule& schedule) {
  std::uniform_real_distribution<double> compute(0.5, 4.0);
  std::uniform_real_distribution<double> transfer(0.0, 2.0);
  PlayTimes times = test::equal_times(schedule, 1, 2);
  for (double& value : times.forward) value = compute(random);
  for (double& value : times.backward) value = compute(random);
  for (double& value : times.transfer) value = between(random, 0, 3) == 0 ? 0.0 : transfer(random);
  return times;
}

std::string describe(const ScheduleShape& shape, const PlayTimes& times) {
  std::string text = test::describe(shape);
  const auto add = [&text](const char* name, const std::vector<double>& values) {
    text += std::string("\n") + name;
    for (const double value : values) text += " " + Catch::StringMaker<double>::convert(value);
  };
  add("forward", times.forward);
  add("backward", times.backward);
  add("transfer", times.transfer);
  return text;
}

template <class Law>
void for_random_plans(unsigned seed, int plans, Law law) {
  std::mt19937 random(seed);
  for (int i = 0; i < plans; ++i) {
    const ScheduleShape shape = test::random_shape(random);
    const Schedule schedule = make_schedule(shape);
    const PlayTimes times = random_times(random, schedule);
    INFO(describe(shape, times));
    law(random, schedule, times);
  }
}

constexpr double kForward = 1e-3;
constexpr double kBackward = 2e-3;
// 16 MiB over 50 GiB/s, and two hops of 1 us: 0.3145 ms.
constexpr double kTransfer = 16.0 / (50 * 1024) + 2e-6;

}  // namespace

// (M + P - 1) (F + BW) without transfers; SEMANTICS 6 adds so many transfers to the longest path.
TEST_CASE("1f1b takes what SEMANTICS 6 says with free, eager and blocking transfers") {
  struct Row {
    int ranks, microbatches, eager, blocking;
  };
  const auto row = GENERATE(values<Row>({{2, 4, 4, 5}, {4, 8, 16, 19}, {8, 32, 68, 75}, {16, 64, 148, 155}}));
  const double ideal = (row.microbatches + row.ranks - 1) * (kForward + kBackward);
  const auto time = [&](TransferMode mode, double transfer) {
    const Schedule schedule =
        make_schedule({ScheduleKind::one_f_one_b, mode, row.ranks, 1, row.microbatches});
    PlayTimes times = test::equal_times(schedule, kForward, kBackward);
    times.transfer.assign(times.transfer.size(), transfer);
    return makespan(schedule, times);
  };
  CHECK(time(TransferMode::eager, 0) == Approx(ideal).epsilon(1e-12));
  CHECK(time(TransferMode::blocking, 0) == Approx(ideal).epsilon(1e-12));
  CHECK(time(TransferMode::eager, kTransfer) == Approx(ideal + row.eager * kTransfer).epsilon(1e-12));
  CHECK(time(TransferMode::blocking, kTransfer) == Approx(ideal + row.blocking * kTransfer).epsilon(1e-12));
}

// The slow stage 2 computes for 8 x 6 ms. It waits for its first input (2 F and 2 transfers), between its
// second forward and its first backward (stage 3 needs F + BW and 2 transfers, of which 2 ms pass in F(1)),
// and after its last backward two more BW and two transfers follow: 48 + 2 + (3 - 2) + 4 = 55 ms and 6
// transfers.
TEST_CASE("a slow stage in the middle holds up the others as derived") {
  const Schedule schedule = make_schedule({ScheduleKind::one_f_one_b, TransferMode::eager, 4, 1, 8});
  PlayTimes times = test::equal_times(schedule, kForward, kBackward);
  times.forward[2] *= 2;
  times.backward[2] *= 2;
  times.transfer.assign(3, kTransfer);
  CHECK(makespan(schedule, times) == Approx(55e-3 + 6 * kTransfer).epsilon(1e-12));
  CHECK(makespan(schedule, times) == Approx(56.887e-3).epsilon(1e-12));  // as printed in SEMANTICS 6
}

TEST_CASE("the recurrence agrees with an oracle that raises start times to a fixpoint") {
  for_random_plans(1, 600, [](std::mt19937&, const Schedule& schedule, const PlayTimes& times) {
    const auto played = test::play(schedule, times);
    REQUIRE(played.has_value());
    const std::vector<double> ends = test::pipeline_ends(test::pipeline_plan(schedule, times));
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      REQUIRE(ends[rank] == Approx(played->end_of(rank)).epsilon(1e-12).margin(0));
    }
  });
}

TEST_CASE("all times k times as long make the iteration k times as long") {
  for_random_plans(2, 100, [](std::mt19937&, const Schedule& schedule, const PlayTimes& times) {
    PlayTimes scaled = times;
    for (auto* list : {&scaled.forward, &scaled.backward, &scaled.transfer}) {
      for (double& value : *list) value *= 8;  // a power of two: no rounding
    }
    REQUIRE(makespan(schedule, scaled) == 8 * makespan(schedule, times));
  });
}

TEST_CASE("a longer stage or transfer never makes the iteration shorter") {
  for_random_plans(3, 300, [](std::mt19937& random, const Schedule& schedule, const PlayTimes& times) {
    PlayTimes longer = times;
    std::vector<double>* lists[] = {&longer.forward, &longer.backward, &longer.transfer};
    auto& list = *lists[between(random, 0, longer.transfer.empty() ? 1 : 2)];
    list[static_cast<std::size_t>(between(random, 0, static_cast<int>(list.size()) - 1))] += 0.7;
    REQUIRE(makespan(schedule, longer) >= makespan(schedule, times));
  });
}

TEST_CASE("nothing is faster than the slowest rank, nor than one microbatch through all parts and back") {
  for_random_plans(4, 200, [](std::mt19937&, const Schedule& schedule, const PlayTimes& times) {
    double through = 0;
    std::vector<double> busy(schedule.programs.size(), 0.0);
    for (std::size_t part = 0; part < times.forward.size(); ++part) {
      const double both = times.forward[part] + times.backward[part];
      through += both;
      busy[static_cast<std::size_t>(schedule.rank_of_part[part])] += both * schedule.shape.microbatches;
    }
    for (std::size_t boundary = 0; boundary < times.transfer.size(); ++boundary) {
      const bool crosses = schedule.rank_of_part[boundary] != schedule.rank_of_part[boundary + 1];
      through += crosses ? 2 * times.transfer[boundary] : 0.0;
    }
    const double bound = std::max(through, *std::max_element(busy.begin(), busy.end()));
    REQUIRE(makespan(schedule, times) >= bound * (1 - 1e-12));
  });
}

TEST_CASE("blocking transfers are never faster than overlapped ones, nor these than eager ones") {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    ScheduleShape shape = test::random_shape(random);
    const PlayTimes times = random_times(random, make_schedule(shape));
    shape.transfers = TransferMode::blocking;
    if (schedule_obstacle(shape)) continue;
    INFO(describe(shape, times));
    std::vector<double> spans;
    for (const TransferMode mode : {TransferMode::eager, TransferMode::overlapped, TransferMode::blocking}) {
      shape.transfers = mode;
      spans.push_back(makespan(make_schedule(shape), times));
    }
    REQUIRE(spans[0] <= spans[1] * (1 + 1e-12));
    REQUIRE(spans[1] <= spans[2] * (1 + 1e-12));
  }
}

TEST_CASE("stages that take no time at all are played") {
  for (const TransferMode mode : {TransferMode::eager, TransferMode::blocking, TransferMode::overlapped}) {
    const Schedule schedule = make_schedule({ScheduleKind::one_f_one_b, mode, 4, 1, 6});
    CHECK(makespan(schedule, test::equal_times(schedule, 0, 0)) == Approx(0).margin(1e-24));
  }
}

}  // namespace orrery
