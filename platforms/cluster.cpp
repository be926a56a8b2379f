#include "platforms/cluster.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include "platforms/embedded.hpp"
#include "platforms/errors.hpp"
#include "platforms/given_network.hpp"
#include "platforms/link_override.hpp"
#include "platforms/node_group.hpp"
#include "platforms/yaml.hpp"

extern "C" const orrery::EmbeddedRow orrery_embedded_platforms[];

namespace orrery {

namespace {

constexpr std::int64_t kMostGpus = 1'000'000;
constexpr std::string_view kFolder = "clusters/";
constexpr std::string_view kSuffix = ".yaml";

// From one port of an InfiniBand switch to another (NVIDIA Quantum data sheet, recalled): what a detour over
// the spine adds each way.
constexpr Seconds kSwitchLatency = microseconds(0.13);

std::vector<NodeGroup> read_groups(const YamlValue& list, std::optional<Pricing> pricing) {
  std::vector<NodeGroup> groups;
  std::int64_t gpus = 0;
  for (const YamlValue& item : list.items()) {
    const NodeGroup group = parse_node_group(item, pricing);
    for (const NodeGroup& earlier : groups) {
      if (earlier.name == group.name) item.at("name").fail("a name that no other group has");
    }
    gpus += largest_gpus(group);
    if (gpus > kMostGpus) {
      throw InputError(item.at("count").place(), "more than a million GPUs in all",
                       "a cluster of at most a million GPUs");
    }
    groups.push_back(group);
  }
  if (groups.empty()) throw InputError(list.place(), "an empty list", "at least one group of nodes");
  return groups;
}

std::string read_region_end(const YamlValue& value, const std::vector<std::string>& regions) {
  const std::string name = value.text();
  if (std::find(regions.begin(), regions.end(), name) == regions.end()) {
    value.fail("the region of a group" + did_you_mean(name, regions));
  }
  return name;
}

RegionLink read_region_link(const YamlValue& map, const std::vector<std::string>& regions) {
  map.allow_keys({"from", "to", "bandwidth", "latency", "price"});
  RegionLink region;
  region.from = read_region_end(map.at("from"), regions);
  region.to = read_region_end(map.at("to"), regions);
  if (region.from == region.to) map.at("to").fail("another region than from");
  region.link.bandwidth = map.at("bandwidth").positive_quantity<BytesPerSecond>();
  region.link.latency = map.at("latency").quantity<Seconds>();
  if (const auto price = map.find("price")) region.price = price->quantity<DollarsPerGigabyte>();
  return region;
}

std::vector<RegionLink> read_region_links(const YamlValue& list, const std::vector<std::string>& regions) {
  std::vector<RegionLink> links;
  for (const YamlValue& item : list.items()) {
    const RegionLink link = read_region_link(item, regions);
    if (link_between(links, link.from, link.to))
      throw InputError(item.place(), "a second link between " + link.from + " and " + link.to,
                       "one link between two regions (it goes both ways)");
    links.push_back(link);
  }
  return links;
}

void require_region_links(const std::vector<RegionLink>& links, const std::vector<std::string>& regions,
                          const std::string& place) {
  for (std::size_t a = 0; a < regions.size(); ++a) {
    for (std::size_t b = a + 1; b < regions.size(); ++b) {
      if (link_between(links, regions[a], regions[b])) continue;
      throw InputError(place, "no link between the regions " + regions[a] + " and " + regions[b],
                       "fabric: {regions: [{from: " + regions[a] + ", to: " + regions[b] +
                           ", bandwidth: 10Gbps, latency: 20ms}]}");
    }
  }
}

void refuse_keys(const YamlValue& map, std::initializer_list<const char*> keys, const std::string& why) {
  for (const char* key : keys) {
    if (const auto value = map.find(key))
      throw InputError(value->place(), std::string("the key ") + key, why);
  }
}

void require_room_on_leaves(const Fabric& fabric, const NodeGroup& group, const std::string& place) {
  std::map<int, int> nodes;  // by leaf
  for (const int leaf : group.leaves) {
    if (++nodes[leaf] <= fabric.nodes_per_leaf) continue;
    throw InputError(place,
                     "more than " + std::to_string(fabric.nodes_per_leaf) + " nodes of group " + group.name +
                         " on leaf " + std::to_string(leaf),
                     "at most nodes_per_leaf on each");
  }
}

// One big switch is a kind that follows from nodes_per_leaf: 0.
FabricKind read_kind(const YamlValue& map, int nodes_per_leaf) {
  const std::optional<YamlValue> value = map.find("kind");
  if (!value) return FabricKind::fat_tree;
  const std::string kind = value->text();
  const std::vector<std::string> kinds = {"switch", "fat-tree", "rail-optimised"};
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    value->fail("switch, fat-tree or rail-optimised" + did_you_mean(kind, kinds));
  }
  if (kind == "switch" && nodes_per_leaf > 0)
    value->fail("a kind with leaves beside nodes_per_leaf: fat-tree");
  if (kind != "switch" && nodes_per_leaf == 0) value->fail("nodes_per_leaf above 0 beside this kind");
  return kind == "rail-optimised" ? FabricKind::rail_optimised : FabricKind::fat_tree;
}

void read_leaves(const YamlValue& map, Fabric& fabric) {
  constexpr int kMostNodesPerLeaf = 100'000;
  if (const auto nodes = map.find("nodes_per_leaf")) {
    fabric.nodes_per_leaf = static_cast<int>(nodes->integer(0, kMostNodesPerLeaf));
  }
  fabric.kind = read_kind(map, fabric.nodes_per_leaf);
  if (fabric.nodes_per_leaf > 0) {
    fabric.latency = kSwitchLatency;
  } else {
    refuse_keys(map, {"oversubscription", "latency", "leaves_per_pod"},
                "nodes_per_leaf above 0 beside it (without leaves there is one big switch and no uplink)");
  }
  if (const auto factor = map.find("oversubscription")) fabric.oversubscription = factor->number(1, 1000);
  if (const auto leaves = map.find("leaves_per_pod")) {
    fabric.leaves_per_pod = static_cast<int>(leaves->integer(0, kMostNodesPerLeaf));
  }
  if (fabric.leaves_per_pod == 0) {
    refuse_keys(map, {"pod_oversubscription"}, "leaves_per_pod above 0 beside it");
  }
  if (const auto factor = map.find("pod_oversubscription"))
    fabric.pod_oversubscription = factor->number(1, 1000);
  if (const auto latency = map.find("latency")) fabric.latency = latency->quantity<Seconds>();
}

Fabric read_fabric(const YamlValue& root, const std::vector<std::string>& regions) {
  Fabric fabric;
  const std::optional<YamlValue> map = root.find("fabric");
  if (map) {
    map->allow_keys({"kind", "nodes_per_leaf", "oversubscription", "leaves_per_pod", "pod_oversubscription",
                     "latency", "regions"});
    read_leaves(*map, fabric);
    if (const auto links = map->find("regions")) fabric.regions = read_region_links(*links, regions);
  }
  require_region_links(fabric.regions, regions, map ? map->place() : root.place());
  return fabric;
}

Contention read_contention(const YamlValue& root) {
  const std::optional<YamlValue> value = root.find("contention");
  if (!value || value->text() == "shared") return Contention::shared;
  if (value->text() == "ideal") return Contention::ideal;
  value->fail("shared or ideal");
}

Checkpointing read_checkpoint(const YamlValue& root) {
  Checkpointing checkpoint;
  const auto map = root.find("checkpoint");
  if (!map) return checkpoint;
  map->allow_keys({"write", "restart", "interval"});
  if (const auto write = map->find("write")) checkpoint.write = write->positive_quantity<Seconds>();
  if (const auto restart = map->find("restart")) checkpoint.restart = restart->quantity<Seconds>();
  if (const auto interval = map->find("interval"))
    checkpoint.interval = interval->positive_quantity<Seconds>();
  return checkpoint;
}

std::optional<std::string_view> builtin_cluster(const std::string& name) {
  for (const EmbeddedFile& file : embedded_files(orrery_embedded_platforms)) {
    if (file.name == std::string(kFolder) + name + std::string(kSuffix)) return file.content;
  }
  return std::nullopt;
}

void require_list_price(const YamlValue& groups, Pricing pricing) {
  for (const YamlValue& group : groups.items()) {
    if (group.find("instance") && !group.find("price")) return;
  }
  throw InputError("--pricing",
                   "'" + std::string(to_text(pricing)) + "' and a cluster without a group at list price",
                   "a group with `instance` and without `price` in " + groups.place());
}

}  // namespace

std::vector<std::string> regions_of(const std::vector<NodeGroup>& groups) {
  std::vector<std::string> regions;
  for (const NodeGroup& group : groups) {
    if (std::find(regions.begin(), regions.end(), group.region) == regions.end())
      regions.push_back(group.region);
  }
  return regions;
}

const RegionLink* link_between(const std::vector<RegionLink>& links, const std::string& a,
                               const std::string& b) {
  const auto link = std::find_if(links.begin(), links.end(), [&](const RegionLink& one) {
    return (one.from == a && one.to == b) || (one.from == b && one.to == a);
  });
  return link == links.end() ? nullptr : &*link;
}

ClusterSpec parse_cluster(std::string_view yaml, const std::string& file, std::optional<Pricing> pricing) {
  const YamlValue root = YamlValue::parse(yaml, file);
  if (root.kind() != YamlValue::Kind::map) root.fail("a cluster: a map with the keys name and groups");
  root.allow_keys({"name", "groups", "fabric", "contention", "network", "links", "checkpoint", "pue"});
  ClusterSpec cluster;
  const auto name = root.find("name");
  cluster.name = name ? name->text() : "cluster";
  cluster.groups = read_groups(root.at("groups"), pricing);
  if (pricing) require_list_price(root.at("groups"), *pricing);
  cluster.fabric = read_fabric(root, regions_of(cluster.groups));
  for (const NodeGroup& group : cluster.groups) require_room_on_leaves(cluster.fabric, group, root.place());
  cluster.contention = read_contention(root);
  cluster.checkpoint = read_checkpoint(root);
  constexpr double kWorstSite = 10;
  if (const auto pue = root.find("pue")) cluster.pue = pue->number(1, kWorstSite);
  if (const auto network = root.find("network")) {
    if (const auto fabric = root.find("fabric")) fabric->fail("no fabric beside network");
    cluster.network = parse_given_network(*network, cluster.groups);
  }
  if (const auto links = root.find("links")) cluster.links = parse_link_overrides(*links, cluster);
  return cluster;
}

ClusterSpec read_cluster(const std::string& path_or_name, std::optional<Pricing> pricing) {
  return parse_cluster(read_cluster_text(path_or_name), path_or_name, pricing);
}

std::string read_cluster_text(const std::string& path_or_name) {
  if (const auto builtin = builtin_cluster(path_or_name)) return std::string(*builtin);
  std::error_code ignored;  // what exists but cannot be looked at is left to read_text_file
  if (std::filesystem::status(path_or_name, ignored).type() == std::filesystem::file_type::not_found) {
    throw InputError("cluster",
                     "no file and no built-in cluster " + quote_for_message(path_or_name) +
                         did_you_mean(path_or_name, builtin_cluster_names()),
                     "the path of a cluster file or a name of `orrery catalog clusters`");
  }
  return read_text_file(path_or_name);
}

std::vector<int> largest_counts(const ClusterSpec& cluster) {
  std::vector<int> counts;
  for (const NodeGroup& group : cluster.groups) counts.push_back(group.count.maximum);
  return counts;
}

std::vector<std::string> builtin_cluster_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_files(orrery_embedded_platforms)) {
    if (file.name.substr(0, kFolder.size()) != kFolder) continue;
    const std::size_t length = file.name.size() - kFolder.size() - kSuffix.size();
    names.emplace_back(file.name.substr(kFolder.size(), length));
  }
  return names;
}

}  // namespace orrery
