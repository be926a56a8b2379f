#include "costmodels/collectives/collective_choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "costmodels/collectives/collective_bound.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/collective_fixture.hpp"

using namespace orrery;

namespace {

constexpr std::uint32_t kSeeds = 300;
constexpr auto kRing = CollectiveAlgorithm::ring;
constexpr auto kTree = CollectiveAlgorithm::double_binary_tree;
constexpr auto kHierarchical = CollectiveAlgorithm::hierarchical;

Seconds all_reduce_time(const Topology& topology, CollectiveAlgorithm algorithm, double bytes) {
  return time_alone(
      topology,
      collective_flows(
          topology,
          {CollectiveKind::all_reduce, algorithm, Bytes(bytes), {}, gpus_from(0, topology.gpus())}));
}

// Wires carry whole bytes: each flow may be half a byte short.
double rounding(const Topology& topology, const std::vector<FlowPhase>& phases) {
  double narrowest = INFINITY;
  for (const TopologyLink& link : topology.links())
    narrowest = std::min(narrowest, link.spec.bandwidth.value());
  std::size_t flows = 0;
  for (const FlowPhase& phase : phases) flows += phase.flows.size();
  return 0.5 * static_cast<double>(flows) / narrowest;
}

Collective question(int nodes, int ranks_per_node, double bytes) {
  Collective op;
  op.bytes = Bytes(bytes);
  op.ranks = nodes * ranks_per_node;
  op.ranks_per_node = ranks_per_node;
  op.gpu_link = {gigabytes_per_second(300), microseconds(1)};
  op.network = {gigabytes_per_second(25), microseconds(2)};
  return op;
}

}  // namespace

TEST_CASE("no algorithm beats the bound, whoever the members are") {
  const auto contention = GENERATE(Contention::shared, Contention::ideal);
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    const RandomGroup group = random_group(seed, seed % 3 == 0 ? Spread::even : Spread::any, contention);
    INFO(group.text);
    const auto check = [&](Seconds least, const std::vector<FlowPhase>& phases) {
      const double time = time_alone(group.topology, phases).value();
      CHECK(time >= least.value() * (1 - 1e-9) - rounding(group.topology, phases));
    };
    for (const CollectiveCall& call : every_call(group)) {
      INFO(name_of(call));
      check(least_time(group.topology, call), collective_flows(group.topology, call));
    }
    for (const BroadcastCall& call : every_broadcast(group)) {
      INFO("broadcast " << to_text(*call.algorithm));
      check(least_time(group.topology, call), broadcast_flows(group.topology, call));
    }
  }
}

TEST_CASE("on one switch with equal links the bound is the textbook's and a ring takes no more but latency") {
  const int n = GENERATE(2, 3, 5, 7, 8, 13, 16);
  const bool one_node = GENERATE(true, false);
  const Topology topology = equal_nodes({.nodes = one_node ? 1 : n, .gpus = one_node ? n : 1});
  const LinkSpec path = topology.path(0, 1);
  // A hundred million bytes for each member, so that no share is rounded.
  const Bytes bytes(1e8 * n);
  struct Row {
    CollectiveKind kind;
    int rounds;
  };
  for (const Row row : {Row{CollectiveKind::all_reduce, 2}, Row{CollectiveKind::reduce_scatter, 1},
                        Row{CollectiveKind::all_gather, 1}}) {
    const int steps = row.rounds * (n - 1);
    const double transfer = steps * 1e8 / path.bandwidth.value();
    const CollectiveCall call{row.kind, kRing, bytes, {}, gpus_from(0, n)};
    CHECK(least_time(topology, call).value() == Approx(transfer + path.latency.value()));
    CHECK(time_alone(topology, collective_flows(topology, call)).value() ==
          Approx(transfer + steps * path.latency.value()));
  }
  const CollectiveCall exchange{CollectiveKind::all_to_all, {}, bytes, {}, gpus_from(0, n)};
  const double transfer = (n - 1) * 1e8 / path.bandwidth.value();
  CHECK(least_time(topology, exchange).value() == Approx(transfer + path.latency.value()));
  CHECK(time_alone(topology, collective_flows(topology, exchange)).value() ==
        Approx(transfer + path.latency.value()));
  const BroadcastCall broadcast{{}, bytes, {}, gpus_from(0, n)};
  CHECK(least_time(topology, broadcast).value() ==
        Approx(n * 1e8 / path.bandwidth.value() + path.latency.value()));
  CHECK(time_alone(topology, broadcast_flows(topology, broadcast)).value() ==
        Approx(n * 1e8 / path.bandwidth.value() + (n - 1) * path.latency.value()));
}

TEST_CASE("64 ranks of one GPU, 64 MiB at 50 GiB/s: an all-reduce takes at least 2.46 ms") {
  // SEMANTICS 4: 2 * 63/64 * 64 MiB / 50 GiB/s = 2.4609 ms, which a well-known simulator undercuts (1.766
  // ms).
  const LinkSpec nic{BytesPerSecond(50 * kGibi), Seconds(0)};
  const Topology topology = equal_nodes({.nodes = 64, .gpus = 1, .nic = nic});
  const auto algorithm = GENERATE(kRing, kTree, kHierarchical, CollectiveAlgorithm::direct);
  const CollectiveCall call{CollectiveKind::all_reduce, algorithm, Bytes(64 * kMebi), {}, gpus_from(0, 64)};
  CHECK(least_time(topology, call).value() == Approx(2.4609375e-3));
  CHECK(all_reduce_time(topology, algorithm, 64 * kMebi).value() >= 2.4609374e-3);
}

TEST_CASE("the bound knows NICs that members share, leaves and regions") {
  // Two nodes of four GPUs on one NIC of 25 GB/s: all that the other node has, 4 GB, comes through one NIC.
  const Topology shared = equal_nodes({.nodes = 2, .gpus = 4});
  const CollectiveCall gather{CollectiveKind::all_gather, {}, Bytes(8e9), {}, gpus_from(0, 8)};
  CHECK(least_time(shared, gather).value() == Approx(4.0 / 25 + 4e-6));
  // All-to-all: four members each send half of 8 GB to the other node: 16 GB.
  const CollectiveCall exchange{CollectiveKind::all_to_all, {}, Bytes(8e9), {}, gpus_from(0, 8)};
  CHECK(least_time(shared, exchange).value() == Approx(16.0 / 25 + 4e-6));

  // Four nodes, two to a leaf with an uplink of 2 * 25 / 5 = 10 GB/s: 8 GB of an all-reduce into each leaf.
  ClusterSpec cluster = equal_nodes({.nodes = 4, .gpus = 1}).cluster();
  cluster.fabric.nodes_per_leaf = 2;
  cluster.fabric.oversubscription = 5;
  const CollectiveCall reduce{CollectiveKind::all_reduce, {}, Bytes(8e9), {}, gpus_from(0, 4)};
  CHECK(least_time(Topology(cluster, {4}), reduce).value() == Approx(8.0 / 10 + 4e-6));

  // One node a leaf and 25 / 5 = 5 GB/s: two thirds of an all-gather's 6 GB come into each of three leaves.
  cluster.fabric.nodes_per_leaf = 1;
  const CollectiveCall gather_leaves{CollectiveKind::all_gather, {}, Bytes(6e9), {}, gpus_from(0, 3)};
  CHECK(least_time(Topology(cluster, {3}), gather_leaves).value() == Approx(4.0 / 5 + 4e-6));
  cluster.fabric.nodes_per_leaf = 2;

  // Two regions joined by 1 GB/s and 20 ms: the whole vector crosses.
  cluster.groups.push_back(cluster.groups[0]);
  cluster.groups[1].name = "far";
  cluster.groups[1].region = "far";
  cluster.fabric.regions = {{"default", "far", {gigabytes_per_second(1), milliseconds(20)}}};
  CHECK(least_time(Topology(cluster, {2, 2}), reduce).value() == Approx(8.0 + 20e-3 + 4e-6));
}

TEST_CASE("a tree's latency grows with the logarithm of the nodes, a ring's with their number") {
  // Hops of 4 us (two NICs); a byte takes next to nothing. Depth of NCCL's tree over 2^k nodes: k.
  for (int doublings = 1; doublings <= 8; ++doublings) {
    const int n = 1 << doublings;
    const Topology topology = equal_nodes({.nodes = n, .gpus = 1});
    CHECK(all_reduce_time(topology, kTree, 8).value() == Approx(2 * doublings * 4e-6).epsilon(1e-3));
    CHECK(all_reduce_time(topology, kRing, 8).value() == Approx(2 * (n - 1) * 4e-6).epsilon(1e-3));
    if (n > 2) CHECK(all_reduce_time(topology, kTree, 1024) < all_reduce_time(topology, kRing, 1024));
  }
}

TEST_CASE("chains inside nodes add their hops to a tree's latency") {
  // Eight GPUs a node: 7 hops of 2 us up and down; 4 nodes: 2 hops of 4 us up and down.
  const Topology topology = equal_nodes({.nodes = 4, .gpus = 8, .nics = 8});
  CHECK(all_reduce_time(topology, kTree, 8).value() == Approx(2 * (7 * 2e-6 + 2 * 4e-6)).epsilon(1e-3));
}

TEST_CASE("a large tree all-reduce takes little more than the bound") {
  // Every node but roots and leaves of both trees moves 2 x bytes through its NICs, the bound is 2 (n-1)/n.
  const int nodes = GENERATE(2, 4, 7, 16, 31);
  const Topology topology = equal_nodes({.nodes = nodes, .gpus = 4, .nics = 4});
  const CollectiveCall call{CollectiveKind::all_reduce, kTree, Bytes(4e9), {}, gpus_from(0, 4 * nodes)};
  const double least = least_time(topology, call).value();
  CHECK(time_alone(topology, collective_flows(topology, call)).value() <=
        least * nodes / (nodes - 1) * (1 + 1e-2));
}

TEST_CASE("the hierarchy beats a flat ring where members of a node share a slow NIC") {
  // A NIC carries 2 (n-1)/n of the vector of a ring, 2 (N-1)/N of the hierarchy: of 2 nodes with 8 GPUs 1.875
  // and 1.
  const int nodes = GENERATE(2, 3, 4, 8);
  const int gpus = GENERATE(4, 8);
  const double bytes = GENERATE(1e3, 1e6, 1e9);
  const Topology topology = equal_nodes({.nodes = nodes, .gpus = gpus, .nics = 1});
  CHECK(all_reduce_time(topology, kHierarchical, bytes) < all_reduce_time(topology, kRing, bytes));
}

TEST_CASE("NCCL's choice: direct for all-to-all, rings for halves of an all-reduce") {
  Collective op = question(4, 8, 1e6);
  op.kind = CollectiveKind::all_to_all;
  CHECK(nccl_choice(op) == CollectiveAlgorithm::direct);
  op.kind = CollectiveKind::reduce_scatter;
  CHECK(nccl_choice(op) == kRing);
  op.kind = CollectiveKind::all_gather;
  CHECK(nccl_choice(op) == kRing);
}

TEST_CASE("NCCL's choice for an all-reduce over nodes: tree up to some size, ring from there on") {
  // The size grows with the nodes, since the latency of a ring does.
  double before = 0;
  for (const int nodes : {2, 4, 8, 16, 32, 64}) {
    double last_tree = 0, first_ring = 0;
    for (double bytes = 64; bytes < 1e12; bytes *= 2) {
      (nccl_choice(question(nodes, 8, bytes)) == kTree ? last_tree : first_ring) = bytes;
      if (first_ring > 0) break;
    }
    INFO(nodes << " nodes: tree up to " << last_tree);
    CHECK(last_tree > 1e5);
    CHECK(last_tree >= before);
    CHECK(nccl_choice(question(nodes, 8, 1e12)) == kRing);
    before = last_tree;
  }
}

TEST_CASE("NCCL's choice agrees with its own model at these sizes") {
  // Evaluated by hand from ncclTopoTuneModel and ncclTopoGetAlgoTime with the table of tree corrections: 300
  // GB/s NVLink, 25 GB/s a GPU, eight GPUs a node unless stated; two sizes away from each crossing.
  struct Row {
    int nodes, ranks_per_node;
    double bytes;
    CollectiveAlgorithm expected;
  };
  const auto row = GENERATE(values<Row>({
      {1, 8, 1e4, kRing},
      {1, 8, 1e9, kRing},
      {2, 8, 1 << 21, kTree},
      {2, 8, 1 << 26, kRing},
      {4, 8, 1 << 22, kTree},
      {4, 8, 1 << 28, kRing},
      {32, 8, 1 << 28, kTree},
      {32, 8, 17e9, kRing},
      {8, 8, 1 << 29, kTree},  // larger than some rings': the correction of trees ends at 512 MiB
      {8, 1, 1 << 17, kTree},
      {8, 1, 1 << 23, kRing},
      {2, 2, 1e4, kRing},
  }));
  INFO(row.nodes << " nodes of " << row.ranks_per_node << ", " << row.bytes << " bytes");
  CHECK(nccl_choice(question(row.nodes, row.ranks_per_node, row.bytes)) == row.expected);
}

TEST_CASE("a call without an algorithm takes NCCL's") {
  const Topology topology = equal_nodes({.nodes = 8, .gpus = 8, .nics = 8});
  for (const double bytes : {1e4, 1e7, 1e10}) {
    CollectiveCall call{CollectiveKind::all_reduce, {}, Bytes(bytes), {}, gpus_from(0, 64)};
    const auto chosen = collective_flows(topology, call);
    call.algorithm = nccl_choice(topology, call);
    const auto named = collective_flows(topology, call);
    CHECK(time_alone(topology, chosen) == time_alone(topology, named));
    CHECK(nccl_choice(topology, call) == (bytes < 1e9 ? kTree : kRing));
  }
}

TEST_CASE("the gates of leaves and regions lie on the routes that cross them") {
  int leaves = 0, regions = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const RandomGroup group = random_group(seed, Spread::any, Contention::shared);
    INFO(group.text);
    const Topology& topology = group.topology;
    const auto crosses = [&](int from, int to, int link) {
      const Route route = topology.route(from, to);
      return std::count(route.links.begin(), route.links.begin() + route.count, link) == 1;
    };
    for (const int from : group.gpus) {
      for (const int to : group.gpus) {
        if (!topology.same_leaf(from, to)) {
          ++leaves;
          CHECK(crosses(from, to, topology.leaf_gate(from, to).out));
          CHECK(crosses(from, to, topology.leaf_gate(from, to).in));
        }
        if (!topology.same_region(from, to)) {
          ++regions;
          CHECK(crosses(from, to, topology.region_gate(from, to).out));
        }
      }
    }
  }
  CHECK((leaves > 100 && regions > 100));
}

// Counted here node by node.
TEST_CASE("an operator knows how many nodes its members are in, and their narrowest share of a NIC") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const RandomGroup group = random_group(seed, Spread::any, Contention::shared);
    INFO(group.text);
    std::map<int, std::vector<int>> nodes;
    for (const int gpu : group.gpus) nodes[group.topology.device(gpu).node].push_back(gpu);
    double share = std::numeric_limits<double>::infinity();
    for (const auto& [node, members] : nodes) {
      std::set<int> nics;
      for (const int gpu : members) nics.insert(group.topology.nic_up(gpu));
      const double bandwidth = group.topology.group_of(members.front()).nic.bandwidth.value();
      share =
          std::min(share, bandwidth * static_cast<double>(nics.size()) / static_cast<double>(members.size()));
    }
    const Collective op =
        as_operator(group.topology, {CollectiveKind::all_reduce, {}, Bytes(8), {}, group.gpus});
    CHECK(op.ranks == static_cast<int>(group.gpus.size()));
    CHECK(op.ranks_per_node == static_cast<int>((group.gpus.size() + nodes.size() - 1) / nodes.size()));
    CHECK(op.network.bandwidth.value() == Approx(share).epsilon(1e-12));
  }
}

TEST_CASE("a NIC's share is that of the members alone") {
  // Four of eight GPUs on two of four NICs of 25 GB/s: half a NIC each. One member a node: a whole NIC.
  const Topology topology = equal_nodes({.nodes = 2, .gpus = 8, .nics = 4});
  const Collective four =
      as_operator(topology, {CollectiveKind::all_reduce, {}, Bytes(8), {}, {0, 1, 2, 3, 8, 9, 10, 11}});
  CHECK(four.ranks_per_node == 4);
  CHECK(four.network.bandwidth == gigabytes_per_second(12.5));
  CHECK(four.gpu_link.bandwidth == gigabytes_per_second(300));
  const Collective one = as_operator(topology, {CollectiveKind::all_reduce, {}, Bytes(8), {}, {0, 8}});
  CHECK(one.ranks_per_node == 1);
  CHECK(one.network.bandwidth == gigabytes_per_second(25));
}
