// Replicas on unlike GPUs: how a plan file says them, when they fit, where they are placed, what share they
// get.
#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "platforms/topology.hpp"
#include "strategies/megatron.hpp"
#include "strategies/placement.hpp"
#include "strategies/plan.hpp"
#include "strategies/shares.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/replaced.hpp"
#include "tests/strategies/plan_fixture.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

// Llama-2 70B, 2 stages x 8 ways: 2 replicas on 4 fast nodes, 3 on 6 slow ones; 2 x 13 + 3 x 2 = 32
// microbatches of 2 sequences.
ParallelStrategy on_two_kinds() {
  ParallelStrategy strategy;
  strategy.pipeline = 2;
  strategy.data = 5;
  strategy.micro_batch = 2;
  strategy.global_batch = 64;
  strategy.sequence = 4096;
  strategy.stages = {{0, 8}, {0, 8}};
  strategy.replicas = {{2, {0, 0}, 13}, {3, {1, 1}, 2}};
  strategy.parts = equal_parts(2, 80);
  strategy.nodes = {4, 6};
  return strategy;
}

std::string reason_of(const ParallelStrategy& strategy) {
  const auto answer = check_shape(read_model("llama2-70b"), strategy, two_kinds());
  return answer ? answer->reason : "feasible";
}

double slowest(const std::vector<ReplicaPace>& paces, const std::vector<std::int64_t>& shares) {
  double time = 0;
  std::size_t next = 0;
  for (const ReplicaPace& pace : paces) {
    for (int replica = 0; replica < pace.count; ++replica, ++next)
      time = std::max(time, pace.fill + pace.each * static_cast<double>(shares[next]));
  }
  return time;
}

// The least time of the slowest replica over all ways to deal `left` microbatches to the replicas from
// `first`.
double brute_force(const std::vector<ReplicaPace>& replicas, std::size_t first, std::int64_t left) {
  if (first == replicas.size()) return left == 0 ? 0.0 : std::numeric_limits<double>::infinity();
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t share = replicas[first].least; share <= left; ++share) {
    const double here = replicas[first].fill + replicas[first].each * static_cast<double>(share);
    best = std::min(best, std::max(here, brute_force(replicas, first + 1, left - share)));
  }
  return best;
}

}  // namespace

TEST_CASE("a plan file names unlike replicas once, and says what is wrong with them") {
  const std::string yaml = to_yaml({"llama2-70b", "c.yaml", on_two_kinds()});
  CHECK(yaml.find("  - {count: 2, groups: [0, 0], microbatches: 13}\n") != std::string::npos);
  CHECK(parse_plan(yaml, "plan.yaml").strategy == on_two_kinds());
  const ParallelStrategy open =
      parse_plan(test::replaced(test::replaced(yaml, "microbatches: 13", "microbatches: auto"),
                                "microbatches: 2}", "microbatches: auto}"),
                 "plan.yaml")
          .strategy;
  CHECK(open.shares_open());
  CHECK(reason_of(open) == "feasible");
  const auto says = [&](const std::string& from, const std::string& to, const std::string& part) {
    const std::string error = input_error([&] { parse_plan(test::replaced(yaml, from, to), "plan.yaml"); });
    INFO(error);
    CHECK(contains(error, part));
  };
  says("count: 2", "count: 3", "add up to the 5 replicas of `data`");
  says("groups: [0, 0]", "groups: [0]", "2 node groups, one for each stage");
  says("- {tensor: 8}", "- {group: 0, tensor: 8}", "`replicas` names them");
  says("microbatches: 13", "microbatches: 0", "plan.yaml:");
  says("microbatches: 13", "microbatch: 13", "microbatches");
}

TEST_CASE("unlike replicas fit when their counts, their microbatches and their GPUs do") {
  struct Row {
    const char* reason;
    std::function<void(ParallelStrategy&)> change;
  };
  CHECK(reason_of(on_two_kinds()) == "feasible");
  for (const Row& row : {
           Row{"the replicas run 31 microbatches of 2 sequences in all; the global batch has 64",
               [](auto& s) { s.replicas[0].microbatches = 14, s.replicas[1].microbatches = 1; }},
           Row{"a replica runs 33 microbatches of the 32 of the global batch",
               [](auto& s) { s.replicas[0].microbatches = 33; }},
           Row{"microbatches are said for some kinds of replica only; say them for all or for none",
               [](auto& s) { s.replicas[1].microbatches = 0; }},
           Row{"the kinds of replica have 4 replicas; the plan has 5",
               [](auto& s) { s.replicas[1].count = 2; }},
           Row{"a kind of replica has 0 replicas; at least 1 is needed",
               [](auto& s) { s.replicas[1].count = 0; }},
           Row{"the stages and the first kind of replica name different node groups",
               [](auto& s) { s.stages[1].group = 1; }},
           Row{"the stages on group slow need 48 GPUs; 5 nodes have 40",
               [](auto& s) {
                 s.nodes = {4, 5};
               }},
           Row{"node group 2 is not among the cluster's 2",
               [](auto& s) {
                 s.replicas[1].groups = {1, 2};
               }},
       }) {
    ParallelStrategy strategy = on_two_kinds();
    row.change(strategy);
    CHECK(reason_of(strategy) == row.reason);
  }
}

TEST_CASE("unlike replicas fill the GPUs of their own groups, stage after stage") {
  const ParallelStrategy strategy = on_two_kinds();
  const auto gpus = place(strategy, Topology(two_kinds(), strategy.nodes));
  REQUIRE(gpus.size() == 10);
  // 32 fast GPUs, then the slow ones: replicas 0 and 1 of stage 0 on 0 to 15, of stage 1 on 16 to 31.
  const int first_of_rank[] = {0, 16, 8, 24, 32, 56, 40, 64, 48, 72};
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    REQUIRE(gpus[rank].size() == 8);
    CHECK(gpus[rank].front() == first_of_rank[rank]);
    CHECK(gpus[rank].back() == first_of_rank[rank] + 7);
  }
}

TEST_CASE("the shares of unlike replicas make the slowest as fast as any shares do") {
  std::mt19937 engine(7);
  const auto roll = [&](int low, int high) {
    return low + static_cast<int>(engine() % static_cast<unsigned>(high - low + 1));
  };
  int unfit = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<ReplicaPace> paces, replicas;
    for (int kind = roll(1, 3); kind > 0; --kind) {
      // Whole numbers make ties, real ones do not.
      const double unit = roll(0, 1) == 0 ? 1.0 : 0.37 + kind * 0.113;
      paces.push_back({roll(1, 2), roll(0, 9) * unit, roll(1, 5) * unit, roll(1, 3)});
      for (int replica = 0; replica < paces.back().count; ++replica) replicas.push_back(paces.back());
    }
    const std::int64_t total = roll(1, 14);
    const auto shares = fastest_shares(paces, total);
    const double best = brute_force(replicas, 0, total);
    if (shares.empty()) {
      ++unfit;
      CHECK(best == std::numeric_limits<double>::infinity());
      continue;
    }
    std::int64_t sum = 0;
    for (std::size_t replica = 0; replica < shares.size(); ++replica) {
      CHECK(shares[replica] >= replicas[replica].least);
      sum += shares[replica];
    }
    CHECK(sum == total);
    CHECK(slowest(paces, shares) == Approx(best).epsilon(1e-12));
  }
  CHECK((unfit > 10 && unfit < 200));
}

// A microbatch takes 1 s on the two fast replicas and 3 s on the three slow ones: 65 536 of them end together
// after 65 536 / (2 + 3 / 3) s.
TEST_CASE("many microbatches are dealt by speed, equal replicas alike") {
  const auto shares = fastest_shares({{2, 0, 1, 1}, {3, 0, 3, 1}}, 65'536);
  REQUIRE(shares.size() == 5);
  CHECK(slowest({{2, 0, 1, 1}, {3, 0, 3, 1}}, shares) < 65'536 / 3.0 + 1);
  CHECK(std::abs(shares[0] - shares[1]) <= 1);
  CHECK(std::abs(shares[2] - shares[4]) <= 1);
}

TEST_CASE("replicas of one kind with two shares become two kinds") {
  ParallelStrategy strategy = on_two_kinds();
  const ParallelStrategy dealt = with_shares(strategy, {9, 9, 5, 5, 4});
  CHECK(dealt.replicas == std::vector<ReplicaKind>{{2, {0, 0}, 9}, {2, {1, 1}, 5}, {1, {1, 1}, 4}});
  CHECK(reason_of(dealt) == "feasible");
}

TEST_CASE("Megatron-LM cannot run replicas with unequal microbatches, and the launcher says so") {
  const auto gaps = megatron_gaps(read_model("llama2-70b"), on_two_kinds(), two_kinds());
  REQUIRE(gaps.size() == 1);
  CHECK(gaps[0].find("unequal numbers of microbatches") != std::string::npos);
}
