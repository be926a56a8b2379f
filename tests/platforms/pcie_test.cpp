// Nodes whose GPUs hang on PCIe switches.
#include <algorithm>
#include <random>

#include "platforms/topology.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/platforms/route_names.hpp"

using namespace orrery;

namespace {

NodeGroup group_of(const std::string& keys) {
  return parse_cluster(
             "groups: [{name: p, gpu: T4, gpus_per_node: 4, count: 1, nic_bandwidth: 50Gbps, " + keys + "}]",
             "c.yaml")
      .groups.front();
}

// Nodes with two PCIe switches, of two GPUs each, and nodes with NVLink.
ClusterSpec mixed(int nics_per_node) {
  return parse_cluster(
      "groups:\n"
      "  - {name: p, gpu: T4, gpus_per_node: 4, count: 2, gpu_link_bandwidth: 16GBps, gpu_link_latency: "
      "1us,\n"
      "     pcie_switches: 2, pcie_uplink_bandwidth: 12GBps, pcie_uplink_latency: 0.25us,\n"
      "     nics_per_node: " +
          std::to_string(nics_per_node) +
          ", nic_bandwidth: 100Gbps, nic_latency: 2us}\n"
          "  - {name: h, gpu: H100, gpus_per_node: 4, count: 1, nic_bandwidth: 400Gbps, nic_latency: 3us}",
      "c.yaml");
}

}  // namespace

TEST_CASE("a bridge of two cards leaves nodes of more to PCIe, unless the file says otherwise") {
  const auto link = [](const std::string& keys) {
    return parse_cluster("groups: [{name: p, count: 1, nic_bandwidth: 50Gbps, " + keys + "}]", "c.yaml")
        .groups.front()
        .gpu_link;
  };
  const LinkSpec bridge{gigabytes_per_second(300), kNvlinkLatency},
      pcie{gigabytes_per_second(32), kPcieLatency};
  CHECK(link("gpu: A100-PCIe-80GB, gpus_per_node: 2") == bridge);
  CHECK(link("gpu: A100-PCIe-80GB, gpus_per_node: 8") == pcie);
  CHECK(link("gpu: A100-PCIe-80GB, gpus_per_node: 8, gpu_link_bandwidth: 100GBps").bandwidth ==
        gigabytes_per_second(100));
  CHECK(link("gpu: A100-SXM4-80GB, gpus_per_node: 8") == bridge);  // its own NVLink, as fast
}

TEST_CASE("GPUs of one PCIe switch talk through it, others over the host bridge") {
  const Topology topology(mixed(2), {2, 1});
  CHECK(names(topology, 0, 1) == Names{"p.node0.gpu0.up", "p.node0.gpu1.down"});
  CHECK(names(topology, 1, 2) ==
        Names{"p.node0.gpu1.up", "p.node0.pcie0.up", "p.node0.pcie1.down", "p.node0.gpu2.down"});
  CHECK(topology.path(1, 2).bandwidth == gigabytes_per_second(12));  // the narrower of 16 and 12
  CHECK(topology.path(1, 2).latency.value() == Approx(2.5e-6));      // 1 + 0.25 + 0.25 + 1 us
}

TEST_CASE("what leaves a PCIe node crosses the GPU's link, and no bridge where its NIC hangs on its switch") {
  const Topology topology(mixed(2), {2, 1});
  CHECK(names(topology, 2, 5) ==
        Names{"p.node0.gpu2.up", "p.node0.nic1.up", "p.node1.nic0.down", "p.node1.gpu1.down"});
  CHECK(names(topology, 8, 2) == Names{"h.node0.nic0.up", "p.node0.nic1.down", "p.node0.gpu2.down"});
}

TEST_CASE("a NIC on the other PCIe switch is reached over the host bridge") {
  const Topology topology(mixed(1), {2, 1});
  CHECK(names(topology, 2, 7) == Names{"p.node0.gpu2.up", "p.node0.pcie1.up", "p.node0.pcie0.down",
                                       "p.node0.nic0.up", "p.node1.nic0.down", "p.node1.pcie0.up",
                                       "p.node1.pcie1.down", "p.node1.gpu3.down"});
  CHECK(names(topology, 0, 4) ==
        Names{"p.node0.gpu0.up", "p.node0.nic0.up", "p.node1.nic0.down", "p.node1.gpu0.down"});
}

TEST_CASE("the longest route there can be fits") {
  ClusterSpec cluster = mixed(1);
  cluster.groups[1] = cluster.groups[0];
  cluster.groups[1].name = "q";
  cluster.groups[1].region = "west";
  cluster.fabric.nodes_per_leaf = 1;
  cluster.fabric.leaves_per_pod = 1;
  cluster.fabric.regions = {{"default", "west", {gigabytes_per_second(1), milliseconds(1)}}};
  CHECK(Topology(cluster, {2, 2}).route(2, 11).count == Route::kMost);
}

TEST_CASE(
    "by default the uplink is as fast as a GPU's link, and a hop over the network takes as long as without") {
  const NodeGroup group = group_of("pcie_switches: 2");
  CHECK(group.pcie_uplink.bandwidth == group.gpu_link.bandwidth);
  CHECK(group.pcie_uplink.latency == Seconds(0));
  CHECK((group.nic.latency + group.gpu_link.latency).value() == Approx(group_of("").nic.latency.value()));
}

TEST_CASE("PCIe switches written out are read back equal") {
  CHECK(parse_cluster(to_yaml(mixed(1)), "again.yaml") == mixed(1));
}

TEST_CASE("a GPU that could have NVLink hangs on PCIe switches where the group says how fast its PCIe is") {
  const ClusterSpec cluster = parse_cluster(
      "groups: [{name: a, gpu: A100-PCIe-80GB, gpus_per_node: 4, count: 1, nic_bandwidth: 1Gbps, "
      "pcie_switches: 2, "
      "gpu_link_bandwidth: 25GBps}]",
      "c.yaml");
  CHECK_FALSE(has_nvlink(cluster.groups[0]));
  CHECK(cluster.groups[0].gpu_link ==
        LinkSpec{gigabytes_per_second(25), microseconds(0.5)});  // PCIe's latency
}

TEST_CASE("PCIe switches that cannot be are refused with their reason") {
  const auto trouble = [](const std::string& keys) { return input_error([&] { group_of(keys); }); };
  CHECK(contains(trouble("pcie_switches: 3"), "divides the 4 GPUs"));
  CHECK(contains(trouble("pcie_uplink_bandwidth: 1GBps"), "pcie_switches above 0"));
  CHECK(contains(trouble("pcie_switches: 0, pcie_uplink_latency: 1us"), "pcie_switches above 0"));
  CHECK(contains(trouble("pcie_switches: 2, pcie_uplink_bandwidth: 0GBps"), "above zero"));
  CHECK(contains(input_error([] {
                   parse_cluster(
                       "groups: [{name: a, gpu: H100, gpus_per_node: 8, count: 1, nic_bandwidth: 1Gbps, "
                       "pcie_switches: 2}]",
                       "c.yaml");
                 }),
                 "gpu_link_bandwidth beside it"));
}
