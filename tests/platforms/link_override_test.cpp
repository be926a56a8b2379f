#include "platforms/link_override.hpp"

#include <algorithm>

#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

using namespace orrery;

namespace {

const std::string kGroups =
    "groups: [{name: a, gpu: T4, gpus_per_node: 4, count: 0..3, gpu_link_bandwidth: 16GBps, "
    "gpu_link_latency: 1us,\n"
    "  nics_per_node: 2, nic_bandwidth: 100Gbps, nic_latency: 2us}]\n";

ClusterSpec with_links(const std::string& links) {
  return parse_cluster(kGroups + "links: [" + links + "]", "c.yaml");
}

TopologyLink link_named(const Topology& topology, const std::string& name) {
  const auto found = std::find_if(topology.links().begin(), topology.links().end(),
                                  [&](const TopologyLink& link) { return link.name == name; });
  REQUIRE(found != topology.links().end());
  return *found;
}

}  // namespace

TEST_CASE("a star stands for any text of a link's name, also none") {
  CHECK(matches_pattern("a.node1.nic0.up", "a.node1.nic0.up"));
  CHECK(matches_pattern("a.node*.nic0.up", "a.node17.nic0.up"));
  CHECK(matches_pattern("*.up", "a.node17.nic0.up"));
  CHECK(matches_pattern("a*", "a"));
  CHECK(matches_pattern("*", "x"));
  CHECK(matches_pattern("a*b*c", "abbcabc"));
  CHECK_FALSE(matches_pattern("a.node*.nic0.up", "a.node17.nic0.down"));
  CHECK_FALSE(matches_pattern("a.node1.nic0", "a.node1.nic0.up"));
  CHECK_FALSE(matches_pattern("", "a"));
}

TEST_CASE("an override changes the links it names and no other, in the order of the file") {
  const Topology topology(with_links("{name: a.node1.nic0.up, bandwidth: 10Gbps}, {name: 'a.node*.nic0.*', "
                                     "bandwidth: 0.5x}, {name: a.node0.gpu2.down, latency: 50us}"),
                          {2});
  CHECK(link_named(topology, "a.node1.nic0.up").spec.bandwidth == gigabits_per_second(5));  // 10 x 0.5
  CHECK(link_named(topology, "a.node1.nic0.down").spec.bandwidth == gigabits_per_second(50));
  CHECK(link_named(topology, "a.node0.nic0.up").spec.bandwidth == gigabits_per_second(50));
  CHECK(link_named(topology, "a.node0.nic1.up").spec.bandwidth == gigabits_per_second(100));
  CHECK(topology.path(4, 0).bandwidth == gigabits_per_second(5));
  CHECK(topology.path(0, 4).bandwidth == gigabits_per_second(50));
  CHECK(topology.path(0, 2).latency.value() == Approx(51e-6));  // 1 us up, 50 us down
  CHECK(topology.path(2, 0).latency.value() == Approx(2e-6));
  CHECK_FALSE(topology.has_cut());
}

TEST_CASE("over a link that is down there is no route, and the obstacle names it and both GPUs") {
  const Topology topology(with_links("{name: a.node1.nic0.down, state: down}"), {2});
  CHECK(topology.has_cut());
  CHECK(topology.route_obstacle(1, 4) ==
        "link a.node1.nic0.down is down, so GPU 1 (a.node0.gpu1) cannot send to GPU 4 (a.node1.gpu0)");
  CHECK_THROWS_AS(topology.route(1, 4), Defect);
  CHECK_THROWS_AS(topology.path(1, 4), Defect);
  CHECK_FALSE(topology.route_obstacle(4, 1));  // the way up is not cut
  CHECK_FALSE(topology.route_obstacle(2, 7));  // nor the other NIC
  CHECK(topology.route(4, 1).count == 2);
}

TEST_CASE("state: up takes back what a wider name cut") {
  const Topology topology(with_links("{name: '*.nic*', state: down}, {name: '*.nic1.*', state: up}"), {2});
  CHECK(topology.route_obstacle(0, 4));
  CHECK_FALSE(topology.route_obstacle(2, 6));
}

TEST_CASE("an override may name a node that a smaller choice of nodes leaves out") {
  CHECK_FALSE(Topology(with_links("{name: a.node2.nic0.up, state: down}"), {1}).has_cut());
}

TEST_CASE("overrides written out are read back equal") {
  const ClusterSpec cluster = with_links(
      "{name: '*.up', bandwidth: 0.3x, latency: 0us}, {name: a.node0.nic0.up, bandwidth: 10Gbps, state: up}, "
      "{name: '*nic1*', state: down}, {name: '*', bandwidth: 0.00003x}");
  REQUIRE(cluster.links.size() == 4);
  CHECK(parse_cluster(to_yaml(cluster), "again.yaml") == cluster);
}

TEST_CASE("an override that cannot be is refused with its reason") {
  struct Wrong {
    std::string links, message;
  };
  const Wrong wrong = GENERATE(values<Wrong>({
      {"{name: a.node0.nic3.up, bandwidth: 1Gbps}", "did you mean 'a.node0.nic0.up'?"},
      {"{name: a.node3.nic0.up, bandwidth: 1Gbps}", "did you mean 'a.node0.nic0.up'?"},  // nodes 0 to 2
      {"{name: 'a.nod*.gpus1.*', bandwidth: 1Gbps}", "did you mean 'a.node*.gpu1.*'?"},
      {"{name: zzzzzzzzzzzzzzzz, bandwidth: 1Gbps}", "such as 'a.node0.gpu0.up'"},
      {"{name: a.node0.nic0.up}", "a link that nothing is said about"},
      {"{bandwidth: 1Gbps}", "no key 'name'"},
      {"{name: '*', bandwidth: 0x}", "or state: down"},
      {"{name: '*', bandwidth: -1x}", "or state: down"},
      {"{name: '*', bandwidth: nanx}", "or state: down"},
      {"{name: '*', bandwidth: 0Gbps}", "above zero"},
      {"{name: '*', bandwidth: 2}", "the unit is missing"},
      {"{name: '*', state: cut}", "up or down"},
      {"{name: '*', sate: down}", "did you mean 'state'?"},
  }));
  INFO(wrong.links);
  const std::string found = input_error([&] { with_links(wrong.links); });
  INFO(found);
  CHECK(contains(found, wrong.message));
}
