// Zero-bubble schedules built for durations that differ.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "strategies/schedule.hpp"
#include "strategies/task_order.hpp"
#include "tests/catch.hpp"
#include "tests/strategies/random_schedule.hpp"
#include "tests/strategies/schedule_player.hpp"

namespace orrery {
namespace {

using test::describe;
using test::PlayTimes;

constexpr ScheduleKind kKinds[] = {ScheduleKind::zb_h1, ScheduleKind::zb_h2, ScheduleKind::zb_v};

ScheduleShape shape_of(ScheduleKind kind, int ranks, int microbatches) {
  return {kind, TransferMode::eager, ranks, kind == ScheduleKind::zb_v ? 2 : 1, microbatches};
}

ScheduleTimes times_of(const PlayTimes& times, ScheduleGoal goal = ScheduleGoal::makespan) {
  ScheduleTimes result;
  for (std::size_t part = 0; part < times.forward.size(); ++part) {
    result.parts.push_back(
        {Seconds(times.forward[part]), Seconds(times.backward[part]), Seconds(times.weight[part])});
  }
  for (const double transfer : times.transfer) result.transfers.emplace_back(transfer);
  result.goal = goal;
  return result;
}

PlayTimes same_on_all(const ScheduleShape& shape, double forward, double backward, double weight,
                      double transfer = 0) {
  const auto parts = static_cast<std::size_t>(shape.ranks * shape.chunks);
  return {std::vector(parts, forward), std::vector(parts, backward), std::vector(parts, weight),
          std::vector(parts - 1, transfer)};
}

double span(const Schedule& schedule, const PlayTimes& times, ScheduleGoal goal) {
  const auto played = test::play(schedule, times);
  if (goal == ScheduleGoal::makespan) return played->makespan();
  double longest = 0;
  for (std::size_t rank = 0; rank < played->start.size(); ++rank)
    longest = std::max(longest, played->end_of(rank) - played->start[rank].front());
  return longest;
}

PlayTimes random_times(std::mt19937& random, const ScheduleShape& shape) {
  PlayTimes times = same_on_all(shape, 0, 0, 0);
  std::uniform_real_distribution<double> time(0.2, 2.5);
  std::uniform_real_distribution<double> transfer(0.0, 0.6);
  for (auto* list : {&times.forward, &times.backward, &times.weight})
    for (double& value : *list) value = time(random);
  for (double& value : times.transfer) value = transfer(random);
  return times;
}

struct RandomCase {
  ScheduleShape shape;
  PlayTimes times;
  ScheduleGoal goal;
};

RandomCase random_case(std::mt19937& random) {
  RandomCase one;
  one.shape = shape_of(kKinds[test::between(random, 0, 2)], test::between(random, 1, 7),
                       test::between(random, 1, 20));
  one.shape.transfers = test::between(random, 0, 1) == 0 ? TransferMode::eager : TransferMode::overlapped;
  one.goal = test::between(random, 0, 1) == 0 ? ScheduleGoal::makespan : ScheduleGoal::rank_span;
  one.times = random_times(random, one.shape);
  return one;
}

// All orders of F, B and W of microbatches in turn, each B after its F and each W after its B.
void all_orders(int microbatches, TaskOrder& order, std::array<int, 3> done, std::vector<TaskOrder>& into) {
  if (done[2] == microbatches) into.push_back(order);
  const auto add = [&](StepKind kind, std::size_t row, int most) {
    if (done[row] == most) return;
    order.push_back({kind, Phase::steady, 0, done[row]});
    ++done[row];
    all_orders(microbatches, order, done, into);
    --done[row];
    order.pop_back();
  };
  add(StepKind::forward, 0, microbatches);
  add(StepKind::backward, 1, done[0]);
  add(StepKind::weight_gradient, 2, done[1]);
}

int alive_at_most(const TaskOrder& order) {
  int alive = 0, most = 0;
  for (const Task& task : order) {
    alive += task.kind == StepKind::forward ? 1 : 0;
    most = std::max(most, alive);
    alive -= task.kind == StepKind::weight_gradient ? 1 : 0;
  }
  return most;
}

// The end of the last task when ranks run these orders as soon as they can; infinite where they never end.
double makespan_of(const std::vector<const TaskOrder*>& orders, const PlayTimes& times, int microbatches) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::size_t ranks = orders.size();
  const auto all = static_cast<std::size_t>(microbatches);
  std::vector<double> input(ranks * all, kNever), gradient(ranks * all, kNever), now(ranks, 0.0);
  std::vector<std::size_t> next(ranks, 0);
  std::fill_n(input.begin(), all, 0.0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (; next[rank] < orders[rank]->size(); ++next[rank], moved = true) {
        const Task& task = (*orders[rank])[next[rank]];
        const auto here = rank * all + static_cast<std::size_t>(task.microbatch);
        const double ready = task.kind == StepKind::forward    ? input[here]
                             : task.kind == StepKind::backward ? gradient[here]
                                                               : 0.0;
        if (ready == kNever) break;
        now[rank] = std::max(now[rank], ready) + times.of(task.kind, rank);
        if (task.kind == StepKind::forward) {
          const bool last = rank + 1 == ranks;
          (last ? gradient[here] : input[here + all]) = now[rank] + (last ? 0 : times.transfer[rank]);
        }
        if (task.kind == StepKind::backward && rank > 0)
          gradient[here - all] = now[rank] + times.transfer[rank - 1];
      }
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (next[rank] < orders[rank]->size()) return kNever;
  return *std::max_element(now.begin(), now.end());
}

double best_makespan(const ScheduleShape& shape, const PlayTimes& times, int limit) {
  std::vector<TaskOrder> orders;
  TaskOrder order;
  all_orders(shape.microbatches, order, {0, 0, 0}, orders);
  orders.erase(std::remove_if(orders.begin(), orders.end(),
                              [&](const TaskOrder& one) { return alive_at_most(one) > limit; }),
               orders.end());
  double best = std::numeric_limits<double>::infinity();
  std::vector<const TaskOrder*> chosen(static_cast<std::size_t>(shape.ranks));
  const std::function<void(std::size_t)> choose = [&](std::size_t rank) {
    if (rank == chosen.size()) {
      best = std::min(best, makespan_of(chosen, times, shape.microbatches));
      return;
    }
    for (const TaskOrder& one : orders) {
      chosen[rank] = &one;
      choose(rank + 1);
    }
  };
  choose(0);
  return best;
}

}  // namespace

// Every order of every rank tried: the best of all that stay within the memory. Twelve random cases of each
// size; the order for F = B = W is up to 13 % above the best in them.
TEST_CASE("with all orders of small pipelines tried, the schedule built is within 2 % of the best") {
  const auto size = GENERATE(values<std::pair<int, int>>({{2, 3}, {2, 4}, {3, 3}}));
  const auto kind = GENERATE(ScheduleKind::zb_h1, ScheduleKind::zb_h2);
  const ScheduleShape shape = shape_of(kind, size.first, size.second);
  const int limit =
      kind == ScheduleKind::zb_h1 ? shape.ranks : std::min(2 * shape.ranks - 1, shape.microbatches);
  std::mt19937 random(31);
  for (int i = 0; i < 12; ++i) {
    const PlayTimes times = random_times(random, shape);
    const double built = span(make_schedule(shape, times_of(times)), times, ScheduleGoal::makespan);
    const double best = best_makespan(shape, times, limit);
    INFO(describe(shape) << " case " << i);
    REQUIRE(built >= best * (1 - 1e-9));
    REQUIRE(built <= best * 1.02);
  }
}

TEST_CASE("a schedule built for durations is never slower with them than the one for F = B = W") {
  std::mt19937 random(21);
  for (int i = 0; i < 300; ++i) {
    const RandomCase one = random_case(random);
    INFO(describe(one.shape) << " case " << i);
    const Schedule built = make_schedule(one.shape, times_of(one.times, one.goal));
    REQUIRE(span(built, one.times, one.goal) <=
            span(make_schedule(one.shape), one.times, one.goal) * (1 + 1e-9));
  }
}

TEST_CASE("a schedule built for durations keeps no more alive than its kind allows, loses no work and ends") {
  std::mt19937 random(22);
  for (int i = 0; i < 300; ++i) {
    const RandomCase one = random_case(random);
    INFO(describe(one.shape) << " case " << i);
    const int ranks = one.shape.ranks;
    const Schedule built = make_schedule(one.shape, times_of(one.times, one.goal));
    REQUIRE(schedule_deadlock(built) == std::nullopt);
    const int most = one.shape.kind == ScheduleKind::zb_h1   ? ranks
                     : one.shape.kind == ScheduleKind::zb_h2 ? 2 * ranks - 1
                                                             : 2 * ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      REQUIRE(in_flight(built, rank).total <= most);
      std::vector<std::tuple<StepKind, int, int>> tasks;
      for (const Step& step : built.programs[static_cast<std::size_t>(rank)])
        tasks.emplace_back(step.kind, step.chunk, step.microbatch);
      REQUIRE(tasks.size() == static_cast<std::size_t>(3 * one.shape.chunks * one.shape.microbatches));
      std::sort(tasks.begin(), tasks.end());
      REQUIRE(std::adjacent_find(tasks.begin(), tasks.end()) == tasks.end());
    }
  }
}

// With F = B = W and free transfers the handcrafted orders are already the best: SEMANTICS 1's bubbles hold.
TEST_CASE("for F = B = W and free transfers the schedule built is the handcrafted one") {
  for (const ScheduleKind kind : kKinds) {
    for (const ScheduleGoal goal : {ScheduleGoal::makespan, ScheduleGoal::rank_span}) {
      for (int ranks = 2; ranks <= 6; ++ranks) {
        const ScheduleShape shape = shape_of(kind, ranks, 3 * ranks);
        INFO(describe(shape));
        REQUIRE(make_schedule(shape, times_of(same_on_all(shape, 1, 1, 1), goal)) == make_schedule(shape));
      }
    }
  }
}

TEST_CASE("schedules that do not split the backward are the same for all durations") {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
    const ScheduleShape shape{kind, TransferMode::eager, 3, 1, 5};
    CHECK(make_schedule(shape, times_of(same_on_all(shape, 1, 3, 2))) == make_schedule(shape));
  }
}

// Rank 1 (F 2, B 3, W 2) is busy for 4 x 7 columns and has nothing before column 1: 29 is the least. The
// order for F = B = W waits for the first gradient with a forward at hand.
TEST_CASE("zb-h1 keeps a slow rank in the middle busy") {
  const ScheduleShape shape = shape_of(ScheduleKind::zb_h1, 3, 4);
  const PlayTimes times{{1, 2, 1}, {2, 3, 2}, {1, 2, 1}, {0, 0}};
  CHECK(test::picture(make_schedule(shape), times) ==
        "stage 0  012......aaA3.bbB....ccC..ddD.\n"
        "stage 1  .0011.aaa22bbbAA33cccBBdddCCDD\n"
        "stage 2  ...0aa1bb..2ccA...3ddBCD......\n");
  CHECK(test::picture(make_schedule(shape, times_of(times)), times) ==
        "stage 0  012.......aaA3bbB...ccC..ddD.\n"
        "stage 1  .001122aaabbbAA33cccBBdddCCDD\n"
        "stage 2  ...0aa1bbA2ccBC..3ddD........\n");
}

// Messages take a column. Rank 1 (F 1, B 2, W 2) begins in column 3, waits twice for rank 0's longer
// forwards, then is busy to the end: the order for F = B = W is already the best.
TEST_CASE("zb-h2 with a slow first rank and transfers") {
  const ScheduleShape shape = shape_of(ScheduleKind::zb_h2, 3, 5);
  const PlayTimes times{{2, 1, 1}, {2, 2, 1}, {1, 2, 1}, {1, 1}};
  CHECK(test::picture(make_schedule(shape, times_of(times)), times) ==
        "stage 0  0011223344.aaAbbBccC.ddD.eeE..\n"
        "stage 1  ...0.1.2aa3bb4ccAAddBBeeCCDDEE\n"
        "stage 2  .....0a1b2c.3d.4eABCDE........\n");
}

// Every rank is busy for 5 x 2 x 4 columns and rank 2 has nothing before column 2: 42 is the least.
TEST_CASE("zb-v with weight gradients longer than the rest") {
  const ScheduleShape shape = shape_of(ScheduleKind::zb_v, 3, 5);
  const PlayTimes times = same_on_all(shape, 1, 1, 2);
  CHECK(test::picture(make_schedule(shape), times) ==
        "stage 0  012340aAA1bBB2cCCaAA3dDDbBB4eEEcCCdDDeEE...\n"
        "  chunk  0000011111111111100011110001111000000000...\n"
        "stage 1  .012031aAA2bBB4aAA3cCCbBB4dDDcedCCeDDEEEE..\n"
        "  chunk  .0001011111111000011110001111010000001100..\n"
        "stage 2  ..001122aAA3aAA3bBB4bBB4cCCcdd.eeCCDDEEDDEE\n"
        "  chunk  ..0101011110000111100001111010.100011110000\n");
  CHECK(test::picture(make_schedule(shape, times_of(times)), times) ==
        "stage 0  012340aAA1bBB2caCC3bdAABBDD4cdeCCDDeEEEE..\n"
        "  chunk  0000011111111110111010000111001000001100..\n"
        "stage 1  .012031aAA2bBBaAA3b4cdBBCC4cdDDeCCeDDEEEE.\n"
        "  chunk  .0001011111111000100110011100111000001100.\n"
        "stage 2  ..001122aAAaAA3b3bBBBB4c4cddCCCCeeDDDDEEEE\n"
        "  chunk  ..0101011110000110110001101011001011001100\n");
}

}  // namespace orrery
