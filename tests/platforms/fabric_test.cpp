// Fabrics beyond one switch and leaves: rails and pods.
#include <algorithm>
#include <random>

#include "platforms/topology.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/platforms/route_names.hpp"

using namespace orrery;

namespace {

// Nodes of four GPUs behind four NICs (a) or two (b).
ClusterSpec cluster_of(const std::string& fabric, const std::string& gpu = "H100") {
  const std::string keys =
      ", gpus_per_node: 4, count: 0..9, gpu_link_bandwidth: 400GBps, nic_bandwidth: 50GBps, ";
  return parse_cluster("groups: [{name: a, gpu: " + gpu + keys + "nics_per_node: 4}, {name: b, gpu: " + gpu +
                           keys + "nics_per_node: 2}]\nfabric: " + fabric,
                       "c.yaml");
}

LinkSpec link_named(const Topology& topology, const std::string& name) {
  const auto found = std::find_if(topology.links().begin(), topology.links().end(),
                                  [&](const TopologyLink& link) { return link.name == name; });
  REQUIRE(found != topology.links().end());
  return found->spec;
}

const std::string kRails = "{kind: rail-optimised, nodes_per_leaf: 2, oversubscription: 2}";

}  // namespace

TEST_CASE("on one rail a flow crosses its rail switch, and the spine only between leaves") {
  const Topology topology(cluster_of(kRails), {4, 0});
  CHECK(names(topology, 1, 5) == Names{"a.node0.nic1.up", "a.node1.nic1.down"});
  CHECK(names(topology, 1, 9) ==
        Names{"a.node0.nic1.up", "leaf0.rail1.up", "leaf1.rail1.down", "a.node2.nic1.down"});
  CHECK(names(topology, 1, 2) == Names{"a.node0.gpu1.up", "a.node0.gpu2.down"});
  CHECK(topology.same_leaf(1, 6));
  CHECK_FALSE(topology.same_leaf(1, 9));
}

TEST_CASE("to another rail a flow goes over NVLink to the GPU of that rail and stays on it") {
  const Topology topology(cluster_of(kRails), {4, 0});
  CHECK(names(topology, 1, 6) ==
        Names{"a.node0.gpu1.up", "a.node0.gpu2.down", "a.node0.nic2.up", "a.node1.nic2.down"});
  CHECK(names(topology, 1, 10) == Names{"a.node0.gpu1.up", "a.node0.gpu2.down", "a.node0.nic2.up",
                                        "leaf0.rail2.up", "leaf1.rail2.down", "a.node2.nic2.down"});
}

TEST_CASE("without NVLink, or without a NIC of that rail, a flow to another rail crosses the spine") {
  const Topology pcie(cluster_of(kRails, "T4"), {2, 0});
  CHECK(names(pcie, 1, 6) ==
        Names{"a.node0.nic1.up", "leaf0.rail1.up", "leaf0.rail2.down", "a.node1.nic2.down"});
  const Topology mixed(cluster_of(kRails), {1, 1});  // b's GPUs 4 to 7 share two NICs
  CHECK(names(mixed, 4, 3) ==
        Names{"b.node0.nic0.up", "leaf1.rail0.up", "leaf0.rail3.down", "a.node0.nic3.down"});
  // From a's GPU 0 to b's GPU 7, on rail 1: a's GPU 1 sends.
  CHECK(names(mixed, 0, 7) == Names{"a.node0.gpu0.up", "a.node0.gpu1.down", "a.node0.nic1.up",
                                    "leaf0.rail1.up", "leaf1.rail1.down", "b.node0.nic1.down"});
}

TEST_CASE("GPUs that share the NIC of a rail take turns at sending for other rails") {
  const Topology topology(cluster_of(kRails), {0, 2});
  CHECK(names(topology, 0, 7) ==
        Names{"b.node0.gpu0.up", "b.node0.gpu3.down", "b.node0.nic1.up", "b.node1.nic1.down"});
  CHECK(names(topology, 0, 6) ==
        Names{"b.node0.gpu0.up", "b.node0.gpu2.down", "b.node0.nic1.up", "b.node1.nic1.down"});
}

TEST_CASE("a rail switch's uplink carries one NIC of each of its nodes, divided by the oversubscription") {
  const Topology topology(cluster_of(kRails), {4, 1});
  CHECK(link_named(topology, "leaf0.rail3.up").bandwidth == gigabytes_per_second(2 * 50 / 2.0));
  CHECK(link_named(topology, "leaf2.rail1.down").bandwidth == gigabytes_per_second(2 * 50 / 2.0));
}

TEST_CASE("leaves of one pod meet below the core, others above") {
  const Topology topology(cluster_of("{kind: fat-tree, nodes_per_leaf: 1, oversubscription: 2, "
                                     "leaves_per_pod: 2, pod_oversubscription: 4}"),
                          {4, 1});
  CHECK(names(topology, 0, 4) == Names{"a.node0.nic0.up", "leaf0.up", "leaf1.down", "a.node1.nic0.down"});
  CHECK(names(topology, 0, 8) ==
        Names{"a.node0.nic0.up", "leaf0.up", "pod0.up", "pod1.down", "leaf2.down", "a.node2.nic0.down"});
  CHECK(names(topology, 12, 16) ==
        Names{"a.node3.nic0.up", "leaf3.up", "pod1.up", "pod2.down", "leaf4.down", "b.node0.nic0.down"});
  // 2 leaves x 1 node x 4 NICs x 50 GB/s, halved by the leaves and quartered by the pod
  CHECK(link_named(topology, "pod0.up").bandwidth == gigabytes_per_second(2 * 1 * 4 * 50 / 2.0 / 4));
}

TEST_CASE("flows between two regions share the link between them") {
  ClusterSpec cluster = cluster_of("{nodes_per_leaf: 1}");
  cluster.groups[1].region = "west";
  cluster.fabric.regions = {{"default", "west", {gigabytes_per_second(1), milliseconds(20)}}};
  const Topology topology(cluster, {3, 2});
  for (int from = 0; from < 12; ++from) {
    for (int to = 12; to < 20; ++to) {
      const Names there = names(topology, from, to);
      const Names back = names(topology, to, from);
      CHECK(std::count(there.begin(), there.end(), "region.default.west") == 1);
      CHECK(std::count(back.begin(), back.end(), "region.west.default") == 1);
    }
  }
}

TEST_CASE("a fabric written out is read back equal") {
  for (const std::string& fabric :
       {kRails, std::string("{kind: switch}"), std::string("{kind: fat-tree, nodes_per_leaf: 3}"),
        std::string(
            "{kind: rail-optimised, nodes_per_leaf: 3, leaves_per_pod: 2, pod_oversubscription: 1.1}")}) {
    const ClusterSpec cluster = cluster_of(fabric);
    INFO(to_yaml(cluster));
    CHECK(parse_cluster(to_yaml(cluster), "again.yaml") == cluster);
  }
}

TEST_CASE("a fabric that cannot be is refused with its reason") {
  const auto trouble = [](const std::string& fabric) { return input_error([&] { cluster_of(fabric); }); };
  CHECK(contains(trouble("{kind: rail-optimized, nodes_per_leaf: 2}"), "did you mean 'rail-optimised'?"));
  CHECK(contains(trouble("{kind: rail-optimised}"), "nodes_per_leaf above 0"));
  CHECK(contains(trouble("{kind: fat-tree, nodes_per_leaf: 0}"), "nodes_per_leaf above 0"));
  CHECK(contains(trouble("{kind: switch, nodes_per_leaf: 2}"), "fat-tree"));
  CHECK(contains(trouble("{leaves_per_pod: 2}"), "nodes_per_leaf above 0"));
  CHECK(contains(trouble("{nodes_per_leaf: 2, pod_oversubscription: 2}"), "leaves_per_pod above 0"));
  CHECK(contains(trouble("{nodes_per_leaf: 2, leaves_per_pod: 2, pod_oversubscription: 0.5}"), "from 1"));
}
