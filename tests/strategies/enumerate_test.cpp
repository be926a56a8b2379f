#include "strategies/enumerate.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/catch.hpp"
#include "tests/strategies/plan_fixture.hpp"
#include "tests/strategies/random_schedule.hpp"

namespace orrery {
namespace {

using test::between;

using Runs = std::vector<std::pair<int, int>>;
// Tensor ways of each run, context, expert, data, runs, nodes: all that an allocation says.
using Key = std::tuple<std::vector<int>, int, int, int, Runs, std::vector<int>>;

Key key_of(const Allocation& a) {
  std::vector<int> tensors;
  for (const auto& [group, stages] : a.runs) tensors.push_back(a.ways().tensor_of(group));
  return {tensors, a.context, a.expert, a.data, a.runs, a.nodes};
}

std::vector<Allocation> allocations(const ClusterSpec& cluster, const SearchSpace& space, SearchMode mode,
                                    std::int64_t batch) {
  std::vector<Allocation> all;
  const std::vector<int> alike = groups_alike(cluster);
  for (const Ways& ways : all_ways(cluster, space, mode, batch)) {
    for_each_stage_counts(cluster, space, mode, ways, [&](const StageCounts& stages) {
      const std::vector<Allocation> found = orders(cluster, alike, ways, stages);
      REQUIRE(found.size() == order_count(alike, stages));
      all.insert(all.end(), found.begin(), found.end());
    });
  }
  return all;
}

// Another way round than the code: all orders of all groups, all counts of stages, thrown away where they do
// not fit.
class BruteForce {
 public:
  BruteForce(const ClusterSpec& cluster, const SearchSpace& space, SearchMode mode, std::int64_t batch)
      : cluster_(cluster), space_(space), mode_(mode) {
    for (int data = 1; data <= 64; ++data) {
      if (batch % data != 0) continue;
      for (const int context : space.context) {
        for (const int expert : space.expert) orders(context, expert, data);
      }
    }
  }
  std::set<Key> all;

 private:
  void orders(int context, int expert, int data) {
    std::vector<int> order(cluster_.groups.size());
    std::iota(order.begin(), order.end(), 0);
    do {
      Allocation empty{1, context, expert, data, {}, {}, {}};
      empty.tensors.assign(order.size(), 0);
      counts(empty, order, 0);
    } while (std::next_permutation(order.begin(), order.end()));
  }

  void counts(Allocation allocation, const std::vector<int>& order, std::size_t next) {
    if (next == order.size()) {
      finish(allocation);
      return;
    }
    counts(allocation, order, next + 1);
    for (int stages = 1; stages <= space_.most_stages; ++stages) {
      for (const int tensor : space_.tensor) {
        Allocation longer = allocation;
        longer.runs.emplace_back(order[next], stages);
        longer.tensors[static_cast<std::size_t>(order[next])] = tensor;
        counts(longer, order, next + 1);
      }
    }
  }

  void finish(Allocation allocation) {
    if (allocation.runs.empty() || allocation.stages() > space_.most_stages) return;
    const std::vector<int>& listed = space_.stages;
    if (!listed.empty() && std::count(listed.begin(), listed.end(), allocation.stages()) == 0) return;
    if (mode_ == SearchMode::homogeneous && allocation.runs.size() > 1) return;
    for (const auto& [group, stages] : allocation.runs) {
      const bool equal =
          allocation.ways().tensor_of(group) == allocation.ways().tensor_of(allocation.runs[0].first);
      if (!equal && !space_.tensor_by_group) return;
    }
    int all_gpus = 0;
    for (std::size_t group = 0; group < cluster_.groups.size(); ++group) {
      const NodeGroup& nodes = cluster_.groups[group];
      int gpus = 0;
      for (const auto& [of, stages] : allocation.runs) {
        if (of == static_cast<int>(group)) {
          gpus = stages * allocation.ways().tensor_of(of) * allocation.context * allocation.data;
        }
      }
      int used = nodes.count.minimum;
      while (used * nodes.gpus_per_node < gpus) ++used;
      if (used > nodes.count.maximum) return;
      if (gpus % nodes.gpus_per_node != 0) return;  // a GPU of a node would be idle
      all_gpus += gpus;
      allocation.nodes.push_back(used);
    }
    if (all_gpus > space_.most_gpus) return;
    all.insert(key_of(allocation));
  }

  const ClusterSpec& cluster_;
  const SearchSpace& space_;
  SearchMode mode_;
};

ClusterSpec random_cluster(std::mt19937& random) {
  ClusterSpec cluster;
  const int groups = between(random, 1, 3);
  for (int i = 0; i < groups; ++i) {
    NodeGroup group = test::node_group("g" + std::to_string(i), between(random, 1, 3));
    group.gpu.name = between(random, 0, 1) == 0 ? "one" : "other";
    group.gpus_per_node = 1 << between(random, 0, 2);
    group.count.minimum = between(random, 0, 1) * group.count.maximum;  // a range from 0, or fixed
    cluster.groups.push_back(group);
  }
  return cluster;
}

SearchSpace small_space(std::mt19937& random) {
  SearchSpace space;
  space.tensor = {1, 2, 3};
  space.context = {1, 2};
  space.expert = {1, 2};
  space.most_stages = between(random, 1, 4);
  if (space.most_stages > 1 && between(random, 0, 2) == 0) space.stages = {1, space.most_stages};
  space.tensor_by_group = between(random, 0, 3) > 0;
  if (between(random, 0, 2) == 0) space.most_gpus = between(random, 1, 12);
  return space;
}

std::string describe(const ClusterSpec& cluster, const SearchSpace& space, std::int64_t batch) {
  std::string text = "batch " + std::to_string(batch) + ", at most " + std::to_string(space.most_stages) +
                     " stages on " + std::to_string(space.most_gpus) + " GPUs";
  for (const NodeGroup& group : cluster.groups) {
    text += "; " + std::to_string(group.count.minimum) + ".." + std::to_string(group.count.maximum) +
            " nodes of " + std::to_string(group.gpus_per_node);
  }
  return text;
}

// The first of what a plan becomes where groups are given each other's stages that differ in nothing but
// their names.
Key first_image(const Key& key, const ClusterSpec& cluster) {
  std::vector<int> becomes(cluster.groups.size());
  std::iota(becomes.begin(), becomes.end(), 0);
  Key first = key;
  do {
    Key image = key;
    bool alike = true;
    for (std::size_t group = 0; group < becomes.size(); ++group) {
      const auto to = static_cast<std::size_t>(becomes[group]);
      const NodeGroup &a = cluster.groups[group], &b = cluster.groups[to];
      alike = alike && a.gpu == b.gpu && a.count == b.count && a.gpus_per_node == b.gpus_per_node;
      std::get<5>(image)[to] = std::get<5>(key)[group];
    }
    for (auto& [group, stages] : std::get<4>(image)) group = becomes[static_cast<std::size_t>(group)];
    if (alike) first = std::min(first, image);
  } while (std::next_permutation(becomes.begin(), becomes.end()));
  return first;
}

std::set<Key> first_images(const std::set<Key>& keys, const ClusterSpec& cluster) {
  std::set<Key> images;
  for (const Key& key : keys) images.insert(first_image(key, cluster));
  return images;
}

std::vector<Key> keys_of(const std::vector<Allocation>& allocations) {
  std::vector<Key> keys;
  for (const Allocation& allocation : allocations) keys.push_back(key_of(allocation));
  return keys;
}

}  // namespace

TEST_CASE("allocations are all there are, each once and without mirror images") {
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const ClusterSpec cluster = random_cluster(random);
    const SearchSpace space = small_space(random);
    const std::int64_t batch = between(random, 1, 12);
    INFO(describe(cluster, space, batch));
    for (const SearchMode mode : {SearchMode::homogeneous, SearchMode::heterogeneous, SearchMode::cost}) {
      const std::vector<Key> keys = keys_of(allocations(cluster, space, mode, batch));
      const std::set<Key> found(keys.begin(), keys.end());
      REQUIRE(found.size() == keys.size());
      const std::set<Key> all = BruteForce(cluster, space, mode, batch).all;
      REQUIRE(std::includes(all.begin(), all.end(), found.begin(), found.end()));
      const std::set<Key> images = first_images(found, cluster);
      REQUIRE(images.size() == found.size());
      REQUIRE(images == first_images(all, cluster));
      REQUIRE(keys_of(allocations(cluster, space, mode, batch)) == keys);
    }
  }
}

// Two kinds of one node of one GPU, one stage a GPU, no data parallelism.
TEST_CASE("allocations on two GPUs, one of each kind, in their order") {
  ClusterSpec cluster = test::two_kinds();
  for (NodeGroup& group : cluster.groups) {
    group.count = {0, 1};
    group.gpus_per_node = 1;
  }
  SearchSpace space;
  space.tensor = space.context = {1};
  space.most_stages = 2;
  const auto runs = [&](SearchMode mode) {
    std::vector<Runs> all;
    for (const Allocation& allocation : allocations(cluster, space, mode, 1)) all.push_back(allocation.runs);
    return all;
  };
  CHECK(runs(SearchMode::heterogeneous) ==
        std::vector<Runs>{{{1, 1}}, {{0, 1}}, {{0, 1}, {1, 1}}, {{1, 1}, {0, 1}}});
  CHECK(runs(SearchMode::homogeneous) == std::vector<Runs>{{{1, 1}}, {{0, 1}}});
}

// P stages on G kinds: C(P + G - 1, G - 1) ways to share them out. With k kinds in a row and at least one
// stage each: C(G, k) C(P - 1, k - 1) ways, in k! orders; stages of any kind in any order would be G^P. Two
// kinds and 8 stages: 2 + 7 x 2 = 16 of 256; three kinds and 4: 3 + 3 x 3 x 2 + 3 x 6 = 39 of 81. Of kinds
// that are alike only the lengths of the rows tell plans apart, C(P - 1, k - 1) of them: 1 + 7 = 8; 1 + 3 + 3
// = 7.
TEST_CASE("kinds in a row make as many allocations as the formula says") {
  struct Row {
    int kinds, stages;
    std::size_t shares, allocations, without_images;
  };
  const auto row = GENERATE(values<Row>({{2, 8, 9, 16, 8}, {3, 4, 15, 39, 7}}));
  ClusterSpec cluster;
  for (int i = 0; i < row.kinds; ++i) {
    cluster.groups.push_back(test::node_group("g" + std::to_string(i), row.stages));
    cluster.groups.back().gpu.name = "gpu";
    cluster.groups.back().gpus_per_node = 1;
    cluster.groups.back().count.minimum = 0;
  }
  SearchSpace space;
  space.most_stages = row.stages;
  const std::vector<int> unlike(cluster.groups.size(), -1), alike = groups_alike(cluster);
  std::size_t shares = 0, allocations = 0, without_images = 0;
  for_each_stage_counts(cluster, space, SearchMode::heterogeneous, {}, [&](const StageCounts& stages) {
    if (std::accumulate(stages.begin(), stages.end(), 0) != row.stages) return;
    ++shares;
    allocations += orders(cluster, unlike, {}, stages).size();
    without_images += orders(cluster, alike, {}, stages).size();
  });
  CHECK(shares == row.shares);
  CHECK(allocations == row.allocations);
  CHECK(without_images == row.without_images);
}

TEST_CASE("groups are alike whose nodes, prices and ways to all others are the same") {
  using Alike = std::vector<int>;
  ClusterSpec cluster;
  for (const char* name : {"a", "b", "c"}) {
    cluster.groups.push_back(test::node_group(name, 2));
    cluster.groups.back().gpu.name = "gpu";
    cluster.groups.back().region = std::string("of ") + name;
  }
  const LinkSpec near{gigabits_per_second(100), milliseconds(1)},
      far{gigabits_per_second(10), milliseconds(60)};
  cluster.fabric.regions = {{"of a", "of b", near}, {"of a", "of c", far}, {"of b", "of c", far}};
  CHECK(groups_alike(cluster) == Alike{-1, 0, -1});
  cluster.fabric.regions[0].link = far;
  CHECK(groups_alike(cluster) == Alike{-1, 0, 1});
  SECTION("traffic between a and c at a price: b lies nearer to either than they to each other") {
    cluster.fabric.regions[1].price = DollarsPerGigabyte(0.02);
    CHECK(groups_alike(cluster) == Alike{-1, -1, 0});
  }
  SECTION("another price of a node") {
    cluster.groups[1].price = DollarsPerHour(7);
    CHECK(groups_alike(cluster) == Alike{-1, -1, 0});
  }
  SECTION("two in one region, which the third is not") {
    cluster.groups[1].region = "of a";
    cluster.fabric.regions = {{"of a", "of c", far}};
    CHECK(groups_alike(cluster) == Alike{-1, 0, -1});
  }
  SECTION("leaves that groups may share") {
    cluster.fabric.nodes_per_leaf = 3;
    CHECK(groups_alike(cluster) == Alike{-1, -1, -1});
  }
  SECTION("a link that is named") {
    cluster.links = {{.name = "a.*", .factor = 0.5}};
    CHECK(groups_alike(cluster) == Alike{-1, -1, -1});
  }
}

// Layouts in the sense of Astra (arXiv 2502.13480): kinds in one given order, all stages of a kind with as
// many layers, so that sum(stages of kind x layers of its stages) is the model. Two kinds, 8 stages, 32
// layers:
//
//   one kind alone: 8 stages of 4 layers, twice                                                          2
//   m and 8 - m stages with a and b layers each, m a + (8 - m) b = 32, a and b at least 1:
//     m = 1 or 7:  a + 7 b = 32   b = 1 .. 4                                                         2 x 4
//     m = 2 or 6:  a + 3 b = 16   b = 1 .. 5                                                         2 x 5
//     m = 3 or 5:  3 a + 5 b = 32 (a, b) = (4, 4), (9, 1)                                            2 x 2
//     m = 4:       a + b = 8      b = 1 .. 7                                                             7
//                                                                                                       31
//
// Without groups every stage has any kind and any layers: 2^8 x C(31, 7) = 256 x 2,629,575 = 673,171,200.
TEST_CASE("two kinds, 8 stages, 32 layers: 31 grouped layouts of 673,171,200 free ones") {
  constexpr int kStages = 8, kLayers = 32;
  ClusterSpec cluster;
  for (const char* name : {"a", "b"}) {
    cluster.groups.push_back(test::node_group(name, kStages));
    cluster.groups.back().gpus_per_node = 1;
    cluster.groups.back().count.minimum = 0;
  }
  SearchSpace space;
  space.most_stages = kStages;
  std::size_t grouped = 0;
  for_each_stage_counts(cluster, space, SearchMode::heterogeneous, {}, [&](const StageCounts& stages) {
    if (stages[0] + stages[1] != kStages) return;
    for (int a = stages[0] > 0 ? 1 : 0; a <= (stages[0] > 0 ? kLayers : 0); ++a) {
      const int left = kLayers - stages[0] * a;
      grouped += stages[1] == 0 ? left == 0 : left > 0 && left % stages[1] == 0;
    }
  });
  CHECK(grouped == 31);
  // Free layouts, stage by stage: [layers given out] of the stages so far.
  std::vector<std::size_t> layouts(kLayers + 1, 0);
  layouts.front() = 1;
  for (int stage = 0; stage < kStages; ++stage) {
    std::vector<std::size_t> next(layouts.size(), 0);
    for (std::size_t before = 0; before < layouts.size(); ++before)
      for (std::size_t after = before + 1; after < layouts.size(); ++after)
        next[after] += 2 * layouts[before];
    layouts = next;
  }
  CHECK(layouts.back() == 673'171'200);
}

TEST_CASE("a group with a fixed count is paid for even where it is not used") {
  ClusterSpec cluster = test::two_kinds();
  cluster.groups[0].count = {4, 4};
  SearchSpace space;
  space.tensor = {8};
  space.context = {1};
  space.most_stages = 2;
  for (const Allocation& allocation : allocations(cluster, space, SearchMode::heterogeneous, 1)) {
    CHECK(allocation.nodes[0] == 4);
    int slow = 0;
    for (const auto& [group, stages] : allocation.runs) slow += group == 1 ? stages : 0;
    CHECK(allocation.nodes[1] == slow);  // 8 ways fill a node
  }
}

TEST_CASE("ways beyond every cluster make no allocation") {
  SearchSpace space;
  space.tensor = {65'536};
  space.context = {65'536};  // 2^32 together: more than 32 bits count
  CHECK(allocations(test::two_kinds(), space, SearchMode::heterogeneous, 64).empty());
}

}  // namespace orrery
