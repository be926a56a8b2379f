// SEMANTICS 1 and 2 as laws that hold for every shape of schedule.
#include <algorithm>
#include <map>
#include <set>

#include "strategies/schedule.hpp"
#include "tests/catch.hpp"
#include "tests/strategies/random_schedule.hpp"
#include "tests/strategies/schedule_player.hpp"

namespace orrery {
namespace {

using test::describe;
using test::random_shape;

constexpr int kShapes = 200;

template <class Law>
void for_random_shapes(unsigned seed, Law law) {
  std::mt19937 random(seed);
  for (int i = 0; i < kShapes; ++i) {
    const ScheduleShape shape = random_shape(random);
    INFO(describe(shape));
    law(shape, make_schedule(shape));
  }
}

std::vector<Step> compute_steps(const Schedule& schedule, int rank) {
  std::vector<Step> steps;
  for (const Step& step : schedule.programs[static_cast<std::size_t>(rank)]) {
    if (step.kind != StepKind::exchange) steps.push_back(step);
  }
  return steps;
}

bool is_split(const ScheduleShape& shape) {
  return shape.kind >= ScheduleKind::zb_h1;
}

// SEMANTICS 1. Of zb-v: what its order has before the first backward.
int warmup_forwards(const ScheduleShape& shape, int rank) {
  const int after = shape.ranks - rank - 1;
  switch (shape.kind) {
    case ScheduleKind::gpipe:
      return shape.microbatches;
    case ScheduleKind::one_f_one_b:
      return std::min(after, shape.microbatches);
    case ScheduleKind::interleaved:
      return std::min(shape.microbatches * shape.chunks, 2 * after + (shape.chunks - 1) * shape.group());
    case ScheduleKind::zb_h1:
      return std::min(after, shape.microbatches);
    case ScheduleKind::zb_h2:
      return std::min(after + std::min(after, std::max(0, shape.microbatches - shape.ranks)),
                      shape.microbatches);
    case ScheduleKind::zb_v:
    case ScheduleKind::from_file:
      break;
  }
  return 0;
}

}  // namespace

TEST_CASE("every rank runs each of its chunks once forward and once backward for every microbatch") {
  for_random_shapes(1, [](const ScheduleShape& shape, const Schedule& schedule) {
    for (int rank = 0; rank < shape.ranks; ++rank) {
      std::set<std::tuple<int, int>> forwards;
      std::set<std::tuple<int, int>> backwards;
      std::set<std::tuple<int, int>> weights;
      const std::vector<Step> steps = compute_steps(schedule, rank);
      for (const Step& step : steps) {
        const std::tuple key(step.chunk, step.microbatch);
        REQUIRE((step.chunk >= 0 && step.chunk < shape.chunks));
        REQUIRE((step.microbatch >= 0 && step.microbatch < shape.microbatches));
        if (step.kind == StepKind::forward) {
          REQUIRE(forwards.insert(key).second);
        } else if (step.kind == StepKind::weight_gradient) {
          REQUIRE(backwards.count(key) == 1);
          REQUIRE(weights.insert(key).second);
        } else {
          REQUIRE(step.kind == StepKind::backward);
          REQUIRE(forwards.count(key) == 1);  // its forward came before
          REQUIRE(backwards.insert(key).second);
        }
      }
      const auto all = static_cast<std::size_t>(shape.chunks * shape.microbatches);
      REQUIRE((forwards.size() == all && backwards.size() == all));
      REQUIRE(weights.size() == (is_split(shape) ? all : 0));
    }
  });
}

TEST_CASE("as many forwards as SEMANTICS 1 says come before the pairs of a forward and a backward") {
  for_random_shapes(2, [](const ScheduleShape& shape, const Schedule& schedule) {
    if (is_split(shape)) return;
    const int total = shape.microbatches * shape.chunks;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const int warmup = warmup_forwards(shape, rank);
      const std::vector<Step> steps = compute_steps(schedule, rank);
      for (int i = 0; i < 2 * total; ++i) {
        const bool in_pairs = i >= warmup && i < 2 * total - warmup;
        const bool forward = in_pairs ? (i - warmup) % 2 == 0 : i < warmup;
        REQUIRE((steps[static_cast<std::size_t>(i)].kind == StepKind::forward) == forward);
      }
    }
  });
}

TEST_CASE("the phases follow the program: warm-up, pairs, the backwards that are left") {
  for_random_shapes(3, [](const ScheduleShape& shape, const Schedule& schedule) {
    if (is_split(shape)) return;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const std::vector<Step> steps = compute_steps(schedule, rank);
      const auto total = static_cast<std::size_t>(shape.microbatches * shape.chunks);
      const auto warmup = static_cast<std::size_t>(warmup_forwards(shape, rank));
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const bool first = i == 0;  // idle time before the very first forward is warm-up
        const Phase expected = i < warmup || first      ? Phase::warmup
                               : i < 2 * total - warmup ? Phase::steady
                                                        : Phase::drain;
        REQUIRE(steps[i].phase == expected);
      }
    }
  });
}

TEST_CASE("forward k of interleaved takes the microbatches of a group once for every chunk") {
  for_random_shapes(4, [](const ScheduleShape& shape, const Schedule& schedule) {
    if (shape.kind != ScheduleKind::interleaved) return;
    const int group = shape.group();
    for (int rank = 0; rank < shape.ranks; ++rank) {
      std::map<StepKind, int> counts;
      for (const Step& step : compute_steps(schedule, rank)) {
        const int k = counts[step.kind]++;
        const int first = k / (group * shape.chunks) * group;          // microbatch of the group of k
        const int size = std::min(group, shape.microbatches - first);  // the last group may be shorter
        const int within = k - first * shape.chunks;
        const int chunk = within / size;
        REQUIRE(step.microbatch == first + within % size);
        REQUIRE(step.chunk == (step.kind == StepKind::forward ? chunk : shape.chunks - 1 - chunk));
      }
    }
  });
}

TEST_CASE("all but interleaved take the microbatches of a chunk in order") {
  for_random_shapes(5, [](const ScheduleShape& shape, const Schedule& schedule) {
    if (shape.kind == ScheduleKind::interleaved) return;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      std::map<std::pair<StepKind, int>, int> next;
      for (const Step& step : compute_steps(schedule, rank)) {
        REQUIRE(step.microbatch == next[std::pair(step.kind, step.chunk)]++);
      }
    }
  });
}

TEST_CASE(
    "at most min(P - s, M) microbatches are alive with 1f1b, M with gpipe, warm-up + 1 with interleaved") {
  for_random_shapes(6, [](const ScheduleShape& shape, const Schedule& schedule) {
    if (is_split(shape)) return;
    const int total = shape.microbatches * shape.chunks;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const InFlight peak = in_flight(schedule, rank);
      REQUIRE(peak.total == std::min(warmup_forwards(shape, rank) + 1, total));
      if (shape.kind == ScheduleKind::one_f_one_b) {
        REQUIRE(peak.total == std::min(shape.ranks - rank, shape.microbatches));
      }
      int sum = 0;
      for (const int alive : peak.per_chunk) sum += alive;
      REQUIRE(peak.per_chunk.size() == static_cast<std::size_t>(shape.chunks));
      REQUIRE(sum == peak.total);
    }
  });
}

TEST_CASE("message numbers and messages name each other") {
  for_random_shapes(7, [](const ScheduleShape& shape, const Schedule& schedule) {
    REQUIRE(schedule.message_count() == 2 * (shape.ranks * shape.chunks - 1) * shape.microbatches);
    for (MessageId id = 0; id < schedule.message_count(); ++id) {
      const Message message = schedule.message(id);
      REQUIRE(schedule.message_id(message.gradient, message.boundary, message.microbatch) == id);
      const int before = rank_holding(shape.kind, shape.ranks, message.boundary);
      const int after = rank_holding(shape.kind, shape.ranks, message.boundary + 1);
      REQUIRE(message.from_rank == (message.gradient ? after : before));
      REQUIRE(message.to_rank == (message.gradient ? before : after));
    }
  });
}

TEST_CASE("every message is sent once and received once, by the ranks at its ends; none within a rank") {
  for_random_shapes(8, [](const ScheduleShape&, const Schedule& schedule) {
    const auto messages = static_cast<std::size_t>(schedule.message_count());
    std::vector<int> sent(messages, 0);
    std::vector<int> received(messages, 0);
    for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
      for (const Step& step : schedule.programs[rank]) {
        for (const MessageId id : step.sends) {
          REQUIRE(schedule.message(id).from_rank == static_cast<int>(rank));
          ++sent[static_cast<std::size_t>(id)];
        }
        for (const MessageId id : step.awaits) {
          if (schedule.message(id).to_rank == static_cast<int>(rank))
            ++received[static_cast<std::size_t>(id)];
        }
      }
    }
    for (MessageId id = 0; id < schedule.message_count(); ++id) {
      const Message message = schedule.message(id);
      const int times = message.from_rank == message.to_rank ? 0 : 1;
      REQUIRE(sent[static_cast<std::size_t>(id)] == times);
      REQUIRE(received[static_cast<std::size_t>(id)] == times);
    }
  });
}

TEST_CASE("a rank computes on what it has received and sends what it has computed") {
  for_random_shapes(9, [](const ScheduleShape& shape, const Schedule& schedule) {
    const int last_part = shape.ranks * shape.chunks - 1;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      std::set<MessageId> here;    // received so far
      std::set<MessageId> unsent;  // computed and not yet sent
      for (const Step& step : schedule.programs[static_cast<std::size_t>(rank)]) {
        if (step.kind != StepKind::exchange) {
          for (const MessageId id : step.awaits) here.insert(id);
          const int part = part_of(shape.kind, shape.ranks, rank, step.chunk);
          const bool forward = step.kind == StepKind::forward;
          const int from = forward ? part - 1 : part + 1;
          const int to = forward ? part + 1 : part - 1;
          const auto elsewhere = [&](int other) {
            return step.kind != StepKind::weight_gradient && other >= 0 && other <= last_part &&
                   rank_holding(shape.kind, shape.ranks, other) != rank;
          };
          if (elsewhere(from)) {
            REQUIRE(here.count(schedule.message_id(!forward, std::min(part, from), step.microbatch)) == 1);
          }
          if (elsewhere(to))
            unsent.insert(schedule.message_id(!forward, std::min(part, to), step.microbatch));
        }
        for (const MessageId id : step.sends) REQUIRE(unsent.erase(id) == 1);
        if (step.kind == StepKind::exchange) here.insert(step.awaits.begin(), step.awaits.end());
      }
      REQUIRE(unsent.empty());
    }
  });
}

TEST_CASE("overlapped: a send is waited for before the second step after it starts") {
  for_random_shapes(10, [](const ScheduleShape& shape, const Schedule& schedule) {
    if (shape.transfers != TransferMode::overlapped) return;
    for (const auto& program : schedule.programs) {
      for (std::size_t i = 2; i < program.size(); ++i) {
        for (const MessageId sent : program[i - 2].sends) {
          REQUIRE(std::count(program[i].awaits.begin(), program[i].awaits.end(), sent) == 1);
        }
      }
    }
  });
}

TEST_CASE("no schedule deadlocks, whatever its parts take") {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> time(0.1, 3.0);
  const auto draw = [&](double& value) { value = time(random); };
  for (int i = 0; i < kShapes; ++i) {
    const ScheduleShape shape = random_shape(random);
    INFO(describe(shape));
    const Schedule schedule = make_schedule(shape);
    test::PlayTimes times = test::equal_times(schedule, 1, 2);
    for (auto* list : {&times.forward, &times.backward, &times.weight, &times.transfer}) {
      std::for_each(list->begin(), list->end(), draw);
    }
    REQUIRE(test::play(schedule, times).has_value());
    REQUIRE(schedule_deadlock(schedule) == std::nullopt);
  }
}

// Those that do not split the backward. 1f1b and gpipe: (M + P - 1) (F + BW). Interleaved: the M v (F + BW) /
// v of a rank and (P - 1) (F + BW) / v.
TEST_CASE("with equal parts and free transfers only the ideal bubble is lost") {
  for_random_shapes(12, [](const ScheduleShape& shape, const Schedule& schedule) {
    if (is_split(shape)) return;
    const int rounds = shape.microbatches * shape.chunks + shape.ranks - 1;
    const auto played = test::play(schedule, test::equal_times(schedule, 1, 2));
    REQUIRE(played.has_value());
    REQUIRE(played->makespan() == rounds * (1 + 2));
  });
}

}  // namespace orrery
