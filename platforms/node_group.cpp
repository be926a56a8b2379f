#include "platforms/node_group.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "platforms/instance.hpp"

namespace orrery {

namespace {

constexpr int kMostNodes = 100'000;
constexpr int kMostGpusPerNode = 1024;

// Bamboo (arXiv 2204.12013) replays spot traces of EC2 and Google that lose 10, 16 and 33 % of their nodes an
// hour (recalled); the least of these is assumed.
constexpr Seconds kSpotNodeLasts = hours(10);

bool bridges_fall_short(const NodeGroup& group) {
  constexpr int kBridged = 2;
  return group.gpu.link == "NVLink bridge" && group.gpus_per_node > kBridged;
}

std::optional<int> parse_count(std::string_view digits) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0 || value > kMostNodes)
    return std::nullopt;
  return value;
}

// "16" or "0..16".
NodeCount read_count(const YamlValue& value) {
  const std::string expected = "a number of nodes or a range, up to 100000, for example 16 or 0..16";
  if (value.kind() != YamlValue::Kind::scalar) value.fail(expected);
  const std::string text = value.text();
  const std::size_t dots = text.find("..");
  const std::optional<int> low = parse_count(std::string_view(text).substr(0, dots));
  const std::optional<int> high =
      dots == std::string::npos ? low : parse_count(std::string_view(text).substr(dots + 2));
  if (!low || !high) value.fail(expected);
  if (*low > *high) value.fail("a range whose first number is not above its second");
  if (*high == 0) value.fail("a count whose maximum is at least 1");
  return {*low, *high};
}

int read_small(const YamlValue& value) {
  return static_cast<int>(value.integer(1, kMostGpusPerNode));
}

const InstancePrice& find_price_row(const InstanceSpec& instance, const YamlValue& region) {
  std::vector<std::string> names;
  for (const InstancePrice& row : instance.prices) {
    if (same_name(row.region, region.text())) return row;
    names.push_back(row.region);
  }
  throw InputError(region.place(), region.found() + did_you_mean(region.text(), names),
                   "a region of the price list of " + instance.name + ": " + comma_list(names));
}

// "spot" of on_demand, spot and reserved_1y as people say it.
std::string said(Pricing pricing) {
  return pricing == Pricing::on_demand ? "on demand"
         : pricing == Pricing::spot    ? "spot"
                                       : "reserved for 1 year";
}

// The row of `price_region`; else of the group's own region where the price list has it; else the first row.
void read_catalog_price(const YamlValue& map, const InstanceSpec& instance, std::optional<Pricing> chosen,
                        NodeGroup& group) {
  const auto written = map.find("pricing");
  const Pricing own_pricing = written ? parse_pricing(written->text(), written->place()) : Pricing::on_demand;
  const Pricing pricing = chosen.value_or(own_pricing);
  const std::optional<YamlValue> region = map.find("price_region");
  if (instance.prices.empty()) {
    if (region) region->fail("no price_region, because the price list has no row for " + instance.name);
    return;
  }
  const auto own =
      std::find_if(instance.prices.begin(), instance.prices.end(),
                   [&](const InstancePrice& row) { return same_name(row.region, group.region); });
  const InstancePrice& row = region ? find_price_row(instance, *region)
                                    : (own == instance.prices.end() ? instance.prices.front() : *own);
  group.price = row.of(pricing);
  if (group.price) {
    group.price_source =
        instance.provider + " " + row.region + " " + said(pricing) + ", " + row.date + ", " + row.source;
    if (pricing == Pricing::spot) group.interrupted_every = kSpotNodeLasts;
  } else if (chosen || written) {
    throw InputError(chosen ? "--pricing" : written->place(), "'" + std::string(to_text(pricing)) + "'",
                     "a pricing that the price list has for " + instance.name + " in " + row.region +
                         ", or the key price with the amount");
  }
}

void read_price(const YamlValue& map, const InstanceSpec* instance, std::optional<Pricing> chosen,
                NodeGroup& group) {
  const std::optional<YamlValue> price = map.find("price");
  if (price || instance == nullptr) {
    for (const char* key : {"pricing", "price_region"}) {
      if (const auto value = map.find(key)) {
        throw InputError(value->place(),
                         std::string("the key ") + key + (price ? " beside price" : " without instance"),
                         "either price, or instance with pricing and price_region");
      }
    }
  }
  const std::optional<YamlValue> source = map.find("price_source");
  if (source && !price) source->fail("price_source only beside price");
  if (price) {
    group.price = price->quantity<DollarsPerHour>();
    group.price_source = source ? source->text() : "given in the cluster file";
  } else if (instance != nullptr) {
    read_catalog_price(map, *instance, chosen, group);
  }
  if (const auto every = map.find("interrupted_every"))
    group.interrupted_every = every->positive_quantity<Seconds>();
}

// The GPUs come from the catalog's instance or from `gpu` and `gpus_per_node`; null when there is no
// instance.
const InstanceSpec* read_gpus(const YamlValue& map, NodeGroup& group) {
  const std::optional<YamlValue> instance_name = map.find("instance");
  const std::optional<YamlValue> gpu = map.find("gpu");
  if (instance_name.has_value() == gpu.has_value()) {
    throw InputError(map.place(), gpu ? "both instance and gpu" : "neither instance nor gpu",
                     "one of them: instance: p5.48xlarge, or gpu: H100 with gpus_per_node: 8");
  }
  if (gpu) {
    group.gpu = gpu->kind() == YamlValue::Kind::map ? parse_gpu(*gpu) : find_gpu(gpu->text(), gpu->place());
    group.gpus_per_node = read_small(map.at("gpus_per_node"));
    return nullptr;
  }
  if (const auto extra = map.find("gpus_per_node"))
    extra->fail("no gpus_per_node, because the instance says it");
  const InstanceSpec& instance = find_instance(instance_name->text(), instance_name->place());
  group.gpu = find_gpu(instance.gpu, instance_name->place());
  group.gpus_per_node = instance.gpus;
  return &instance;
}

// Whether the fabric's leaves have room is for the cluster to say.
void read_leaves(const YamlValue& map, NodeGroup& group) {
  const auto leaves = map.find("leaves");
  if (!leaves) return;
  for (const YamlValue& leaf : leaves->items())
    group.leaves.push_back(static_cast<int>(leaf.integer(0, group.count.maximum - 1)));
  if (group.leaves.size() != static_cast<std::size_t>(group.count.maximum))
    leaves->fail("the leaf of each of the " + std::to_string(group.count.maximum) + " nodes of `count`");
}

// With PCIe switches a group is joined by PCIe even where its GPU could have NVLink (A100 PCIe without its
// bridge).
void read_pcie_switches(const YamlValue& map, NodeGroup& group) {
  const auto switches = map.find("pcie_switches");
  if (!switches) return;
  const bool could_have_nvlink = has_nvlink(group);
  group.pcie_switches = static_cast<int>(switches->integer(0, kMostGpusPerNode));
  if (group.pcie_switches == 0) return;
  if (group.gpus_per_node % group.pcie_switches != 0) {
    switches->fail("a number that divides the " + std::to_string(group.gpus_per_node) + " GPUs of a node");
  }
  if (could_have_nvlink && !map.find("gpu_link_bandwidth")) {
    switches->fail("gpu_link_bandwidth beside it, because the catalog has only the " + group.gpu.link +
                   " of the GPU " + group.gpu.name);
  }
}

void read_gpu_link(const YamlValue& map, NodeGroup& group) {
  group.gpu_link = usual_gpu_link(group);
  if (const auto bandwidth = map.find("gpu_link_bandwidth"))
    group.gpu_link.bandwidth = bandwidth->positive_quantity<BytesPerSecond>();
  if (const auto latency = map.find("gpu_link_latency"))
    group.gpu_link.latency = latency->quantity<Seconds>();
}

// The uplink is as fast as one GPU's link and adds no latency: NCCL's table (kPcieLatency) has one number for
// all of PCIe.
void read_pcie_uplinks(const YamlValue& map, NodeGroup& group) {
  if (group.pcie_switches > 0) group.pcie_uplink = {group.gpu_link.bandwidth, Seconds(0)};
  for (const char* key : {"pcie_uplink_bandwidth", "pcie_uplink_latency"}) {
    const auto value = map.find(key);
    if (!value || group.pcie_switches > 0) continue;
    throw InputError(value->place(), std::string("the key ") + key, "pcie_switches above 0 beside it");
  }
  if (const auto bandwidth = map.find("pcie_uplink_bandwidth")) {
    group.pcie_uplink.bandwidth = bandwidth->positive_quantity<BytesPerSecond>();
  }
  if (const auto latency = map.find("pcie_uplink_latency"))
    group.pcie_uplink.latency = latency->quantity<Seconds>();
}

void read_nics(const YamlValue& map, const InstanceSpec* instance, NodeGroup& group) {
  const auto count = map.find("nics_per_node");
  const auto bandwidth = map.find("nic_bandwidth");
  const auto latency = map.find("nic_latency");
  group.nics_per_node = count ? read_small(*count) : (instance != nullptr ? instance->nics : 1);
  if (group.gpus_per_node % group.nics_per_node != 0) {
    throw InputError(
        count ? count->place() : map.place(),
        std::to_string(group.nics_per_node) + " NICs for " + std::to_string(group.gpus_per_node) + " GPUs",
        "a nics_per_node that divides the GPUs of a node");
  }
  if (bandwidth) {
    group.nic.bandwidth = bandwidth->positive_quantity<BytesPerSecond>();
  } else if (instance != nullptr && instance->network) {
    group.nic.bandwidth = *instance->network / static_cast<double>(group.nics_per_node);
  } else {
    throw InputError(map.place(),
                     instance != nullptr
                         ? "the instance " + instance->name + ", whose network the catalog does not know"
                         : "no key 'nic_bandwidth'",
                     "the bandwidth of each NIC, for example nic_bandwidth: 100Gbps");
  }
  // NCCL's number for a hop over the network contains the way through PCIe, which has a link of its own here.
  const Seconds usual = group.pcie_switches > 0 ? kNicLatency - kPcieLatency : kNicLatency;
  const Seconds own = instance != nullptr ? instance->nic_latency.value_or(usual) : usual;
  group.nic.latency = latency ? latency->quantity<Seconds>() : own;
}

// The instance's memory, or what the GPUs of a node usually have in all.
void read_host(const YamlValue& map, const InstanceSpec* instance, NodeGroup& group) {
  group.host = usual_host(group.gpu, group.gpus_per_node);
  if (instance != nullptr && instance->host_memory) group.host.memory = *instance->host_memory;
  if (const auto memory = map.find("host_memory")) group.host.memory = memory->positive_quantity<Bytes>();
  if (const auto bandwidth = map.find("host_memory_bandwidth"))
    group.host.memory_bandwidth = bandwidth->positive_quantity<BytesPerSecond>();
  if (const auto link = map.find("host_link_bandwidth"))
    group.host.link = link->positive_quantity<BytesPerSecond>();
  read_host_paces(map, group.host);
}

}  // namespace

std::int64_t largest_gpus(const NodeGroup& group) {
  return std::int64_t{group.count.maximum} * group.gpus_per_node;
}

bool has_nvlink(const NodeGroup& group) {
  return group.pcie_switches == 0 && !group.gpu.link.starts_with("PCIe") && !bridges_fall_short(group);
}

LinkSpec usual_gpu_link(const NodeGroup& group) {
  // Cards without peer access exchange through their host as fast over PCIe 4.0 as over 3.0: 16 MB are
  // all-reduced by four RTX 3090 at 5.3 GB/s a GPU, by four Titan RTX at 4.9 (eth-easl/sailor cf2c8e3c,
  // Planner/baselines/Aceso/profiler/*/profiled-data-fp32/prim_OPT-350_all_reduce_4gpus.csv).
  // Two in a host are faster: pairs of eight sources ask for 16 to 26 GB/s, of which this is the middle. Ada
  // and Blackwell cards, whose hosts have PCIe 4.0 and 5.0, say their own in the catalog.
  constexpr BytesPerSecond kOfTwo{22e9}, kOfMany{16e9};
  const BytesPerSecond usual = group.gpus_per_node <= 2 ? kOfTwo : kOfMany;
  const BytesPerSecond through_host = group.gpu.through_host.value_or(usual);
  if (has_nvlink(group)) return {group.gpu.link_bandwidth, kNvlinkLatency};
  const BytesPerSecond link =
      bridges_fall_short(group) ? usual_host(group.gpu, group.gpus_per_node).link : group.gpu.link_bandwidth;
  return {group.gpu.peer_access ? link : std::min(link, through_host), kPcieLatency};
}

std::string parse_label(const YamlValue& value) {
  constexpr std::size_t kLongest = 64;
  const std::string label = value.text();
  const auto allowed = [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_');
  };
  if (label.empty() || label.size() > kLongest || !std::all_of(label.begin(), label.end(), allowed)) {
    value.fail("a name of 1 to 64 letters, digits, '-' and '_'");
  }
  return label;
}

NodeGroup parse_node_group(const YamlValue& map, std::optional<Pricing> pricing) {
  map.allow_keys({"name",
                  "instance",
                  "gpu",
                  "gpus_per_node",
                  "count",
                  "region",
                  "price",
                  "price_source",
                  "pricing",
                  "price_region",
                  "interrupted_every",
                  "gpu_link_bandwidth",
                  "gpu_link_latency",
                  "leaves",
                  "pcie_switches",
                  "pcie_uplink_bandwidth",
                  "pcie_uplink_latency",
                  "nics_per_node",
                  "nic_bandwidth",
                  "nic_latency",
                  "host_memory",
                  "host_memory_bandwidth",
                  "host_link_bandwidth",
                  "host_pace",
                  "host_python_pace",
                  "usable_memory"});
  NodeGroup group;
  group.name = parse_label(map.at("name"));
  if (const auto region = map.find("region")) group.region = parse_label(*region);
  const InstanceSpec* instance = read_gpus(map, group);
  group.count = read_count(map.at("count"));
  read_leaves(map, group);
  read_pcie_switches(map, group);
  read_gpu_link(map, group);
  read_pcie_uplinks(map, group);
  read_nics(map, instance, group);
  read_host(map, instance, group);
  if (const auto usable = map.find("usable_memory")) {
    group.usable_memory = usable->positive_quantity<Bytes>();
    if (*group.usable_memory > group.gpu.memory)
      usable->fail("at most the " + to_text(group.gpu.memory) + " of its card");
  }
  read_price(map, instance, pricing, group);
  return group;
}

}  // namespace orrery
