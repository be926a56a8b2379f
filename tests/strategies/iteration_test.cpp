// Whole iterations as programs: who enters which collective when, and that nothing of the schedule is lost.
#include "strategies/iteration.hpp"

#include <map>
#include <set>

#include "tests/catch.hpp"
#include "tests/strategies/random_schedule.hpp"
#include "tests/strategies/schedule_player.hpp"

namespace orrery {
namespace {

using test::between;

TrafficShape random_traffic(std::mt19937& random, int parts) {
  const auto coin = [&] { return between(random, 0, 1) == 1; };
  TrafficShape traffic;
  traffic.iterations = between(random, 1, 3);
  traffic.gradients = coin();
  traffic.overlap_grad_reduce = coin();
  traffic.embedding = coin();
  traffic.gradient_norm = coin();
  traffic.optimizer = coin();
  traffic.parameters = coin();
  traffic.overlap_param_gather = coin();
  for (int part = 0; coin() && part < parts; ++part) traffic.buckets.push_back(between(random, 1, 3));
  if (static_cast<int>(traffic.buckets.size()) < parts) traffic.buckets.clear();
  return traffic;
}

std::string describe(const ScheduleShape& shape, const TrafficShape& traffic) {
  std::string text = test::describe(shape) + " iterations=" + std::to_string(traffic.iterations) + " buckets";
  for (const int count : traffic.buckets) text += " " + std::to_string(count);
  for (const auto& [on, name] : {std::pair(traffic.gradients, " gradients"),
                                 {traffic.overlap_grad_reduce, " overlap-grad-reduce"},
                                 {traffic.embedding, " embedding"},
                                 {traffic.gradient_norm, " norm"},
                                 {traffic.optimizer, " optimizer"},
                                 {traffic.parameters, " parameters"},
                                 {traffic.overlap_param_gather, " overlap-param-gather"}}) {
    if (on) text += name;
  }
  return text;
}

template <class Law>
void for_random_iterations(unsigned seed, Law law) {
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    const ScheduleShape shape = test::random_shape(random);
    const Schedule one = make_schedule(shape);
    const TrafficShape traffic = random_traffic(random, one.boundaries() + 1);
    INFO(describe(shape, traffic));
    law(one, traffic, with_traffic(one, traffic));
  }
}

bool enters(StepKind kind) {
  return kind == StepKind::join || kind == StepKind::launch;
}

std::vector<int> entered(const std::vector<Step>& program) {
  std::vector<int> slots;
  for (const Step& step : program) {
    if (enters(step.kind)) slots.push_back(step.slot);
  }
  return slots;
}

std::set<int> members(const Schedule& schedule, const CollectiveSlot& slot) {
  std::set<int> ranks;
  switch (slot.role) {
    case CollectiveRole::gradients:
    case CollectiveRole::parameters:
      return {schedule.rank_of_part[static_cast<std::size_t>(slot.part)]};
    case CollectiveRole::embedding:
      ranks = {schedule.rank_of_part.front(), schedule.rank_of_part.back()};
      if (ranks.size() == 1) ranks.clear();  // both tables are on one rank
      return ranks;
    case CollectiveRole::gradient_norm:
      break;
  }
  for (int rank = 0; rank < schedule.shape.ranks; ++rank) ranks.insert(rank);
  return ranks;
}

// F3 and B3 compute microbatch 3, a piece of it f3 and b3; +g0.1 launches and .g0.1 awaits bucket 1 of the
// gradients of part 0; =g0.1 does both; p: parameters, e: embedding, n: norm; O: optimizer step.
std::string text_of(const Schedule& schedule, int rank) {
  std::string text;
  for (const Step& step : schedule.programs[static_cast<std::size_t>(rank)]) {
    if (step.kind == StepKind::exchange) continue;
    text += text.empty() ? "" : " ";
    if (is_compute(step.kind)) {
      const char* letters = step.pieces > 1 ? "fbw" : "FBW";
      text += letters[static_cast<int>(step.kind)] + std::to_string(step.microbatch);
    } else if (step.kind == StepKind::optimizer) {
      text += "O";
    } else {
      const CollectiveSlot& slot = schedule.collectives[static_cast<std::size_t>(step.slot)];
      text += step.kind == StepKind::launch ? "+" : step.kind == StepKind::await ? "." : "=";
      text += "genp"[static_cast<int>(slot.role)];
      const bool of_part = slot.role == CollectiveRole::gradients || slot.role == CollectiveRole::parameters;
      if (of_part) text += std::to_string(slot.part) + "." + std::to_string(slot.bucket);
    }
  }
  return text;
}

}  // namespace

TEST_CASE("cutting tasks into pieces and playing more iterations changes nothing of what is alive") {
  std::size_t cut = 0;
  for_random_iterations(11, [&](const Schedule& one, const TrafficShape&, const Schedule& all) {
    for (int rank = 0; rank < one.shape.ranks; ++rank) {
      REQUIRE(alive_states(all, rank) == alive_states(one, rank));
      REQUIRE(in_flight(all, rank).total == in_flight(one, rank).total);
      const auto& program = all.programs[static_cast<std::size_t>(rank)];
      cut += std::any_of(program.begin(), program.end(), [](const Step& step) { return step.pieces > 1; });
    }
  });
  CHECK(cut > 3);
}

TEST_CASE(
    "1f1b cuts the last backward of its first stage alone into buckets; later stages reduce after theirs") {
  const Schedule one = make_schedule({ScheduleKind::one_f_one_b, TransferMode::eager, 2, 1, 2});
  TrafficShape traffic;
  traffic.gradients = traffic.overlap_grad_reduce = traffic.gradient_norm = traffic.optimizer = true;
  traffic.buckets = {2, 2};
  const Schedule all = with_traffic(one, traffic);
  CHECK(text_of(all, 0) == "F0 F1 B0 b1 +g0.0 b1 +g0.1 .g0.0 .g0.1 =n O");
  CHECK(text_of(all, 1) == "F0 B0 F1 B1 +g1.0 +g1.1 .g1.0 .g1.1 =n O");
}

TEST_CASE(
    "parameters are awaited bucket by bucket in the first forward of the next iteration, at the end of the "
    "last") {
  const Schedule one = make_schedule({ScheduleKind::gpipe, TransferMode::eager, 1, 1, 2});
  TrafficShape traffic;
  traffic.iterations = 2;
  traffic.gradients = traffic.optimizer = traffic.parameters = traffic.overlap_param_gather = true;
  traffic.buckets = {2};
  const std::string reduced = " +g0.0 +g0.1 .g0.0 .g0.1 O";
  CHECK(text_of(with_traffic(one, traffic), 0) ==
        "F0 F1 B0 B1" + reduced + " +p0.0 +p0.1 .p0.0 f2 .p0.1 f2 F3 B2 B3" + reduced + " =p0.0 =p0.1");
}

TEST_CASE("interleaved launches a chunk when backward k - rank was its last") {
  const Schedule one = make_schedule({ScheduleKind::interleaved, TransferMode::eager, 2, 2, 2});
  TrafficShape traffic;
  traffic.gradients = traffic.overlap_grad_reduce = true;
  const Schedule all = with_traffic(one, traffic);
  // Backwards of a rank: chunk 1 of both microbatches, then chunk 0; part 2 is chunk 1 of rank 0.
  CHECK(text_of(all, 0) == "F0 F1 F0 F1 B0 B1 +g2.0 B0 B1 +g0.0 .g2.0 .g0.0");
  CHECK(text_of(all, 1) == "F0 F1 F0 B0 F1 B1 B0 +g3.0 B1 +g1.0 .g3.0 .g1.0");
}

TEST_CASE("every member of a collective enters it exactly once, and nobody else does") {
  for_random_iterations(1, [](const Schedule&, const TrafficShape&, const Schedule& all) {
    std::map<int, std::multiset<int>> ranks_of;
    for (int rank = 0; rank < all.shape.ranks; ++rank) {
      for (const int slot : entered(all.programs[static_cast<std::size_t>(rank)]))
        ranks_of[slot].insert(rank);
    }
    for (std::size_t slot = 0; slot < all.collectives.size(); ++slot) {
      const std::set<int> expected = members(all, all.collectives[slot]);
      REQUIRE(ranks_of[static_cast<int>(slot)] == std::multiset<int>(expected.begin(), expected.end()));
    }
  });
}

TEST_CASE("any two ranks enter the collectives they share in the same order") {
  for_random_iterations(2, [](const Schedule&, const TrafficShape&, const Schedule& all) {
    const auto shared = [&](int rank) {
      std::vector<int> slots;
      for (const int slot : entered(all.programs[static_cast<std::size_t>(rank)])) {
        const CollectiveRole role = all.collectives[static_cast<std::size_t>(slot)].role;
        if (role == CollectiveRole::embedding || role == CollectiveRole::gradient_norm) slots.push_back(slot);
      }
      return slots;
    };
    for (int rank = 0; rank < all.shape.ranks; ++rank) {
      const std::vector<int> slots = shared(rank);
      REQUIRE(std::is_sorted(slots.begin(), slots.end()));
    }
  });
}

// Replicas with other numbers of microbatches meet in the same collectives: in another order they would wait
// for ever.
TEST_CASE("the order of a rank's collectives does not depend on the number of microbatches") {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    ScheduleShape shape = test::random_shape(random);
    const Schedule one = make_schedule(shape);
    const TrafficShape traffic = random_traffic(random, one.boundaries() + 1);
    INFO(describe(shape, traffic));
    const Schedule all = with_traffic(one, traffic);
    shape.microbatches = between(random, 1, 30);
    if (schedule_obstacle(shape)) continue;
    INFO("and with " << shape.microbatches << " microbatches");
    const Schedule other = with_traffic(make_schedule(shape), traffic);
    for (std::size_t rank = 0; rank < all.programs.size(); ++rank) {
      REQUIRE(entered(all.programs[rank]) == entered(other.programs[rank]));
    }
  }
}

TEST_CASE("what is launched is awaited once, later; what is joined is not") {
  for_random_iterations(4, [](const Schedule&, const TrafficShape&, const Schedule& all) {
    for (const auto& program : all.programs) {
      std::set<int> running;
      for (const Step& step : program) {
        if (step.kind == StepKind::launch) REQUIRE(running.insert(step.slot).second);
        if (step.kind == StepKind::await) REQUIRE(running.erase(step.slot) == 1);
      }
      REQUIRE(running.empty());
    }
  });
}

TEST_CASE(
    "a rank steps after its gradients are reduced and before its parameters are gathered, once an "
    "iteration") {
  for_random_iterations(5, [](const Schedule&, const TrafficShape& traffic, const Schedule& all) {
    const auto slots = static_cast<int>(all.collectives.size()) / traffic.iterations;
    for (const auto& program : all.programs) {
      int steps = 0;
      std::set<int> reduced, gathered;
      for (const Step& step : program) {
        if (step.kind == StepKind::optimizer) ++steps;
        if (is_compute(step.kind) || step.kind == StepKind::exchange || step.kind == StepKind::optimizer)
          continue;
        const CollectiveRole role = all.collectives[static_cast<std::size_t>(step.slot)].role;
        const int iteration = step.slot / slots;
        if (role == CollectiveRole::parameters && enters(step.kind) && traffic.optimizer)
          REQUIRE(steps == iteration + 1);
        if (role != CollectiveRole::parameters && traffic.optimizer) REQUIRE(steps == iteration);
      }
      REQUIRE(steps == (traffic.optimizer ? traffic.iterations : 0));
    }
  });
}

TEST_CASE("every task of every iteration runs once, whole, in the order of the schedule") {
  for_random_iterations(6, [](const Schedule& one, const TrafficShape& traffic, const Schedule& all) {
    using Task = std::tuple<StepKind, int, int>;
    const auto tasks = [](const std::vector<Step>& program, int shift) {
      std::vector<Task> list;
      int piece = 0;
      for (const Step& step : program) {
        if (!is_compute(step.kind)) continue;
        if (++piece < step.pieces) continue;
        piece = 0;
        list.emplace_back(step.kind, step.chunk, step.microbatch + shift);
      }
      REQUIRE(piece == 0);
      return list;
    };
    for (std::size_t rank = 0; rank < all.programs.size(); ++rank) {
      std::vector<Task> expected;
      for (int iteration = 0; iteration < traffic.iterations; ++iteration) {
        const auto more = tasks(one.programs[rank], iteration * one.shape.microbatches);
        expected.insert(expected.end(), more.begin(), more.end());
      }
      REQUIRE(tasks(all.programs[rank], 0) == expected);
    }
  });
}

TEST_CASE("every message of every iteration is sent and received once, with the microbatch of its step") {
  for_random_iterations(7, [](const Schedule& one, const TrafficShape& traffic, const Schedule& all) {
    const auto count = [](const Schedule& schedule) {
      std::map<MessageId, int> uses;
      for (const auto& program : schedule.programs) {
        for (const Step& step : program) {
          for (const MessageId id : step.sends) ++uses[id];
          for (const MessageId id : step.awaits) ++uses[id];
          if (!is_compute(step.kind)) continue;
          for (const MessageId id : step.sends) REQUIRE(schedule.message(id).microbatch == step.microbatch);
        }
      }
      return uses;
    };
    const auto of_one = count(one);
    const auto of_all = count(all);
    REQUIRE(of_all.size() == of_one.size() * static_cast<std::size_t>(traffic.iterations));
    for (const auto& [id, uses] : of_all) {
      const Message message = all.message(id);
      const int within = message.microbatch % one.shape.microbatches;
      REQUIRE(of_one.at(one.message_id(message.gradient, message.boundary, within)) == uses);
    }
  });
}

TEST_CASE(
    "with overlap-param-gather a chunk computes on in the next iteration only after its parameters are "
    "there") {
  for_random_iterations(8, [](const Schedule&, const TrafficShape& traffic, const Schedule& all) {
    if (!traffic.parameters) return;
    const auto slots = static_cast<int>(all.collectives.size()) / traffic.iterations;
    for (int rank = 0; rank < all.shape.ranks; ++rank) {
      std::map<std::pair<int, int>, int> arrived;  // (iteration, part) -> buckets
      for (const Step& step : all.programs[static_cast<std::size_t>(rank)]) {
        if (step.kind == StepKind::await || step.kind == StepKind::join) {
          const CollectiveSlot& slot = all.collectives[static_cast<std::size_t>(step.slot)];
          if (slot.role == CollectiveRole::parameters) ++arrived[{step.slot / slots, slot.part}];
        }
        const int iteration = step.microbatch / all.shape.microbatches;
        if (!is_compute(step.kind) || iteration == 0 || step.pieces > 1) continue;
        const int part = all.part(rank, step.chunk);
        const int buckets = traffic.buckets.empty() ? 1 : traffic.buckets[static_cast<std::size_t>(part)];
        REQUIRE(arrived[{iteration - 1, part}] == buckets);
      }
    }
  });
}

}  // namespace orrery
