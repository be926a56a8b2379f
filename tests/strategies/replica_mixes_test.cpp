// Mixes of replicas on unlike GPUs: all there are, each once, and what they become.
#include "strategies/replica_mixes.hpp"

#include <set>

#include "strategies/plan.hpp"
#include "tests/catch.hpp"
#include "tests/strategies/plan_fixture.hpp"

namespace orrery {
namespace {

// tensor, context, stages, replicas of each group
using Key = std::tuple<int, int, int, std::vector<int>>;

ClusterSpec cluster_of(int a_nodes, int a_gpus, int b_nodes, int b_gpus) {
  ClusterSpec cluster = test::two_kinds();
  cluster.groups[0].count = {0, a_nodes};
  cluster.groups[0].gpus_per_node = a_gpus;
  cluster.groups[1].count = {b_nodes, b_nodes};
  cluster.groups[1].gpus_per_node = b_gpus;
  return cluster;
}

SearchSpace small_space() {
  SearchSpace space;
  space.tensor = {1, 2};
  space.context = {1, 2};
  space.most_stages = 3;
  return space;
}

}  // namespace

TEST_CASE("mixes of replicas are all there are, each once") {
  const auto [a_nodes, a_gpus, b_nodes, b_gpus, batch] =
      GENERATE(table<int, int, int, int, int>({{1, 2, 1, 2, 8}, {2, 4, 1, 2, 3}, {3, 2, 2, 4, 16}}));
  const ClusterSpec cluster = cluster_of(a_nodes, a_gpus, b_nodes, b_gpus);
  const SearchSpace space = small_space();
  std::set<Key> expected;
  for (const int tensor : space.tensor) {
    for (const int context : space.context) {
      for (int stages = 1; stages <= 3; ++stages) {
        const int size = tensor * context * stages;
        for (int a = 1; a * size <= a_nodes * a_gpus; ++a) {
          for (int b = 1; b * size <= b_nodes * b_gpus; ++b) {
            const bool full = a * size % a_gpus == 0 && b * size % b_gpus == 0;
            if (full && a + b <= batch) expected.insert({tensor, context, stages, {a, b}});
          }
        }
      }
    }
  }
  std::set<Key> found;
  for (const ReplicaMix& mix : replica_mixes(cluster, space, SearchMode::heterogeneous, batch)) {
    CHECK(mix.ways.data == mix.replicas[0] + mix.replicas[1]);
    CHECK(mix.nodes ==
          std::vector<int>{mix.replicas[0] * mix.ways.tensor * mix.ways.context * mix.stages / a_gpus,
                           b_nodes});
    REQUIRE(found.insert({mix.ways.tensor, mix.ways.context, mix.stages, mix.replicas}).second);
  }
  CHECK(found == expected);
  CHECK(replica_mixes(cluster, space, SearchMode::homogeneous, batch).empty());
}

TEST_CASE("of two groups that differ in their names alone the first has no fewer replicas") {
  ClusterSpec cluster = cluster_of(3, 1, 3, 1);
  cluster.groups[1].gpu = cluster.groups[0].gpu;
  cluster.groups[1].count = cluster.groups[0].count;
  SearchSpace space = small_space();
  space.tensor = space.context = space.stages = {1};
  std::set<std::vector<int>> replicas;
  for (const ReplicaMix& mix : replica_mixes(cluster, space, SearchMode::heterogeneous, 64))
    replicas.insert(mix.replicas);
  CHECK(replicas == std::set<std::vector<int>>{{1, 1}, {2, 1}, {2, 2}, {3, 1}, {3, 2}, {3, 3}});
}

// 16 nodes of 4 GPUs hold 64 replicas of one GPU, in steps of 4: sixteen counts, of which the most is tried.
// Of 64 such nodes none: that is more than 256 GPUs.
TEST_CASE("of many counts of replicas the most is tried") {
  SearchSpace space = small_space();
  space.tensor = space.context = {1};
  space.most_stages = 1;
  std::vector<std::vector<int>> replicas;
  for (const ReplicaMix& mix : replica_mixes(cluster_of(16, 4, 2, 4), space, SearchMode::heterogeneous, 1024))
    replicas.push_back(mix.replicas);
  CHECK(replicas == std::vector<std::vector<int>>{{64, 4}, {64, 8}});
  CHECK(replica_mixes(cluster_of(64, 4, 2, 4), space, SearchMode::heterogeneous, 1024).empty());
}

TEST_CASE("a mix becomes a plan with open shares that has a shape once its layers are split") {
  const ClusterSpec cluster = cluster_of(1, 2, 1, 2);
  const ModelSpec model = read_model("gpt2-345m");
  ReplicaMix mix{{1, 1, 1, 2, {}}, 2, {1, 1}, {1, 1}};
  Setting setting;
  REQUIRE(!mix_obstacle(model, cluster, mix, setting, 7, 1024));
  ParallelStrategy strategy = strategy_of(mix, setting, 7, 1024, DataType::bf16);
  CHECK(strategy.shares_open());
  CHECK(strategy.gpus() == 4);
  strategy.parts = {{0, 12}, {12, 12}};
  CHECK(!check_shape(model, strategy, cluster));
  CHECK(mix_obstacle(model, cluster, mix, setting, 1, 1024) == "more replicas than microbatches");
  setting.chunks = 2;
  CHECK(mix_obstacle(model, cluster, mix, setting, 7, 1024) == "virtual stages with unlike replicas");
}

}  // namespace orrery
