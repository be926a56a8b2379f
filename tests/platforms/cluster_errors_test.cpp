#include "platforms/cluster.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

using namespace orrery;

namespace {

struct Wrong {
  std::string yaml;
  std::string message;  // a part of it
};

std::string trouble(const std::string& yaml) {
  return input_error([&] { parse_cluster(yaml, "c.yaml"); });
}

// A good group but for `keys`, which come last.
std::string with_group(const std::string& keys) {
  return "groups: [{name: g, " + keys + "}]";
}

const std::string kGood = "gpu: T4, gpus_per_node: 4, nic_bandwidth: 1Gbps, ";

}  // namespace

TEST_CASE("a group that cannot be is refused with its reason") {
  const Wrong wrong = GENERATE(values<Wrong>({
      {kGood + "count: 8..2", "a range whose first number is not above its second"},
      {kGood + "count: -1", "a number of nodes or a range"},
      {kGood + "count: 0", "at least 1"},
      {kGood + "count: 0..0", "at least 1"},
      {kGood + "count: 100001", "up to 100000"},
      {kGood + "count: 1..", "a number of nodes or a range"},
      {kGood + "count: ..4", "a number of nodes or a range"},
      {kGood + "count: 1...4", "a number of nodes or a range"},
      {kGood + "count: [1]", "found a list"},
      {kGood + "count: 1.5", "found '1.5'"},
      {"gpu: T4, gpus_per_node: 4, nic_bandwidth: 1Gbps", "no key 'count'"},
      {kGood + "count: 1, nics_per_node: 3", "found 3 NICs for 4 GPUs"},
      {kGood + "count: 1, nics_per_node: 8", "found 8 NICs for 4 GPUs"},
      {kGood + "count: 1, nics_per_node: 0", "from 1 to 1024"},
      {kGood + "count: 1, gpu_link_bandwidth: 0GBps", "above zero"},
      {kGood + "count: 1, gpu_link_bandwidth: 300", "the unit is missing"},
      {kGood + "count: 1, nic_latency: -1us", "negative"},
      {kGood + "count: 1, nic_latncy: 1us", "did you mean 'nic_latency'?"},
      {kGood + "count: 1, region: 'a b'", "letters, digits"},
      {kGood + "count: 1, price: 3", "the unit is missing"},
      {kGood + "count: 1, price: 3 USD", "that is the unit of an amount of money"},
      {kGood + "count: 1, pricing: spot", "the key pricing without instance"},
      {kGood + "count: 1, price_region: us", "the key price_region without instance"},
      {kGood + "count: 1, interrupted_every: 0h", "above zero"},
      {kGood + "count: 1, interrupted_every: 10 W", "that is the unit of a power"},
      {kGood + "count: 1, price_source: me", "price_source only beside price"},
      {"gpu: T4, gpus_per_node: 4, nic_bandwidth: 0Gbps, count: 1", "above zero"},
      {"gpu: T4, gpus_per_node: 4, count: 1", "nic_bandwidth: 100Gbps"},
      {"gpu: T4, nic_bandwidth: 1Gbps, count: 1", "no key 'gpus_per_node'"},
      {"gpu: T4, gpus_per_node: 0, nic_bandwidth: 1Gbps, count: 1", "from 1 to 1024"},
      {"gpu: T5, gpus_per_node: 4, nic_bandwidth: 1Gbps, count: 1",
       "the unknown GPU 'T5', did you mean 'T4'?"},
      {"gpu: {name: X}, gpus_per_node: 4, nic_bandwidth: 1Gbps, count: 1", "no key 'memory'"},
      {"gpu: T4, instance: p5.48xlarge, count: 1", "both instance and gpu"},
      {"count: 1", "neither instance nor gpu"},
      {"instance: p5.48xlarg, count: 1", "did you mean 'p5.48xlarge'?"},
      {"instance: p5.48xlarge, gpus_per_node: 8, count: 1", "the instance says it"},
      {"instance: p5.48xlarge, count: 1, pricing: cheap", "on_demand, spot or reserved_1y"},
      {"instance: p5.48xlarge, count: 1, pricing: spot", "a pricing that the price list has"},
      {"instance: p5.48xlarge, count: 1, price_region: us-east-9", "did you mean 'us-east-"},
      {"instance: p5.48xlarge, count: 1, price: 1 USD/h, pricing: spot", "the key pricing beside price"},
      {"instance: Standard_NC6s_v3, count: 1", "whose network the catalog does not know"},
  }));
  INFO(wrong.yaml);
  const std::string found = trouble(with_group(wrong.yaml));
  INFO(found);
  CHECK(contains(found, wrong.message));
}

TEST_CASE("a GPU map without a speed is refused") {
  CHECK(contains(trouble(with_group("count: 1, gpus_per_node: 1, nic_bandwidth: 1Gbps, "
                                    "gpu: {name: X, memory: 1GiB, memory_bandwidth: 1GBps}")),
                 "at least one of fp32"));
}

TEST_CASE("a GPU draws no more than its power, limited or idle") {
  for (const char* drawn : {"power_limit: 800W", "idle_power: 701W"}) {
    const std::string found = trouble(with_group(
        "count: 1, gpus_per_node: 1, nic_bandwidth: 1Gbps, gpu: {name: X, memory: 1GiB, memory_bandwidth: "
        "1GBps, bf16: 1TFLOPS, link_bandwidth: 1GBps, multiprocessors: 9, l2_cache: 1MiB, power: 700W, " +
        std::string(drawn) + "}"));
    INFO(found);
    CHECK(contains(found, "at most the `power` of the GPU, 700W"));
  }
}

TEST_CASE("a cluster that cannot be is refused with its reason") {
  const std::string g = "{name: g, " + kGood + "count: 1}";
  const std::string two =
      "groups: [{name: a, region: x, " + kGood + "count: 1}, {name: b, region: y, " + kGood + "count: 1}]\n";
  const std::string link = "{from: x, to: y, bandwidth: 1Gbps, latency: 1ms}";
  const std::vector<Wrong> all = {
      {"", "a map with the keys name and groups"},
      {"[]", "a map with the keys name and groups"},
      {"name: x", "no key 'groups'"},
      {"groups: []", "at least one group"},
      {"groups: {}", "a list"},
      {"groups: [" + g + ", " + g + "]", "a name that no other group has"},
      {"group: [" + g + "]", "did you mean 'groups'?"},
      {"groups: [" + g + "]\ncontention: none", "shared or ideal"},
      {"groups: [" + g + "]\nfabric: {nodes_per_leaf: -1}", "from 0"},
      {"groups: [" + g + "]\nfabric: {nodes_per_leaf: 2, oversubscription: 0.5}", "from 1"},
      {"groups: [" + g + "]\nfabric: {oversubscription: 2}", "nodes_per_leaf above 0"},
      {"groups: [{name: g, leaves: [0, 0, 0], " + kGood + "count: 3}]\nfabric: {nodes_per_leaf: 2}",
       "more than 2 nodes of group g on leaf 0"},
      {"groups: [{name: g, leaves: [0, 1], " + kGood + "count: 3}]\nfabric: {nodes_per_leaf: 2}",
       "the leaf of each of the 3 nodes"},
      {"groups: [" + g + "]\nfabric: {nodes_per_leave: 2}", "did you mean 'nodes_per_leaf'?"},
      {two, "no link between the regions x and y"},
      {two + "fabric: {regions: []}", "no link between the regions x and y"},
      {two + "fabric: {regions: [" + link + ", {from: y, to: x, bandwidth: 1Gbps, latency: 1ms}]}",
       "a second link"},
      {two + "fabric: {regions: [{from: x, to: x, bandwidth: 1Gbps, latency: 1ms}]}",
       "another region than from"},
      {two + "fabric: {regions: [{from: x, to: yy, bandwidth: 1Gbps, latency: 1ms}]}", "did you mean 'y'?"},
      {two + "fabric: {regions: [{from: x, to: y, bandwidth: 0Gbps, latency: 1ms}]}", "above zero"},
      {two + "fabric: {regions: [{from: x, to: y, bandwidth: 1Gbps}]}", "no key 'latency'"},
      {"groups: [{name: g, gpu: T4, gpus_per_node: 1024, nic_bandwidth: 1Gbps, count: 100000}]",
       "a million GPUs"},
  };
  for (const Wrong& wrong : all) {
    INFO(wrong.yaml);
    const std::string found = trouble(wrong.yaml);
    INFO(found);
    CHECK(contains(found, wrong.message));
  }
  CHECK(trouble(two + "fabric: {regions: [" + link + "]}").empty());
}

TEST_CASE("a message names the file, the line and the key") {
  CHECK(
      trouble("name: x\ngroups:\n  - name: g\n    gpu: T4\n    gpus_per_node: 4\n    count: 8..2\n") ==
      "c.yaml:6: groups[0].count: found '8..2'; expected a range whose first number is not above its second");
}

TEST_CASE("a cluster that is neither a file nor built in is refused with the nearest name") {
  CHECK(contains(input_error([] { read_cluster("a100-46"); }),
                 "no file and no built-in cluster 'a100-46', did you mean 'a100-64'?"));
  CHECK(
      contains(input_error([] { read_cluster("missing/cluster.yaml"); }), "no file and no built-in cluster"));
  CHECK(contains(input_error([] { read_cluster(""); }), "no file and no built-in cluster ''"));
  CHECK(contains(input_error([] { read_cluster(ORRERY_SOURCE_DIR); }), "found a folder"));
}
