#include "platforms/cluster.hpp"

#include <algorithm>

#include "platforms/errors.hpp"
#include "platforms/instance.hpp"
#include "platforms/yaml.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

using namespace orrery;

namespace {

NodeGroup only_group(const std::string& keys) {
  return parse_cluster("groups: [{name: g, " + keys + "}]", "test.yaml").groups.at(0);
}

}  // namespace

TEST_CASE("the example of the README is read as it stands there") {
  const std::string readme = read_text_file(std::string(ORRERY_SOURCE_DIR) + "/platforms/README.md");
  const std::string fence = "```yaml\n";
  const std::size_t start = readme.find(fence) + fence.size();
  const ClusterSpec cluster =
      parse_cluster(readme.substr(start, readme.find("```", start) - start), "README.md");
  CHECK(cluster.name == "demo");
  CHECK(cluster.groups.size() == 2);
  CHECK(cluster.groups[0].price_source.find("Azure eastus spot") == 0);
}

TEST_CASE("every key of a cluster file is read") {
  const ClusterSpec cluster = parse_cluster(R"(
name: demo
groups:
  - name: a100
    instance: Standard_ND96amsr_A100_v4
    count: 0..16
    region: a
    price: 32.77 USD/h
  - {name: h100, gpu: H100, gpus_per_node: 8, count: 8, region: b, gpu_link_bandwidth: 450GBps,
     gpu_link_latency: 1us, nics_per_node: 8, nic_bandwidth: 400Gbps, nic_latency: 2us, price: 98.32 USD/h}
fabric: {nodes_per_leaf: 16, oversubscription: 2, latency: 1us,
         regions: [{from: a, to: b, bandwidth: 10Gbps, latency: 20ms}]}
contention: ideal
)",
                                            "demo.yaml");
  CHECK(cluster.name == "demo");
  REQUIRE(cluster.groups.size() == 2);
  const NodeGroup& a100 = cluster.groups[0];
  CHECK(a100.gpu.name == "A100-SXM4-80GB");
  CHECK(a100.gpus_per_node == 8);
  CHECK(a100.count == NodeCount{0, 16});
  CHECK(a100.nics_per_node == 8);
  CHECK(a100.nic.bandwidth == gigabits_per_second(200));  // 1600 Gbit/s over 8 NICs
  CHECK(a100.gpu_link.bandwidth == gigabytes_per_second(300));
  CHECK(a100.price == DollarsPerHour(32.77));
  const NodeGroup& h100 = cluster.groups[1];
  CHECK(h100.gpu.name == "H100-SXM5-80GB");
  CHECK(h100.count == NodeCount{8, 8});
  CHECK(h100.gpu_link == LinkSpec{gigabytes_per_second(450), microseconds(1)});
  CHECK(h100.nic == LinkSpec{gigabits_per_second(400), microseconds(2)});
  CHECK(h100.region == "b");
  CHECK(cluster.fabric.nodes_per_leaf == 16);
  CHECK(cluster.fabric.oversubscription == 2);
  CHECK(cluster.fabric.latency == microseconds(1));
  CHECK(cluster.fabric.regions ==
        std::vector<RegionLink>{{"a", "b", {gigabits_per_second(10), milliseconds(20)}}});
  CHECK(cluster.contention == Contention::ideal);
}

TEST_CASE("what a cluster file leaves out has the defaults that the README states") {
  const ClusterSpec cluster = parse_cluster(
      "groups: [{name: g, gpu: T4, gpus_per_node: 4, count: 1, nic_bandwidth: 50Gbps}]", "test.yaml");
  const NodeGroup& group = cluster.groups[0];
  CHECK(cluster.name == "cluster");
  CHECK(cluster.contention == Contention::shared);
  CHECK(cluster.fabric == Fabric{});
  CHECK(group.region == "default");
  CHECK(group.nics_per_node == 1);
  CHECK_FALSE(group.price.has_value());
  CHECK(group.gpu_link.bandwidth == gigabytes_per_second(16));  // PCIe 3.0 x16, one direction
  CHECK(group.gpu_link.latency == microseconds(0.5));           // half of NCCL's 1.0 us a hop over PCIe
  CHECK(group.nic.latency == microseconds(1.35));  // half of NCCL's 2.7 us a hop over the network
  CHECK(only_group("gpu: V100, gpus_per_node: 1, count: 1, nic_bandwidth: 1Gbps").gpu_link.latency ==
        microseconds(0.3));  // half of NCCL's 0.6 us a hop over NVLink
}

TEST_CASE("leaves have the latency of a switch unless the file says another") {
  const std::string groups = "groups: [{name: g, instance: p5.48xlarge, count: 4}]\n";
  CHECK(parse_cluster(groups + "fabric: {nodes_per_leaf: 2}", "t").fabric.latency == microseconds(0.13));
  CHECK(parse_cluster(groups + "fabric: {nodes_per_leaf: 2, latency: 0s}", "t").fabric.latency == Seconds(0));
}

TEST_CASE("an instance brings its GPUs, NICs and price, and the file overrides them") {
  const NodeGroup plain = only_group("instance: p4d.24xlarge, count: 2");
  CHECK(plain.gpu.name == "A100-SXM4-40GB");
  CHECK(plain.nics_per_node == 4);
  CHECK(plain.nic.bandwidth == gigabits_per_second(100));  // 400 Gbit/s over 4 NICs
  CHECK(plain.price == DollarsPerHour(21.957642));
  CHECK(plain.price_source.find("AWS us-east-1 on demand, 2026-01-21") == 0);
  const NodeGroup fewer = only_group("instance: p4d.24xlarge, count: 2, nics_per_node: 2");
  CHECK(fewer.nic.bandwidth == gigabits_per_second(200));  // the node's 400 Gbit/s stay
  const NodeGroup other =
      only_group("instance: p4d.24xlarge, count: 2, nic_bandwidth: 25Gbps, price: 1 USD/h");
  CHECK(other.nics_per_node == 4);
  CHECK(other.nic.bandwidth == gigabits_per_second(25));
  CHECK(other.price == DollarsPerHour(1));
  CHECK(other.price_source == "given in the cluster file");
}

TEST_CASE("the host of a node is that of its instance, the GPUs' usual one, or as the file says") {
  // 96 vCPUs, 1152 GiB; PCIe 4.0 x16; two sockets of 8 channels of DDR4-3200: 2 x 8 x 25.6 GB/s.
  const HostSpec instance = only_group("instance: p4d.24xlarge, count: 2").host;
  CHECK(instance == HostSpec{gibibytes(1152), gigabytes_per_second(409.6), gigabytes_per_second(32)});
  const std::string two = "gpu: H100, gpus_per_node: 2, count: 1, nic_bandwidth: 1Gbps";
  CHECK(only_group(two).host ==
        HostSpec{gibibytes(512), gigabytes_per_second(614.4 / 4), gigabytes_per_second(64)});
  CHECK(only_group(two + ", host_memory: 1TiB, host_memory_bandwidth: 100GBps, host_link_bandwidth: 20GBps")
            .host == HostSpec{gibibytes(1024), gigabytes_per_second(100), gigabytes_per_second(20)});
  // Four GPUs on two Grace of 480 GB at 512 GB/s.
  CHECK(only_group("gpu: GB200, gpus_per_node: 4, count: 1, nic_bandwidth: 1Gbps").host ==
        HostSpec{Bytes(960e9), gigabytes_per_second(1024), gigabytes_per_second(450), 1.2, 2.75});
  const HostSpec fast = only_group(two + ", host_pace: 0.8").host;
  CHECK(fast.pace == 0.8);
  CHECK(fast.python_pace == 0.8);
  CHECK(only_group(two + ", host_pace: 0.8, host_python_pace: 2").host.python_pace == 2);
}

TEST_CASE("a group may say how much of its cards is usable, which is written back") {
  const std::string two = "gpu: H100, gpus_per_node: 2, count: 1, nic_bandwidth: 1Gbps";
  CHECK_FALSE(only_group(two).usable_memory);
  CHECK(only_group(two + ", usable_memory: 70GiB").usable_memory == gibibytes(70));
  const ClusterSpec cluster =
      parse_cluster("{name: c, groups: [{name: a, " + two + ", usable_memory: 70GiB}]}", "c.yaml");
  CHECK(parse_cluster(to_yaml(cluster), "again.yaml") == cluster);
  CHECK_THAT(input_error([&] { only_group(two + ", usable_memory: 100GiB"); }), contains_text("of its card"));
}

TEST_CASE("pricing picks the column of the price list and price_region the row") {
  CHECK(only_group("instance: p4d.24xlarge, count: 1, pricing: reserved_1y").price ==
        DollarsPerHour(13.921094));
  CHECK(only_group("instance: p5.48xlarge, count: 1, price_region: us-west-1").price == DollarsPerHour(68.8));
  CHECK(only_group("instance: azure-a100-80gb, count: 1, pricing: spot, price_region: eastus2").price ==
        DollarsPerHour(3.611254));
}

TEST_CASE("spot nodes are taken away, others stay unless the file says how often they fail") {
  const std::string a100 = "instance: azure-a100-80gb, count: 1";
  CHECK_FALSE(only_group(a100).interrupted_every);
  CHECK(only_group(a100 + ", pricing: spot").interrupted_every == hours(10));
  CHECK(only_group(a100 + ", pricing: spot, interrupted_every: 3d").interrupted_every == hours(72));
  CHECK(only_group("gpu: T4, gpus_per_node: 4, nic_bandwidth: 1Gbps, count: 1, interrupted_every: 9h")
            .interrupted_every == hours(9));
}

TEST_CASE("a pricing for the whole cluster stands in for those of groups at list price, and for no other") {
  const std::string yaml =
      "groups:\n  - {name: a, instance: azure-a100-80gb, count: 1, pricing: on_demand}\n"
      "  - {name: b, instance: p5.48xlarge, count: 1, price: 7 USD/h}\n";
  const ClusterSpec cluster = parse_cluster(yaml, "c.yaml", Pricing::spot);
  CHECK(cluster.groups[0].price == DollarsPerHour(3.6047));
  CHECK(cluster.groups[0].interrupted_every == hours(10));
  CHECK(cluster.groups[1].price == DollarsPerHour(7));
  CHECK_FALSE(cluster.groups[1].interrupted_every);
  CHECK_THROWS_WITH(
      parse_cluster("groups: [{name: b, instance: p5.48xlarge, count: 1}]", "c.yaml", Pricing::spot),
      contains_text("--pricing") && contains_text("p5.48xlarge"));
  CHECK_THROWS_WITH(parse_cluster("groups: [{name: b, instance: p5.48xlarge, count: 1, price: 7 USD/h}]",
                                  "c.yaml", Pricing::spot),
                    contains_text("'spot' and a cluster without a group at list price") &&
                        contains_text("c.yaml:1: groups"));
}

TEST_CASE("the network region picks the row too when the price list has it, and price_region wins over it") {
  CHECK(only_group("instance: p5.48xlarge, count: 1, region: us-west-1").price == DollarsPerHour(68.8));
  CHECK(only_group("instance: p5.48xlarge, count: 1, region: us-west-1, price_region: us-east-1").price ==
        DollarsPerHour(55.04));
  CHECK(only_group("instance: p5.48xlarge, count: 1, region: my-hall").price ==
        DollarsPerHour(55.04));  // first row
}

TEST_CASE("a GPU that no catalog knows is given with its numbers") {
  const NodeGroup group = only_group(
      "count: 1, gpus_per_node: 4, nic_bandwidth: 100Gbps, gpu: {name: X1, memory: 100GiB, memory_bandwidth: "
      "2TBps, "
      "bf16: 300TFLOPS, link_bandwidth: 100GBps, multiprocessors: 90, l2_cache: 30MiB}");
  CHECK(group.gpu.name == "X1");
  CHECK(group.gpu.memory == gibibytes(100));
  CHECK(group.gpu.bf16 == teraflops(300));
  CHECK_FALSE(group.gpu.fp8.has_value());
  CHECK(group.gpu.source == "given by the user");
  CHECK(group.gpu_link.bandwidth == gigabytes_per_second(100));
}

TEST_CASE("cards without peer access have a link through their host, as fast as hosts of their time are") {
  const auto link = [](const std::string& gpu, int gpus) {
    const ClusterSpec cluster =
        parse_cluster("groups: [{name: g, gpu: " + gpu + ", gpus_per_node: " + std::to_string(gpus) +
                          ", count: 1, nic_bandwidth: 100Gbps}]",
                      "c.yaml");
    return cluster.groups.front().gpu_link.bandwidth;
  };
  CHECK(link("Titan RTX", 8) == BytesPerSecond(16e9));  // PCIe 3.0
  CHECK(link("RTX 3090", 8) == BytesPerSecond(16e9));
  CHECK(link("RTX 4090", 8) == BytesPerSecond(24e9));
  CHECK(link("RTX 5090", 8) == BytesPerSecond(32e9));
  CHECK(link("RTX 5090", 2) == BytesPerSecond(32e9));
  CHECK(link("RTX 3090", 2) == find_gpu("RTX 3090", "test").link_bandwidth);  // their bridge
  CHECK(link("RTX A6000", 8) == BytesPerSecond(32e9));
  const std::string own =
      "groups: [{name: g, gpu: {name: mine, memory: 24GiB, memory_bandwidth: 1TBps, fp16: 100TFLOPS, "
      "link: PCIe 5.0 x16, link_bandwidth: 64GBps, multiprocessors: 80, l2_cache: 6MiB, peer_access: false, "
      "inline_ecc: true, sustained: 0.7, sustained_long: 0.9, sustained_fp32: 1.9}, "
      "gpus_per_node: 4, count: 1, nic_bandwidth: 100Gbps}]";
  const ClusterSpec cluster = parse_cluster(own, "c.yaml");
  CHECK(cluster.groups.front().gpu_link.bandwidth == BytesPerSecond(16e9));
  CHECK(cluster.groups.front().gpu.inline_ecc);
  CHECK(parse_cluster(to_yaml(cluster), "c.yaml") == cluster);
  std::string faster = own;
  faster.replace(faster.find("peer_access: false"), 18, "peer_access: false, through_host: 20GBps");
  const ClusterSpec host = parse_cluster(faster, "c.yaml");
  CHECK(host.groups.front().gpu_link.bandwidth == BytesPerSecond(20e9));
  CHECK(parse_cluster(to_yaml(host), "c.yaml") == host);
  faster.replace(faster.find("false, through"), 5, "true");
  CHECK_THROWS_WITH(parse_cluster(faster, "c.yaml"), Catch::Contains("peer_access: false beside it"));
}

TEST_CASE("the built-in clusters are read by name") {
  const std::vector<std::string> names = builtin_cluster_names();
  for (const char* name :
       {"demo-a100-h100", "a100-64", "a100-64-scattered", "h100-512", "amp-v100-t4", "amp-v100", "amp-t4"}) {
    INFO(name);
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
    CHECK(read_cluster(name).name == name);
  }
}

TEST_CASE("the demo cluster has up to 128 A100 and 64 H100 at Azure's list prices") {
  const ClusterSpec demo = read_cluster("demo-a100-h100");
  REQUIRE(demo.groups.size() == 2);
  CHECK(demo.groups[0].count == NodeCount{0, 16});
  CHECK(demo.groups[0].gpu.name == "A100-SXM4-80GB");
  CHECK(demo.groups[0].price == DollarsPerHour(32.77));
  CHECK(demo.groups[1].count == NodeCount{0, 8});
  CHECK(demo.groups[1].gpu.name == "H100-SXM5-80GB");
  CHECK(demo.groups[1].price == DollarsPerHour(98.32));
}

TEST_CASE("AMP's cluster has the bandwidths of the paper") {
  const ClusterSpec amp = read_cluster("amp-v100-t4");
  REQUIRE(amp.groups.size() == 2);
  CHECK(amp.groups[0].count == NodeCount{3, 3});
  CHECK(amp.groups[0].gpus_per_node == 4);
  CHECK(amp.groups[0].gpu_link.bandwidth == gigabits_per_second(170));
  CHECK(amp.groups[0].nic.bandwidth == gigabits_per_second(10));
  CHECK(amp.groups[1].count == NodeCount{1, 1});
  CHECK(amp.groups[1].gpus_per_node == 4);
  CHECK(amp.groups[1].gpu_link.bandwidth == gigabits_per_second(50));
  CHECK(amp.groups[1].nic.bandwidth == gigabits_per_second(50));
}

TEST_CASE("a built-in cluster written out is read back equal") {
  for (const std::string& name : builtin_cluster_names()) {
    const ClusterSpec cluster = read_cluster(name);
    const std::string yaml = to_yaml(cluster);
    INFO(yaml);
    CHECK(parse_cluster(yaml, "again.yaml") == cluster);
  }
}

TEST_CASE("every instance with a known network makes a cluster, the others ask for nic_bandwidth") {
  for (const InstanceSpec& instance : instance_catalog()) {
    INFO(instance.name);
    const std::string keys = "instance: \"" + instance.name + "\", count: 1";
    if (instance.network) {
      const NodeGroup group = only_group(keys);
      CHECK(group.nic.bandwidth * group.nics_per_node == *instance.network);
    } else {
      CHECK_THROWS_AS(only_group(keys), InputError);
      CHECK(only_group(keys + ", nic_bandwidth: 10Gbps").nic.bandwidth == gigabits_per_second(10));
    }
  }
}
