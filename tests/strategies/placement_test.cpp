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

// 2 stages of 2 x 2 lanes and 2 replicas on one group of 16 GPUs.
ParallelStrategy two_by_two() {
  ParallelStrategy strategy;
  strategy.pipeline = 2;
  strategy.data = 2;
  strategy.context = 2;
  strategy.stages = {{0, 2}, {0, 2}};
  strategy.nodes = {2, 0};
  return strategy;
}

}  // namespace

// Stage 0 takes GPUs 0-7, replica 0 the first four.
TEST_CASE("all replicas of a stage stand before the next stage, tensor ranks fastest") {
  const ParallelStrategy strategy = two_by_two();
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

// Replica 0 takes GPUs 0-7, its stage 0 the first four.
TEST_CASE("in the order tp-cp-ep-pp-dp all stages of a replica stand before the next replica") {
  ParallelStrategy strategy = two_by_two();
  strategy.order = RankOrder::cp_pp_dp;
  CHECK(place(strategy, Topology(roomy(), strategy.nodes)) ==
        std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}});
}

// Megatron-LM core/parallel_state.py, generate_masked_orthogonal_rank_groups: a rank is the sum of its
// indices on the axes, each times the product of the sizes of the axes before it.
TEST_CASE("ranks are numbered as Megatron-LM's RankGenerator numbers them, whatever the order") {
  std::mt19937 random(3);
  for (int i = 0; i < 120; ++i) {
    ParallelStrategy strategy;
    strategy.order = static_cast<RankOrder>(i % 6);
    strategy.pipeline = between(random, 1, 4);
    strategy.data = between(random, 1, 4);
    strategy.context = between(random, 1, 3);
    const int tensor = 1 << between(random, 0, 2);
    strategy.stages.assign(static_cast<std::size_t>(strategy.pipeline), {0, tensor});
    strategy.nodes = {(strategy.gpus() + 7) / 8, 0};
    const auto gpus = place(strategy, Topology(roomy(), strategy.nodes));
    const std::string order(to_text(strategy.order));
    for (int stage = 0; stage < strategy.pipeline; ++stage) {
      for (int replica = 0; replica < strategy.data; ++replica) {
        for (int context = 0; context < strategy.context; ++context) {
          int rank = 0, stride = 1;
          for (std::size_t at = 0; at < order.size(); at += 3) {
            const std::string axis = order.substr(at, 2);
            const int size = axis == "tp"   ? tensor
                             : axis == "cp" ? strategy.context
                             : axis == "dp" ? strategy.data
                             : axis == "pp" ? strategy.pipeline
                                            : 1;
            const int index = axis == "cp" ? context : axis == "dp" ? replica : axis == "pp" ? stage : 0;
            rank += index * stride;
            stride *= size;
          }
          const std::vector<int>& lanes = gpus[static_cast<std::size_t>(replica * strategy.pipeline + stage)];
          INFO(order);
          REQUIRE(lanes[static_cast<std::size_t>(context * tensor)] == rank);
        }
      }
    }
  }
}

TEST_CASE("hosts move the ranks of whole nodes within their group") {
  ParallelStrategy strategy;
  strategy.pipeline = 3;
  strategy.stages = {{0, 8}, {0, 4}, {0, 4}};
  strategy.nodes = {3, 0};
  strategy.hosts = {2, 0, 1};
  REQUIRE_FALSE(hosts_obstacle(strategy));
  const auto gpus = place(strategy, Topology(roomy(), strategy.nodes));
  CHECK(gpus[0].front() == 16);
  CHECK(gpus[1].front() == 0);
  CHECK(gpus[2].front() == 4);
}

TEST_CASE("hosts that are no numbering of the nodes are named") {
  ParallelStrategy strategy;
  strategy.nodes = {2, 1};
  const auto obstacle = [&](std::vector<int> hosts) {
    strategy.hosts = std::move(hosts);
    return hosts_obstacle(strategy).value_or("none");
  };
  CHECK(obstacle({}) == "none");
  CHECK(obstacle({1, 0, 2}) == "none");
  CHECK(obstacle({1, 0}) == "hosts has 2 entries; the plan's nodes are 3");
  CHECK(obstacle({1, 3, 2}) == "host 3 in place of node 1 is not among the 3 nodes of the plan");
  CHECK(obstacle({1, 1, 2}) == "host 1 in place of node 1 stands for another node already");
  CHECK(obstacle({0, 2, 1}) == "host 2 in place of node 1 is of another node group");
}

// 4 replicas of 2 stages of 2 tensor ways on nodes of 8 GPUs. Default: the four members of a ring stand in
// one node, two rings side by side. tp-pp-dp: two members a node, from 4 rings.
TEST_CASE("a ring has as many neighbours in a node as the order leaves it") {
  ParallelStrategy strategy;
  strategy.pipeline = 2;
  strategy.data = 4;
  strategy.stages = {{0, 2}, {0, 2}};
  CHECK(ring_lanes(strategy, 0, 1, 8) == 2);
  strategy.order = RankOrder::cp_pp_dp;
  CHECK(ring_lanes(strategy, 0, 1, 8) == 4);
  // Every other replica: one member a node.
  CHECK(ring_lanes(strategy, 0, 2, 8) == 8);
  // Two context ranks of a replica side by side, the next replica behind its other stage, 8 GPUs on. Of every
  // other copy: one context rank of each replica; of every fourth: one of every other replica.
  strategy.context = 2;
  CHECK(ring_lanes(strategy, 0, 1, 8) == 4);
  CHECK(ring_lanes(strategy, 0, 2, 8) == 8);
  CHECK(ring_lanes(strategy, 0, 2, 16) == 8);
  CHECK(ring_lanes(strategy, 0, 4, 16) == 16);
}

// Nodes of 4 and 8 GPUs, of which three replicas hold 3 x 2 and 0, and the fourth 1 and 1.
TEST_CASE("nodes in use are those that ranks fill, whatever is rented") {
  ClusterSpec cluster;
  cluster.groups.resize(3);
  cluster.groups[0].gpus_per_node = 4;
  cluster.groups[1].gpus_per_node = 8;
  cluster.groups[2].gpus_per_node = 8;
  ParallelStrategy strategy;
  strategy.pipeline = 2;
  strategy.data = 4;
  strategy.stages = {{0, 1}, {0, 1}};
  strategy.nodes = {4, 4, 4};
  CHECK(gpus_in_use(strategy, cluster) == std::vector<std::int64_t>{8, 0, 0});
  strategy.replicas = {{3, {0, 0}, 1}, {1, {0, 1}, 1}};
  CHECK(gpus_in_use(strategy, cluster) == std::vector<std::int64_t>{7, 1, 0});
  CHECK(nodes_in_use(strategy, cluster) == std::vector<int>{2, 1, 0});
}

TEST_CASE("a strategy that does not fit its nodes is our mistake, not a silent overlap") {
  ParallelStrategy strategy;
  strategy.pipeline = 2;
  strategy.stages = {{0, 8}, {0, 8}};
  strategy.nodes = {1, 1};
  CHECK_THROWS_AS(place(strategy, Topology(roomy(), strategy.nodes)), Defect);
}

}  // namespace orrery
