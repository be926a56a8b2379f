#include "strategies/placement.hpp"

#include <set>

#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/strategies/plan_fixture.hpp"
#include "tests/strategies/random_schedule.hpp"

namespace orrery {
namespace {

using test::between;

// A strategy over random groups in random order; nodes as many as it needs.
ParallelStrategy random_strategy(std::mt19937& random, const ClusterSpec& cluster) {
  ParallelStrategy strategy;
  strategy.pipeline = between(random, 1, 5);
  strategy.data = between(random, 1, 3);
  strategy.context = between(random, 1, 2);
  const int tensor = 1 << between(random, 0, 3);
  std::vector<int> gpus(cluster.groups.size(), 0);
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    const int group = between(random, 0, static_cast<int>(cluster.groups.size()) - 1);
    strategy.stages.push_back({group, tensor});
    gpus[static_cast<std::size_t>(group)] += tensor * strategy.context * strategy.data;
  }
  for (std::size_t group = 0; group < gpus.size(); ++group) {
    const int per_node = cluster.groups[group].gpus_per_node;
    strategy.nodes.push_back((gpus[group] + per_node - 1) / per_node);
  }
  return strategy;
}

ClusterSpec roomy() {
  ClusterSpec cluster = test::two_kinds();
  for (NodeGroup& group : cluster.groups) group.count = {0, 100};
  return cluster;
}

}  // namespace

// 2 stages of 2 x 2 lanes and 2 replicas on one group of 16 GPUs: stage 0 takes GPUs 0-7, replica 0 the first
// four.
TEST_CASE("all replicas of a stage stand before the next stage, tensor ranks fastest") {
  ParallelStrategy strategy;
  strategy.pipeline = 2;
  strategy.data = 2;
  strategy.context = 2;
  strategy.stages = {{0, 2}, {0, 2}};
  strategy.nodes = {2, 0};
  CHECK(place(strategy, Topology(roomy(), strategy.nodes)) ==
        std::vector<std::vector<int>>{{0, 1, 2, 3}, {8, 9, 10, 11}, {4, 5, 6, 7}, {12, 13, 14, 15}});
}

TEST_CASE("the stages of a group start at its first GPU") {
  ParallelStrategy strategy;
  strategy.pipeline = 3;
  strategy.stages = {{1, 8}, {0, 8}, {1, 8}};
  strategy.nodes = {1, 2};
  const auto gpus = place(strategy, Topology(roomy(), strategy.nodes));
  CHECK(gpus[0].front() == 8);
  CHECK(gpus[1].front() == 0);
  CHECK(gpus[2].front() == 16);
}

TEST_CASE("every GPU is used at most once, by a stage of its group; lanes are neighbours") {
  std::mt19937 random(1);
  const ClusterSpec cluster = roomy();
  for (int i = 0; i < 200; ++i) {
    const ParallelStrategy strategy = random_strategy(random, cluster);
    const Topology topology(cluster, strategy.nodes);
    const auto gpus = place(strategy, topology);
    REQUIRE(gpus.size() == static_cast<std::size_t>(strategy.data * strategy.pipeline));
    std::set<int> used;
    for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
      const int stage = static_cast<int>(rank) % strategy.pipeline;
      REQUIRE(gpus[rank].size() == static_cast<std::size_t>(strategy.gpus_of_stage(stage)));
      for (std::size_t lane = 0; lane < gpus[rank].size(); ++lane) {
        const int gpu = gpus[rank][lane];
        REQUIRE(gpu == gpus[rank].front() + static_cast<int>(lane));
        REQUIRE(used.insert(gpu).second);
        REQUIRE(topology.device(gpu).group == strategy.stages[static_cast<std::size_t>(stage)].group);
      }
    }
    REQUIRE(used.size() == static_cast<std::size_t>(strategy.gpus()));
  }
}

TEST_CASE("a strategy that does not fit its nodes is our mistake, not a silent overlap") {
  ParallelStrategy strategy;
  strategy.pipeline = 2;
  strategy.stages = {{0, 8}, {0, 8}};
  strategy.nodes = {1, 1};
  CHECK_THROWS_AS(place(strategy, Topology(roomy(), strategy.nodes)), Defect);
}

}  // namespace orrery
