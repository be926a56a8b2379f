#include "platforms/topology.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "platforms/errors.hpp"
#include "tests/catch.hpp"

using namespace orrery;

namespace {

// Two nodes of four GPUs behind two NICs, three nodes of two GPUs behind one.
ClusterSpec two_groups(int nodes_per_leaf) {
  NodeGroup a;
  a.name = "a";
  a.gpus_per_node = 4;
  a.count = {0, 5};
  a.gpu_link = {gigabytes_per_second(300), microseconds(1)};
  a.nics_per_node = 2;
  a.nic = {gigabytes_per_second(25), microseconds(2)};
  NodeGroup b = a;
  b.name = "b";
  b.gpus_per_node = 2;
  b.nics_per_node = 1;
  b.nic = {gigabytes_per_second(10), microseconds(3)};
  ClusterSpec cluster{"test", {a, b}, {}, Contention::shared};
  cluster.fabric.nodes_per_leaf = nodes_per_leaf;
  cluster.fabric.oversubscription = 4;
  cluster.fabric.latency = microseconds(0.5);
  return cluster;
}

ClusterSpec two_regions(int nodes_per_leaf) {
  ClusterSpec cluster = two_groups(nodes_per_leaf);
  cluster.groups[0].region = "east";
  cluster.groups[1].region = "west";
  cluster.fabric.regions = {{"east", "west", {gigabytes_per_second(1), milliseconds(20)}}};
  return cluster;
}

std::vector<std::string> names(const Topology& topology, int from, int to) {
  std::vector<std::string> result;
  const Route route = topology.route(from, to);
  for (int i = 0; i < route.count; ++i) {
    result.push_back(
        topology.links()[static_cast<std::size_t>(route.links[static_cast<std::size_t>(i)])].name);
  }
  return result;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("GPUs are numbered group by group, node by node") {
  const Topology topology(two_groups(0), {2, 3});
  REQUIRE(topology.gpus() == 2 * 4 + 3 * 2);
  CHECK(topology.first_gpu(0) == 0);
  CHECK(topology.first_gpu(1) == 8);
  CHECK(topology.device(5).group == 0);
  CHECK(topology.device(5).node == 1);
  CHECK(topology.device(5).local == 1);
  CHECK(topology.device(9).node == 2);  // the first node of b
  CHECK(topology.group_of(9).name == "b");
  CHECK(topology.same_node(4, 7));
  CHECK_FALSE(topology.same_node(3, 4));
}

TEST_CASE("inside a node a flow crosses the two GPU links and no NIC") {
  const Topology topology(two_groups(0), {2, 3});
  CHECK(names(topology, 4, 6) == Names{"a.node1.gpu0.up", "a.node1.gpu2.down"});
  const LinkSpec path = topology.path(4, 6);
  CHECK(path.bandwidth == gigabytes_per_second(300));
  CHECK(path.latency.value() == Approx(2e-6));  // 1 us for each of the two links
}

TEST_CASE("across nodes a flow crosses the NICs of its two GPUs, which the GPUs of a node share in order") {
  const Topology topology(two_groups(0), {2, 3});
  CHECK(names(topology, 1, 4) == Names{"a.node0.nic0.up", "a.node1.nic0.down"});
  CHECK(names(topology, 2, 7) == Names{"a.node0.nic1.up", "a.node1.nic1.down"});
  CHECK(names(topology, 3, 9) == Names{"a.node0.nic1.up", "b.node0.nic0.down"});
  const LinkSpec path = topology.path(3, 9);
  CHECK(path.bandwidth == gigabytes_per_second(10));  // the narrower of 25 and 10
  CHECK(path.latency.value() == Approx(5e-6));        // 2 + 3 us
}

TEST_CASE(
    "leaves are filled in order, each group starts a new one, and equal leaves are left out of the route") {
  const Topology topology(two_groups(2), {3, 2});  // a: leaf0 {0, 1}, leaf1 {2}; b: leaf2 {0, 1}
  CHECK(names(topology, 0, 4) == Names{"a.node0.nic0.up", "a.node1.nic0.down"});
  CHECK(names(topology, 0, 8) == Names{"a.node0.nic0.up", "leaf0.up", "leaf1.down", "a.node2.nic0.down"});
  CHECK(names(topology, 8, 12) == Names{"a.node2.nic0.up", "leaf1.up", "leaf2.down", "b.node0.nic0.down"});
  CHECK(names(topology, 12, 14) == Names{"b.node0.nic0.up", "b.node1.nic0.down"});
}

TEST_CASE("nodes stand below the leaves that their group names, and the next group starts after those") {
  ClusterSpec cluster = two_groups(2);
  cluster.groups[0].leaves.assign(static_cast<std::size_t>(cluster.groups[0].count.maximum), 1);
  cluster.groups[0].leaves[1] = 0;  // leaf1 {0, 2}, leaf0 {1}; b: leaf2
  const Topology topology(cluster, {3, 2});
  CHECK(names(topology, 0, 8) == Names{"a.node0.nic0.up", "a.node2.nic0.down"});
  CHECK(names(topology, 0, 4) == Names{"a.node0.nic0.up", "leaf1.up", "leaf0.down", "a.node1.nic0.down"});
  CHECK(names(topology, 8, 12) == Names{"a.node2.nic0.up", "leaf1.up", "leaf2.down", "b.node0.nic0.down"});
}

TEST_CASE("the uplink of a leaf carries what its nodes could send, divided by the oversubscription") {
  const Topology topology(two_groups(2), {3, 2});
  for (const TopologyLink& link : topology.links()) {
    if (link.name == "leaf0.up" || link.name == "leaf1.down") {
      CHECK(link.spec.bandwidth.value() ==
            Approx(2 * 2 * 25e9 / 4));  // nodes x NICs x bandwidth / oversubscription
      CHECK(link.spec.latency == microseconds(0.5));
    }
    if (link.name == "leaf2.up") CHECK(link.spec.bandwidth.value() == Approx(2 * 1 * 10e9 / 4));
  }
}

TEST_CASE("between regions a flow crosses the region link of its direction") {
  const Topology flat(two_regions(0), {1, 1});
  CHECK(names(flat, 0, 4) == Names{"a.node0.nic0.up", "region.east.west", "b.node0.nic0.down"});
  CHECK(names(flat, 4, 0) == Names{"b.node0.nic0.up", "region.west.east", "a.node0.nic0.down"});
  const Topology leaves(two_regions(1), {1, 1});
  CHECK(names(leaves, 0, 4) ==
        Names{"a.node0.nic0.up", "leaf0.up", "region.east.west", "leaf1.down", "b.node0.nic0.down"});
  CHECK(leaves.path(0, 4).latency.value() == Approx(2e-6 + 0.5e-6 + 20e-3 + 0.5e-6 + 3e-6));
  CHECK(leaves.path(0, 4).bandwidth == gigabytes_per_second(1));
}

TEST_CASE("a GPU reaches itself over no link at all") {
  const Topology topology(two_groups(0), {1, 0});
  CHECK(topology.route(2, 2).count == 0);
  CHECK(topology.path(2, 2).latency == Seconds(0));
  CHECK(std::isinf(topology.path(2, 2).bandwidth.value()));
}

TEST_CASE("a group may have no node and a cluster no GPU") {
  const Topology topology(two_groups(0), {0, 2});
  CHECK(topology.gpus() == 4);
  CHECK(topology.first_gpu(1) == 0);
  CHECK(names(topology, 0, 3) == Names{"b.node0.nic0.up", "b.node1.nic0.down"});
  CHECK(Topology(two_groups(0), {0, 0}).gpus() == 0);
}

TEST_CASE("node counts outside the group's range are our own mistake") {
  CHECK_THROWS_AS(Topology(two_groups(0), {6, 0}), Defect);
  CHECK_THROWS_AS(Topology(two_groups(0), {1}), Defect);
}

TEST_CASE("regions without a link are our own mistake, because the reader refuses them") {
  ClusterSpec cluster = two_regions(0);
  cluster.fabric.regions.clear();
  CHECK_THROWS_AS(Topology(cluster, {1, 1}), Defect);
}

TEST_CASE("link names are unique") {
  const Topology topology(two_regions(2), {5, 5});
  std::set<std::string> seen;
  for (const TopologyLink& link : topology.links()) CHECK(seen.insert(link.name).second);
}

namespace {

std::string mirrored(const std::string& name) {
  if (name == "region.east.west") return "region.west.east";
  if (name == "region.west.east") return "region.east.west";
  const std::size_t dot = name.rfind('.');
  return name.substr(0, dot) + (name.substr(dot) == ".up" ? ".down" : ".up");
}

void check_all_pairs(const Topology& topology) {
  for (int from = 0; from < topology.gpus(); ++from) {
    for (int to = 0; to < topology.gpus(); ++to) {
      const Names forth = names(topology, from, to);
      Names back = names(topology, to, from);
      std::reverse(back.begin(), back.end());
      std::transform(back.begin(), back.end(), back.begin(), mirrored);
      REQUIRE(forth == back);
      double latency = 0;
      double bandwidth = INFINITY;
      const Route route = topology.route(from, to);
      for (int i = 0; i < route.count; ++i) {
        const auto link = static_cast<std::size_t>(route.links[static_cast<std::size_t>(i)]);
        latency += topology.links()[link].spec.latency.value();
        bandwidth = std::min(bandwidth, topology.links()[link].spec.bandwidth.value());
      }
      REQUIRE(topology.path(from, to).latency.value() == Approx(latency));
      REQUIRE(topology.path(from, to).bandwidth.value() == bandwidth);
    }
  }
}

}  // namespace

TEST_CASE(
    "on random clusters the way back mirrors the way there, and a path is the sum and minimum of its links") {
  std::mt19937_64 random(11);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int i = 0; i < 40; ++i) {
    ClusterSpec cluster = draw(0, 1) == 0 ? two_groups(draw(0, 3)) : two_regions(draw(0, 3));
    cluster.groups[1].gpus_per_node = draw(1, 4);
    cluster.groups[0].pcie_switches = 2 * draw(0, 2);
    cluster.groups[0].pcie_uplink = {gigabytes_per_second(20), microseconds(0.1)};
    cluster.fabric.leaves_per_pod = draw(0, 2);
    const std::vector<int> nodes = {draw(0, 4), draw(0, 4)};
    INFO(to_yaml(cluster) << "nodes " << nodes[0] << " " << nodes[1]);
    check_all_pairs(Topology(cluster, nodes));
  }
}
