// Laws on random input: what is written is read back, and no bytes at all bring the readers down.
#include <algorithm>
#include <random>

#include "platforms/cluster.hpp"
#include "platforms/yaml.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

using namespace orrery;

namespace {

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool coin() { return integer(0, 1) == 1; }
  double real(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  std::size_t index(std::size_t size) {
    return static_cast<std::size_t>(integer(0, static_cast<int>(size) - 1));
  }

  std::string text(int longest) {
    // What YAML itself gives a meaning to, line ends, and a letter of two bytes.
    const std::vector<std::string> pieces = {"a", "Z", "0", " ", "\"", "'",  "\\", ":",  "#",
                                             "-", "{", "}", "[", "]",  ",",  "&",  "*",  "!",
                                             "|", ">", "%", "@", "~",  "\n", "\t", "\r", "\xc3\xa4"};
    std::string result;
    for (int i = integer(0, longest); i > 0; --i) result += pieces[index(pieces.size())];
    return result;
  }

  std::string bytes(int longest) {
    std::string result;
    for (int i = integer(0, longest); i > 0; --i) result += static_cast<char>(integer(0, 255));
    return result;
  }

 private:
  std::mt19937 random_;
};

LinkSpec random_link(Draw& draw) {
  return {BytesPerSecond(std::pow(10.0, draw.real(6, 13))),
          draw.coin() ? Seconds(0) : Seconds(draw.real(1e-9, 1e-1))};
}

GpuSpec random_gpu(Draw& draw) {
  if (draw.coin()) return gpu_catalog()[draw.index(gpu_catalog().size())];
  GpuSpec gpu = gpu_catalog()[draw.index(gpu_catalog().size())];
  gpu.name = draw.text(10);
  gpu.aliases = {draw.text(3)};
  gpu.memory = Bytes(draw.real(1e9, 1e12));
  gpu.fp8 = draw.coin() ? std::optional(FlopsPerSecond(draw.real(1e12, 1e16))) : std::nullopt;
  gpu.power = Watts(draw.real(gpu.power_limit.value_or(Watts(0)).value(), 2000));
  gpu.source = draw.text(20);
  return gpu;
}

NodeGroup random_group(Draw& draw, int number) {
  NodeGroup group;
  group.name = "group-" + std::to_string(number);
  group.gpu = random_gpu(draw);
  group.nics_per_node = draw.integer(1, 8);
  group.gpus_per_node = group.nics_per_node * draw.integer(1, 4);
  group.count.minimum = draw.integer(0, 20);
  group.count.maximum = std::max(1, group.count.minimum + draw.integer(0, 20));
  group.gpu_link = random_link(draw);
  group.nic = random_link(draw);
  if (draw.coin()) {
    group.pcie_switches = group.nics_per_node;
    group.pcie_uplink = random_link(draw);
  }
  if (draw.coin()) {
    group.price = DollarsPerHour(draw.coin() ? 0.0 : draw.real(0, 200));
    group.price_source = draw.text(20);
  }
  if (draw.coin())
    group.host = {Bytes(draw.real(1e9, 1e13)), random_link(draw).bandwidth, random_link(draw).bandwidth,
                  draw.real(kLeastPace, kMostPace)};
  group.region = "region" + std::to_string(draw.integer(0, 2));
  return group;
}

LinkOverride random_override(Draw& draw) {
  const std::vector<std::string> names = {"*", "*.up", "group-*.node0.*", "*nic0.down"};
  LinkOverride change{names[draw.index(names.size())], {}, {}, {}, LinkState::up};
  if (draw.coin()) change.bandwidth = random_link(draw).bandwidth;
  if (!change.bandwidth && draw.coin()) change.factor = draw.real(0.001, 10);
  if (draw.coin()) change.latency = random_link(draw).latency;
  if (draw.coin()) change.state = draw.coin() ? std::optional(LinkState::down) : std::nullopt;
  if (!change.bandwidth && !change.factor && !change.latency) change.state = LinkState::down;
  return change;
}

ClusterSpec random_cluster(Draw& draw) {
  ClusterSpec cluster;
  cluster.name = draw.text(12);
  std::vector<std::string> regions;
  for (int i = draw.integer(1, 4); i > 0; --i) {
    cluster.groups.push_back(random_group(draw, i));
    const std::string& region = cluster.groups.back().region;
    if (std::find(regions.begin(), regions.end(), region) != regions.end()) continue;
    for (const std::string& other : regions)
      cluster.fabric.regions.push_back(
          {region, other, random_link(draw), DollarsPerGigabyte(draw.coin() ? draw.real(0, 1) : 0)});
    regions.push_back(region);
  }
  cluster.fabric.nodes_per_leaf = draw.integer(0, 8);
  if (cluster.fabric.nodes_per_leaf > 0) {
    cluster.fabric.oversubscription = draw.real(1, 16);
    cluster.fabric.latency = Seconds(draw.real(0, 1e-5));
    cluster.fabric.kind = draw.coin() ? FabricKind::rail_optimised : FabricKind::fat_tree;
    cluster.fabric.leaves_per_pod = draw.integer(0, 2);
    if (cluster.fabric.leaves_per_pod > 0) cluster.fabric.pod_oversubscription = draw.real(1, 16);
    if (draw.coin()) {  // the last node on the first leaf
      NodeGroup& group = cluster.groups.back();
      for (int node = group.count.maximum - 1; node >= 0; --node)
        group.leaves.push_back(node / cluster.fabric.nodes_per_leaf);
    }
  }
  if (draw.coin()) cluster.checkpoint.interval = Seconds(draw.real(1, 1e5));
  if (draw.coin()) cluster.checkpoint = {Seconds(draw.real(1, 1e3)), Seconds(draw.real(0, 1e3)), {}};
  if (draw.coin()) cluster.pue = draw.real(1, 2);
  if (draw.coin()) cluster.groups.front().interrupted_every = Seconds(draw.real(1, 1e6));
  cluster.contention = draw.coin() ? Contention::shared : Contention::ideal;
  for (int i = std::max(0, draw.integer(-2, 3)); i > 0; --i) cluster.links.push_back(random_override(draw));
  return cluster;
}

const std::string kCluster = R"(name: demo
groups:
  - name: a100
    instance: Standard_ND96amsr_A100_v4 # comment
    count: 0..16
    region: &r a
    pricing: spot
  - {name: "h100", gpu: H100, gpus_per_node: 8, count: 8, region: b, gpu_link_bandwidth: 450GBps, nics_per_node: 8,
     nic_bandwidth: 400Gbps, nic_latency: 2us, price: 98.32 USD/h}
fabric: {nodes_per_leaf: 16, oversubscription: 2, latency: 1us,
         regions: [{from: *r, to: b, bandwidth: 10Gbps, latency: 20ms}]}
contention: shared
)";

// A few edits: bytes replaced, inserted, removed, or a piece of the text repeated elsewhere.
std::string mutated(std::string text, Draw& draw) {
  for (int edits = draw.integer(1, 4); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = draw.index(text.size());
    const int kind = draw.integer(0, 4);
    if (kind == 0) text[at] = static_cast<char>(draw.integer(0, 255));
    if (kind == 1) text.insert(at, draw.text(4));
    if (kind == 2) text.erase(at, draw.index(20) + 1);
    if (kind == 3) text.insert(at, text.substr(draw.index(text.size()), draw.index(60) + 1));
    if (kind == 4) text[at] = "0123456789-.:{}[]&*!|>%\"'\n "[draw.index(27)];
  }
  return text;
}

// True when the text was read, false when it was refused as wrong input; anything else fails the test.
bool is_read(const std::string& text) {
  try {
    const ClusterSpec cluster = parse_cluster(text, "random.yaml");
    REQUIRE(parse_cluster(to_yaml(cluster), "again.yaml") == cluster);
    return true;
  } catch (const InputError& error) {
    REQUIRE(std::string(error.what()).find('\n') == std::string::npos);
    return false;
  }
}

}  // namespace

TEST_CASE("a random cluster written as YAML is read back equal") {
  Draw draw(1);
  for (int i = 0; i < 500; ++i) {
    const ClusterSpec cluster = random_cluster(draw);
    const std::string yaml = to_yaml(cluster);
    INFO(yaml);
    REQUIRE(parse_cluster(yaml, "random.yaml") == cluster);
  }
}

TEST_CASE("random bytes are refused as wrong input, never worse") {
  Draw draw(2);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = draw.bytes(200);
    REQUIRE_FALSE(is_read(text));
  }
}

TEST_CASE("random YAML marks are refused as wrong input, never worse") {
  Draw draw(3);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = draw.text(80);
    INFO(text);
    REQUIRE_FALSE(is_read(text));
  }
}

TEST_CASE("a mutated cluster file is read or refused, never worse") {
  Draw draw(4);
  REQUIRE(is_read(kCluster));
  int read = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string text = mutated(kCluster, draw);
    INFO(text);
    read += is_read(text) ? 1 : 0;
  }
  // Edits in comments and numbers leave a valid file; most others do not.
  CHECK(read > 100);
  CHECK(read < 4000);
}

TEST_CASE("random text is no quantity or a finite one, never worse") {
  Draw draw(5);
  const std::string letters = "0123456789.-+eE kKMGTPiBbpsuUSD/hWFLOnaf";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (int length = draw.integer(0, 12); length > 0; --length) text += letters[draw.index(letters.size())];
    INFO(text);
    try {
      const double value = parse_quantity<BytesPerSecond>(text, "random").value();
      REQUIRE(std::isfinite(value));
      REQUIRE(value >= 0);
    } catch (const InputError&) {
    }
  }
}
