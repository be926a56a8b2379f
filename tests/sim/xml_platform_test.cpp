#include "sim/replay/xml_platform.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "platforms/topology.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

using namespace orrery;

namespace {

// A file that goes with the test.
class PlatformFile {
 public:
  explicit PlatformFile(const std::string& body)
      : path_((std::filesystem::temp_directory_path() / ("orrery-lab-" + std::to_string(::getpid()) + ".xml"))
                  .string()) {
    std::ofstream(path_) << "<?xml version='1.0'?>\n"
                            "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                            "<platform version=\"4.1\">\n"
                         << body << "</platform>\n";
  }
  ~PlatformFile() { std::filesystem::remove(path_); }
  PlatformFile(const PlatformFile&) = delete;
  PlatformFile& operator=(const PlatformFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string host(const std::string& name, const std::string& properties) {
  std::string text = "<host id=\"" + name + "\" speed=\"1Gf\">";
  for (std::size_t at = 0; at < properties.size();) {
    const std::size_t equals = properties.find('=', at);
    const std::size_t end = std::min(properties.find(' ', at), properties.size());
    text += "<prop id=\"" + properties.substr(at, equals - at) + "\" value=\"" +
            properties.substr(equals + 1, end - equals - 1) + "\"/>";
    at = end + 1;
  }
  return text + "</host>\n";
}

// Three hosts: two T4 in one box and an H100, one slow cable between the box and the rest.
std::string lab(const std::string& cable_policy = "SHARED", const std::string& last_gpu = "gpu=H100") {
  return "<zone id=\"lab\" routing=\"Full\">\n" + host("t10", "gpu=T4 node=box") +
         host("t9", "gpu=T4 node=box") + host("big", last_gpu) +
         "<link id=\"bus\" bandwidth=\"16GBps\" latency=\"1us\"/>\n"
         "<link id=\"port\" bandwidth=\"10GBps\" latency=\"2us\"/>\n"
         "<link id=\"cable\" bandwidth=\"1GBps\" latency=\"50us\" sharing_policy=\"" +
         cable_policy +
         "\"/>\n"
         "<route src=\"t9\" dst=\"t10\"><link_ctn id=\"bus\"/></route>\n"
         "<route src=\"t9\" dst=\"big\"><link_ctn id=\"port\"/><link_ctn id=\"cable\"/></route>\n"
         "<route src=\"t10\" dst=\"big\"><link_ctn id=\"bus\"/><link_ctn id=\"port\"/><link_ctn "
         "id=\"cable\"/></route>\n"
         "</zone>\n";
}

std::string trouble(const std::string& body) {
  const PlatformFile file(body);
  return input_error([&] { read_xml_platform(file.path()); });
}

std::vector<std::string> names(const Topology& topology, int from, int to) {
  std::vector<std::string> result;
  const Route route = topology.route(from, to);
  for (std::size_t i = 0; i < static_cast<std::size_t>(route.count); ++i) {
    result.push_back(topology.links()[static_cast<std::size_t>(route.links[i])].name);
  }
  return result;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE(
    "the hosts of a SimGrid platform are GPUs, grouped by node, and routes cross the links of the file") {
  const PlatformFile file(lab());
  const ClusterSpec cluster = read_xml_platform(file.path());
  REQUIRE(cluster.groups.size() == 2);  // in the natural order of names: big, then t9 and t10 in one node
  CHECK(cluster.groups[0].gpu == find_gpu("H100", "test"));
  CHECK(cluster.groups[0].count == NodeCount{1, 1});
  CHECK(cluster.groups[1].gpu == find_gpu("T4", "test"));
  CHECK(cluster.groups[1].gpus_per_node == 2);
  CHECK(cluster.groups[1].gpu_link == LinkSpec{gigabytes_per_second(16), microseconds(1) / 2});
  CHECK(cluster.groups[1].nic.bandwidth == gigabytes_per_second(1));
  CHECK(cluster.groups[1].nic.latency.value() == Approx(26e-6));  // half of 2 + 50 us
  const Topology topology(cluster, {1, 1});
  REQUIRE(topology.gpus() == 3);
  CHECK(names(topology, 1, 2) == Names{"bus"});
  CHECK(names(topology, 1, 0) == Names{"port", "cable"});
  CHECK(names(topology, 2, 0) == Names{"bus", "port", "cable"});
  CHECK(names(topology, 0, 2) == Names{"cable", "port", "bus"});  // SimGrid's routes go both ways
  CHECK(topology.path(2, 0).bandwidth == gigabytes_per_second(1));
  CHECK(topology.path(2, 0).latency.value() == Approx(53e-6));
  CHECK_FALSE(topology.same_node(0, 1));
  CHECK(topology.same_node(1, 2));
}

TEST_CASE("a SimGrid platform written as a cluster file is read back equal") {
  const PlatformFile file(lab());
  const ClusterSpec cluster = read_xml_platform(file.path());
  CHECK(parse_cluster(to_yaml(cluster), "again.yaml") == cluster);
}

TEST_CASE("a <cluster> gives its property to all its hosts, whose private links have two directions") {
  const PlatformFile file(
      "<cluster id=\"c\" prefix=\"n\" suffix=\"\" radical=\"0-11\" speed=\"1Gf\" bw=\"12.5GBps\" lat=\"1us\" "
      "bb_bw=\"100GBps\" bb_lat=\"0.5us\"><prop id=\"gpu\" value=\"A100\"/></cluster>\n");
  const ClusterSpec cluster = read_xml_platform(file.path());
  REQUIRE(cluster.groups.size() == 1);
  CHECK(cluster.groups[0].count == NodeCount{12, 12});
  const Topology topology(cluster, {12});
  CHECK(topology.links().size() == 12 * 2 + 1);
  CHECK(topology.route(2, 11).count == 3);  // up, backbone, down
  CHECK(topology.path(2, 11) == topology.path(0, 1));
  CHECK(topology.path(2, 11).latency.value() == Approx(2.5e-6));
}

TEST_CASE("a memory property replaces the catalog's") {
  const PlatformFile file(lab("SHARED", "gpu=H100 memory=94GiB"));
  CHECK(read_xml_platform(file.path()).groups[0].gpu.memory == gibibytes(94));
}

TEST_CASE("a SimGrid platform that cannot be a cluster is refused with its reason") {
  CHECK(contains(trouble(lab("SHARED", "x=y")),
                 "host 'big': found no property gpu; expected <prop id=\"gpu\""));
  CHECK(contains(trouble(lab("SHARED", "gpu=H1000")), "did you mean 'H100"));
  CHECK(contains(trouble(lab("SHARED", "gpu=H100 node=box")), "equal GPUs in one node"));
  CHECK(contains(trouble(lab("SHARED", "gpu=H100 memory=80")), "property memory"));
  CHECK(contains(trouble(lab("FATPIPE")), "the link 'cable', which is not shared"));
  CHECK(contains(
      trouble("<zone id=\"z\" routing=\"Full\">" + host("a", "gpu=T4") + host("b", "gpu=T4") + "</zone>"),
      "a route between every two hosts"));
  CHECK(contains(
      trouble("<cluster id=\"c\" prefix=\"n\" suffix=\"\" radical=\"0-1024\" speed=\"1Gf\" bw=\"1GBps\" "
              "lat=\"1us\"/>"),
      "found 1025 hosts; expected 1 to 1024"));
  CHECK_FALSE(trouble("<nonsense/>").empty());
  CHECK_FALSE(trouble("<zone id=\"z\"").empty());
  CHECK(contains(input_error([] { read_xml_platform("missing.xml"); }), "missing.xml"));
}

TEST_CASE("a platform is told from a cluster file by its name") {
  CHECK(is_xml_platform("lab/platform.xml"));
  CHECK_FALSE(is_xml_platform("cluster.yaml"));
  CHECK_FALSE(is_xml_platform("xml"));
}
