#include "platforms/topology.hpp"

#include <algorithm>
#include <limits>

#include "platforms/errors.hpp"
#include "platforms/link_override.hpp"

namespace orrery {

namespace {

// Links come in pairs: the way up, and right after it the way down.
int add_pair(std::vector<TopologyLink>& links, const std::string& name, const LinkSpec& spec) {
  links.push_back({name + ".up", spec, LinkState::up});
  links.push_back({name + ".down", spec, LinkState::up});
  return static_cast<int>(links.size()) - 2;
}

LinkSpec leaf_uplink(const Fabric& fabric, const NodeGroup& group) {
  const double nics = static_cast<double>(fabric.nodes_per_leaf) * group.nics_per_node;
  return {group.nic.bandwidth * (nics / fabric.oversubscription), fabric.latency};
}

std::vector<std::string> regions_of(const ClusterSpec& cluster) {
  std::vector<std::string> regions;
  for (const NodeGroup& group : cluster.groups) {
    if (std::find(regions.begin(), regions.end(), group.region) == regions.end())
      regions.push_back(group.region);
  }
  return regions;
}

const RegionLink& link_between(const Fabric& fabric, const std::string& a, const std::string& b) {
  const auto link =
      std::find_if(fabric.regions.begin(), fabric.regions.end(), [&](const RegionLink& candidate) {
        return (candidate.from == a && candidate.to == b) || (candidate.from == b && candidate.to == a);
      });
  ORRERY_ENSURE(link != fabric.regions.end());
  return *link;
}

// A link in each direction between every two regions; the entry of a region with itself is never used.
std::vector<std::vector<int>> add_region_links(std::vector<TopologyLink>& links, const Fabric& fabric,
                                               const std::vector<std::string>& regions) {
  std::vector<std::vector<int>> table(regions.size(), std::vector<int>(regions.size(), 0));
  for (std::size_t from = 0; from < regions.size(); ++from) {
    for (std::size_t to = 0; to < regions.size(); ++to) {
      if (from == to) continue;
      table[from][to] = static_cast<int>(links.size());
      const RegionLink& region = link_between(fabric, regions[from], regions[to]);
      links.push_back({"region." + regions[from] + "." + regions[to], region.link, LinkState::up});
    }
  }
  return table;
}

}  // namespace

Topology::Topology(ClusterSpec cluster, std::vector<int> nodes)
    : cluster_(std::move(cluster)), nodes_(std::move(nodes)) {
  ORRERY_ENSURE(nodes_.size() == cluster_.groups.size());
  const std::vector<std::string> regions = regions_of(cluster_);
  const int nodes_per_leaf = cluster_.fabric.nodes_per_leaf;
  int node_number = 0;
  int leaves = 0;
  for (std::size_t g = 0; g < nodes_.size(); ++g) {
    const NodeGroup& group = cluster_.groups[g];
    ORRERY_ENSURE(nodes_[g] >= group.count.minimum && nodes_[g] <= group.count.maximum);
    ORRERY_ENSURE(group.gpus_per_node > 0 && group.nics_per_node > 0 &&
                  group.gpus_per_node % group.nics_per_node == 0);
    first_gpu_.push_back(gpus());
    const int region =
        static_cast<int>(std::find(regions.begin(), regions.end(), group.region) - regions.begin());
    int leaf_link = 0;
    for (int n = 0; n < nodes_[g]; ++n) {
      if (nodes_per_leaf > 0 && n % nodes_per_leaf == 0) {
        leaf_link = add_pair(links_, "leaf" + std::to_string(leaves++), leaf_uplink(cluster_.fabric, group));
      }
      add_node({static_cast<int>(g), node_number++, 0}, {n, leaf_link, region});
    }
  }
  region_link_ = add_region_links(links_, cluster_.fabric, regions);
  apply_overrides(cluster_.links, links_);
  has_cut_ = std::any_of(links_.begin(), links_.end(),
                         [](const TopologyLink& link) { return link.state == LinkState::down; });
}

void Topology::add_node(Device first, Place place) {
  const NodeGroup& group = cluster_.groups[static_cast<std::size_t>(first.group)];
  const std::string node = group.name + ".node" + std::to_string(place.node_of_group);
  const int gpus_per_nic = group.gpus_per_node / group.nics_per_node;
  int nic_link = 0;
  for (int local = 0; local < group.gpus_per_node; ++local) {
    devices_.push_back({first.group, first.node, local});
    gpu_up_.push_back(add_pair(links_, node + ".gpu" + std::to_string(local), group.gpu_link));
    if (local % gpus_per_nic == 0) {
      nic_link = add_pair(links_, node + ".nic" + std::to_string(local / gpus_per_nic), group.nic);
    }
    nic_up_.push_back(nic_link);
    leaf_up_.push_back(place.leaf_link);
    region_of_.push_back(place.region);
  }
}

const NodeGroup& Topology::group_of(int gpu) const {
  return cluster_.groups[static_cast<std::size_t>(device(gpu).group)];
}

Route Topology::route(int from, int to) const {
  const Route route = way(from, to);
  ORRERY_ENSURE(!first_cut(route));
  return route;
}

std::optional<int> Topology::first_cut(const Route& route) const {
  if (!has_cut_) return std::nullopt;
  for (int i = 0; i < route.count; ++i) {
    const int link = route.links[static_cast<std::size_t>(i)];
    if (links_[static_cast<std::size_t>(link)].state == LinkState::down) return link;
  }
  return std::nullopt;
}

std::optional<std::string> Topology::route_obstacle(int from, int to) const {
  const std::optional<int> cut = first_cut(way(from, to));
  if (!cut) return std::nullopt;
  return "link " + links_[static_cast<std::size_t>(*cut)].name + " is down, so " + gpu_name(from) +
         " cannot send to " + gpu_name(to);
}

std::string Topology::gpu_name(int gpu) const {
  const NodeGroup& group = group_of(gpu);
  const Device& place = device(gpu);
  const int in_group = gpu - first_gpu(place.group);
  return "GPU " + std::to_string(gpu) + " (" + group.name + ".node" +
         std::to_string(in_group / group.gpus_per_node) + ".gpu" + std::to_string(place.local) + ")";
}

Route Topology::way(int from, int to) const {
  Route route;
  if (from == to) return route;
  const auto a = static_cast<std::size_t>(from);
  const auto b = static_cast<std::size_t>(to);
  const auto add = [&route](int link) { route.links[static_cast<std::size_t>(route.count++)] = link; };
  if (devices_[a].node == devices_[b].node) {
    add(gpu_up_[a]);
    add(gpu_up_[b] + 1);
    return route;
  }
  add(nic_up_[a]);
  // Without leaves every GPU has the same entry; nodes of different groups or regions never share a leaf.
  const bool through_leaves = leaf_up_[a] != leaf_up_[b];
  if (through_leaves) add(leaf_up_[a]);
  if (region_of_[a] != region_of_[b]) {
    add(region_link_[static_cast<std::size_t>(region_of_[a])][static_cast<std::size_t>(region_of_[b])]);
  }
  if (through_leaves) add(leaf_up_[b] + 1);
  add(nic_up_[b] + 1);
  return route;
}

LinkSpec Topology::path(int from, int to) const {
  LinkSpec path{BytesPerSecond(std::numeric_limits<double>::infinity()), Seconds(0)};
  const Route links = route(from, to);
  for (int i = 0; i < links.count; ++i) {
    const LinkSpec& link = links_[static_cast<std::size_t>(links.links[static_cast<std::size_t>(i)])].spec;
    path.bandwidth = std::min(path.bandwidth, link.bandwidth);
    path.latency += link.latency;
  }
  return path;
}

}  // namespace orrery
