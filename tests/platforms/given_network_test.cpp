// Clusters whose links and routes are given.
#include <random>

#include "platforms/topology.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

using namespace orrery;

namespace {

const std::string kGroup =
    "groups: [{name: g, gpu: T4, gpus_per_node: 1, count: 3, nic_bandwidth: 10Gbps}]\n";
const std::string kLinks =
    "links: [{name: x, bandwidth: 1GBps, latency: 1us}, {name: y, bandwidth: 2GBps, latency: 2us}]";

ClusterSpec with_network(const std::string& routes) {
  return parse_cluster(kGroup + "network: {" + kLinks + ", routes: " + routes + "}", "c.yaml");
}

const std::string kRoutes = "['|0|0 1', '1||1', '1 0|0|']";

}  // namespace

TEST_CASE("a given network has the links and routes it gives, whatever the groups say") {
  const Topology topology(with_network(kRoutes), {3});
  REQUIRE(topology.links().size() == 2);
  CHECK(topology.route(0, 1).count == 1);
  CHECK(topology.route(1, 1).count == 0);
  const Route route = topology.route(2, 0);
  REQUIRE(route.count == 2);
  CHECK(route.links[0] == 1);
  CHECK(route.links[1] == 0);
  CHECK(topology.path(0, 2) == LinkSpec{gigabytes_per_second(1), microseconds(1) + microseconds(2)});
}

TEST_CASE("links of a given network are cut by name too") {
  ClusterSpec cluster = parse_cluster(
      kGroup + "network: {" + kLinks + ", routes: " + kRoutes + "}\nlinks: [{name: y, state: down}]",
      "c.yaml");
  const Topology topology(cluster, {3});
  CHECK_FALSE(topology.route_obstacle(0, 1));
  CHECK(topology.route_obstacle(0, 2) ==
        "link y is down, so GPU 0 (g.node0.gpu0) cannot send to GPU 2 (g.node2.gpu0)");
}

TEST_CASE("a given network written out is read back equal") {
  const ClusterSpec cluster = with_network(kRoutes);
  INFO(to_yaml(cluster));
  CHECK(parse_cluster(to_yaml(cluster), "again.yaml") == cluster);
  ClusterSpec other = with_network("['|0|0 1', '1||1', '1 1|0|']");
  CHECK_FALSE(other == cluster);
}

TEST_CASE("a given network that cannot be is refused with its reason") {
  const auto trouble = [](const std::string& routes) { return input_error([&] { with_network(routes); }); };
  CHECK(contains(trouble("['|0|0', '1||1']"), "found 2 rows; expected 3"));
  CHECK(contains(trouble("['|0|0|', '1||1', '1|0|']"), "found 4 routes; expected 3"));
  CHECK(contains(trouble("['|0|', '1||1', '1|0|']"),
                 "a route of 0 links from GPU 0 to GPU 2; expected 1 to 13"));
  CHECK(contains(trouble("['0|0|1', '1||1', '1|0|']"), "none from a GPU to itself"));
  CHECK(contains(trouble("['|0|2', '1||1', '1|0|']"), "a number from 0 to 1"));
  CHECK(contains(trouble("['|0|-1', '1||1', '1|0|']"), "a number from 0 to 1"));
  CHECK(contains(trouble("['|0|x', '1||1', '1|0|']"), "numbers of links"));
  CHECK(contains(trouble("['|0|0 0 0 0 0 0 0 0 0 0 0 0 0 0', '1||1', '1|0|']"), "a route of 14 links"));
  CHECK(contains(input_error([] {
                   parse_cluster(kGroup + "fabric: {}\nnetwork: {" + kLinks + ", routes: " + kRoutes + "}",
                                 "c.yaml");
                 }),
                 "no fabric beside network"));
  CHECK(contains(input_error([] {
                   parse_cluster(
                       "groups: [{name: g, gpu: T4, gpus_per_node: 1, count: 1..3, nic_bandwidth: 1Gbps}]\n"
                       "network: {links: [], routes: []}",
                       "c.yaml");
                 }),
                 "a fixed count"));
}
