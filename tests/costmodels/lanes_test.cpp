// Which tensor ranks must be played: one where all do the same on links of their own.
#include <numeric>

#include "costmodels/plans/folding.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/flat_cluster.hpp"

namespace orrery {
namespace {

struct Ways {
  int stages = 1;
  int replicas = 1;
  int context = 1;
  int tensor = 1;
};

// GPUs in order: all replicas of the first stage, then of the next.
PricedPlan plan_of(const Ways& ways) {
  PricedPlan plan;
  plan.schedule.ranks = ways.stages;
  plan.replicas = ways.replicas;
  plan.context = ways.context;
  const int lanes = ways.context * ways.tensor;
  plan.gpus.resize(static_cast<std::size_t>(ways.replicas * ways.stages));
  for (int replica = 0; replica < ways.replicas; ++replica) {
    for (int stage = 0; stage < ways.stages; ++stage) {
      std::vector<int>& gpus = plan.gpus[static_cast<std::size_t>(replica * ways.stages + stage)];
      gpus.resize(static_cast<std::size_t>(lanes));
      std::iota(gpus.begin(), gpus.end(), (stage * ways.replicas + replica) * lanes);
    }
  }
  return plan;
}

using Lanes = std::vector<int>;

}  // namespace

TEST_CASE("with a NIC for every GPU one tensor rank stands for all") {
  const Topology topology = test::flat_topology({.nodes = 4, .gpus_per_node = 8, .nics_per_node = 8});
  CHECK(lanes_to_play(plan_of({.stages = 4, .tensor = 8}), topology) == Lanes{0});
  CHECK(lanes_to_play(plan_of({.stages = 2, .replicas = 4, .tensor = 4}), topology) == Lanes{0});
  CHECK(lanes_to_play(plan_of({.stages = 1, .replicas = 4, .tensor = 8}), topology) == Lanes{0});
}

TEST_CASE("every context rank is played, of the first tensor rank where that stands for all") {
  const Topology topology = test::flat_topology({.nodes = 2, .gpus_per_node = 8, .nics_per_node = 8});
  CHECK(lanes_to_play(plan_of({.stages = 2, .context = 2, .tensor = 4}), topology) == Lanes{0, 4});
  CHECK(lanes_to_play(plan_of({.stages = 2, .context = 4, .tensor = 1}), topology) == Lanes{0, 1, 2, 3});
}

TEST_CASE("context ranks with links of their own stand for those that lie alike in their nodes") {
  const auto period = [](const Ways& ways, int nics) {
    const int nodes = ways.stages * ways.replicas * ways.context * ways.tensor / 8;
    const Topology topology =
        test::flat_topology({.nodes = nodes, .gpus_per_node = 8, .nics_per_node = nics});
    const PricedPlan plan = plan_of(ways);
    return context_period(plan, topology, folding_period(plan, topology), lanes_to_play(plan, topology));
  };
  // A context rank fills a node: all hops of its rings go to the next node.
  CHECK(period({.stages = 2, .context = 4, .tensor = 8}, 8) == 1);
  CHECK(period({.stages = 2, .replicas = 2, .context = 4, .tensor = 8}, 8) == 1);
  // Two in a node: each sends to the other, and to the one of its place in the next node.
  CHECK(period({.stages = 2, .context = 4, .tensor = 4}, 8) == 1);
  CHECK(period({.stages = 2, .context = 6, .tensor = 2}, 8) == 6);  // four in one node, two in the next
  CHECK(period({.stages = 2, .context = 4, .tensor = 8}, 4) == 4);  // shared NICs
}

TEST_CASE("context ranks of a stage on two kinds of GPUs, or out of place, are all played") {
  const Topology topology = test::flat_topology({.nodes = 8, .gpus_per_node = 8, .nics_per_node = 8});
  PricedPlan plan = plan_of({.stages = 2, .context = 4, .tensor = 8});
  CHECK(context_period(plan, topology, 1, {0, 8, 16, 24}) == 1);
  std::swap(plan.gpus[0][0], plan.gpus[1][0]);  // still a node each
  CHECK(context_period(plan, topology, 1, {0, 8, 16, 24}) == 1);
  std::swap(plan.gpus[0][0], plan.gpus[0][9]);  // tensor rank 0 of two context ranks in one node
  CHECK(context_period(plan, topology, 1, {0, 8, 16, 24}) == 4);
}

TEST_CASE("tensor ranks that share a NIC are all played") {
  for (const int nics : {1, 2, 4}) {
    const Topology topology = test::flat_topology({.nodes = 2, .gpus_per_node = 8, .nics_per_node = nics});
    CHECK(lanes_to_play(plan_of({.stages = 2, .tensor = 8}), topology) == Lanes{0, 1, 2, 3, 4, 5, 6, 7});
  }
}

TEST_CASE("inside a node nothing is shared: one tensor rank stands for all") {
  const Topology topology = test::flat_topology({.nodes = 1, .gpus_per_node = 8, .nics_per_node = 1});
  CHECK(lanes_to_play(plan_of({.stages = 2, .replicas = 2, .tensor = 2}), topology) == Lanes{0});
}

TEST_CASE("tensor ranks that share the uplink of a leaf are all played") {
  ClusterSpec cluster = test::flat_cluster({.nodes = 4, .gpus_per_node = 2, .nics_per_node = 2});
  cluster.fabric.nodes_per_leaf = 2;
  cluster.fabric.oversubscription = 4;
  const Topology topology(cluster, {4});
  CHECK(lanes_to_play(plan_of({.stages = 4, .tensor = 2}), topology) == Lanes{0, 1});
  // Below one leaf they have links of their own.
  CHECK(lanes_to_play(plan_of({.stages = 2, .tensor = 2}), topology) == Lanes{0});
}

// A ring over nodes uses the NIC of every member, not only of those at the ends of a node. Here rank 0 passes
// 0-2-4-6 and rank 1 passes 3-1-7-5; GPUs 2 and 3 share a NIC.
TEST_CASE("tensor ranks whose rings share a NIC in the middle of a node are all played") {
  const Topology topology = test::flat_topology({.nodes = 2, .gpus_per_node = 4, .nics_per_node = 2});
  PricedPlan plan = plan_of({.stages = 1, .replicas = 4, .tensor = 2});
  plan.gpus = {{0, 3}, {2, 1}, {4, 7}, {6, 5}};
  CHECK(lanes_to_play(plan, topology) == Lanes{0, 1});
}

// Lane 0 has a NIC for each replica (GPUs 4 and 6); lane 1 has one for both (GPUs 0 and 1), and is the
// slower.
TEST_CASE("tensor ranks that share links among their own messages differently are all played") {
  const Topology topology = test::flat_topology({.nodes = 2, .gpus_per_node = 8, .nics_per_node = 4});
  PricedPlan plan = plan_of({.stages = 2, .replicas = 2, .tensor = 2});
  plan.gpus = {{4, 0}, {12, 8}, {6, 1}, {14, 9}};
  CHECK(lanes_to_play(plan, topology) == Lanes{0, 1});
}

}  // namespace orrery
