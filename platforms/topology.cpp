#include "platforms/topology.hpp"

#include <algorithm>
#include <limits>
#include <map>

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

// What all nodes below a leaf could send, or only those of their NICs that hang on one rail switch.
LinkSpec leaf_uplink(const Fabric& fabric, const NodeGroup& group) {
  const int nics_each = fabric.kind == FabricKind::rail_optimised ? 1 : group.nics_per_node;
  const double nics = static_cast<double>(fabric.nodes_per_leaf) * nics_each;
  return {group.nic.bandwidth * (nics / fabric.oversubscription), fabric.latency};
}

LinkSpec pod_uplink(const Fabric& fabric, const NodeGroup& group) {
  const double nics =
      static_cast<double>(fabric.leaves_per_pod) * fabric.nodes_per_leaf * group.nics_per_node;
  return {group.nic.bandwidth * (nics / fabric.oversubscription / fabric.pod_oversubscription),
          fabric.latency};
}

// One switch, or one for each rail; the link of rail r is the returned one + 2 r.
int add_leaf(std::vector<TopologyLink>& links, int number, const Fabric& fabric, const NodeGroup& group) {
  const std::string name = "leaf" + std::to_string(number);
  if (fabric.kind == FabricKind::fat_tree) return add_pair(links, name, leaf_uplink(fabric, group));
  const auto first = static_cast<int>(links.size());
  for (int rail = 0; rail < group.nics_per_node; ++rail) {
    add_pair(links, name + ".rail" + std::to_string(rail), leaf_uplink(fabric, group));
  }
  return first;
}

// Of a node of the group, counted within it.
int leaf_of(const Fabric& fabric, const NodeGroup& group, int node) {
  if (!group.leaves.empty()) return group.leaves[static_cast<std::size_t>(node)];
  return fabric.nodes_per_leaf > 0 ? node / fabric.nodes_per_leaf : 0;
}

// A link in each direction between every two regions; the entry of a region with itself is never used.
std::vector<std::vector<int>> add_region_links(std::vector<TopologyLink>& links, const Fabric& fabric,
                                               const std::vector<std::string>& regions) {
  std::vector<std::vector<int>> table(regions.size(), std::vector<int>(regions.size(), 0));
  for (std::size_t from = 0; from < regions.size(); ++from) {
    for (std::size_t to = 0; to < regions.size(); ++to) {
      if (from == to) continue;
      table[from][to] = static_cast<int>(links.size());
      const RegionLink* region = link_between(fabric.regions, regions[from], regions[to]);
      ORRERY_ENSURE(region);
      links.push_back({"region." + regions[from] + "." + regions[to], region->link, LinkState::up});
    }
  }
  return table;
}

void add_link(Route& route, int link) {
  route.links[static_cast<std::size_t>(route.count++)] = link;
}

Route given_way(const NetworkTable& table, int pair) {
  Route route;
  const auto index = static_cast<std::size_t>(pair);
  for (int i = table.first[index]; i < table.first[index + 1]; ++i) {
    add_link(route, table.crossed[static_cast<std::size_t>(i)]);
  }
  return route;
}

// From one PCIe switch to another of the same node, over the host bridge.
void add_bridge(Route& route, int from_up, int to_up) {
  if (from_up == to_up) return;
  add_link(route, from_up);
  add_link(route, to_up + 1);
}

}  // namespace

Topology::Topology(ClusterSpec cluster, std::vector<int> nodes)
    : cluster_(std::move(cluster)), nodes_(std::move(nodes)) {
  ORRERY_ENSURE(nodes_.size() == cluster_.groups.size());
  const std::vector<std::string> regions = regions_of(cluster_.groups);
  int first_node = 0;
  for (std::size_t g = 0; g < nodes_.size(); ++g) {
    const NodeGroup& group = cluster_.groups[g];
    ORRERY_ENSURE(nodes_[g] >= group.count.minimum && nodes_[g] <= group.count.maximum);
    ORRERY_ENSURE(group.gpus_per_node > 0 && group.nics_per_node > 0 &&
                  group.gpus_per_node % group.nics_per_node == 0);
    const auto region = std::find(regions.begin(), regions.end(), group.region) - regions.begin();
    add_group(static_cast<int>(g), first_node, static_cast<int>(region));
    first_node += nodes_[g];
  }
  if (cluster_.network) {
    add_given_network(*cluster_.network->table);
  } else {
    region_link_ = add_region_links(links_, cluster_.fabric, regions);
  }
  gpus_have_own_links_ =
      !cluster_.network && cluster_.links.empty() && cluster_.fabric.nodes_per_leaf == 0 &&
      regions.size() == 1 &&
      std::all_of(cluster_.groups.begin(), cluster_.groups.end(), [](const NodeGroup& group) {
        return group.pcie_switches == 0 && group.nics_per_node == group.gpus_per_node;
      });
  apply_overrides(cluster_.links, links_);
  has_cut_ = std::any_of(links_.begin(), links_.end(),
                         [](const TopologyLink& link) { return link.state == LinkState::down; });
}

// No GPU has a link of its own that the folding of replicas could map: all have the same, which nothing folds
// on.
void Topology::add_given_network(const NetworkTable& table) {
  const auto count = static_cast<std::size_t>(gpus());
  ORRERY_ENSURE(table.first.size() == count * count + 1);
  links_ = table.links;
  std::fill(ports_.begin(), ports_.end(), Port{});
}

void Topology::add_group(int group_index, int first_node, int region) {
  const Fabric& fabric = cluster_.fabric;
  const NodeGroup& group = cluster_.groups[static_cast<std::size_t>(group_index)];
  first_gpu_.push_back(gpus());
  const int first_leaf = leaves_, first_pod = pods_;
  std::map<int, int> pod_up;   // by pod of the group
  std::map<int, Port> leaves;  // by leaf of the group: what is above its nodes
  for (int n = 0; n < nodes_[static_cast<std::size_t>(group_index)]; ++n) {
    const int leaf = leaf_of(fabric, group, n);
    const auto [above, is_new] = leaves.try_emplace(leaf);
    if (is_new) above->second.region = region;
    if (is_new && fabric.nodes_per_leaf > 0) {
      Port& port = above->second;
      if (fabric.leaves_per_pod > 0) {
        const int pod = leaf / fabric.leaves_per_pod;
        const auto [up, is_new_pod] = pod_up.try_emplace(pod);
        if (is_new_pod)
          up->second = add_pair(links_, "pod" + std::to_string(first_pod + pod), pod_uplink(fabric, group));
        port.pod_up = up->second;
        pods_ = std::max(pods_, first_pod + pod + 1);
      }
      port.leaf = first_leaf + leaf;
      leaves_ = std::max(leaves_, port.leaf + 1);
      port.leaf_up = add_leaf(links_, port.leaf, fabric, group);
    }
    add_node({group_index, first_node + n, 0}, n, above->second);
  }
}

void Topology::add_node(Device first, int node_of_group, Port above) {
  const NodeGroup& group = cluster_.groups[static_cast<std::size_t>(first.group)];
  const std::string node = group.name + ".node" + std::to_string(node_of_group);
  const int gpus_per_nic = group.gpus_per_node / group.nics_per_node;
  const bool on_rails =
      cluster_.fabric.kind == FabricKind::rail_optimised && cluster_.fabric.nodes_per_leaf > 0;
  Port port = above;
  port.is_on_pcie = group.pcie_switches > 0;
  ORRERY_ENSURE(!port.is_on_pcie || group.gpus_per_node % group.pcie_switches == 0);
  const int gpus_per_switch =
      port.is_on_pcie ? group.gpus_per_node / group.pcie_switches : group.gpus_per_node;
  for (int local = 0; local < group.gpus_per_node; ++local) {
    devices_.push_back({first.group, first.node, local});
    port.gpu_up = add_pair(links_, node + ".gpu" + std::to_string(local), group.gpu_link);
    if (port.is_on_pcie && local % gpus_per_switch == 0) {
      port.pcie_up =
          add_pair(links_, node + ".pcie" + std::to_string(local / gpus_per_switch), group.pcie_uplink);
    }
    if (local % gpus_per_nic == 0) {
      port.nic_pcie_up = port.pcie_up;
      const int nic = local / gpus_per_nic;
      port.nic_up = add_pair(links_, node + ".nic" + std::to_string(nic), group.nic);
      port.leaf_up = above.leaf_up + (on_rails ? 2 * nic : 0);
    }
    ports_.push_back(port);
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

// The GPU whose NIC sends. On rails NCCL moves data over NVLink to the GPU beside the receiver's rail and
// sends from there (PXN; NCCL 2.12 on, src/graph/search.cc, ncclTopoGetNetDev, recalled), however far away
// the receiver is.
int Topology::sender(int from, int to) const {
  const bool on_rails =
      cluster_.fabric.kind == FabricKind::rail_optimised && cluster_.fabric.nodes_per_leaf > 0;
  if (!on_rails) return from;
  const NodeGroup& here = group_of(from);
  const NodeGroup& there = group_of(to);
  const int gpus_per_nic = here.gpus_per_node / here.nics_per_node;
  const int gpus_per_nic_there = there.gpus_per_node / there.nics_per_node;
  const int local = device(from).local;
  const int rail = device(to).local / gpus_per_nic_there;
  if (local / gpus_per_nic == rail || rail >= here.nics_per_node || !has_nvlink(here)) return from;
  const int beside_nic = device(to).local % gpus_per_nic_there % gpus_per_nic;
  return from - local + rail * gpus_per_nic + beside_nic;
}

Topology::Gate Topology::leaf_gate(int from, int to) const {
  ORRERY_ENSURE(!same_leaf(from, to));
  return {port(sender(from, to)).leaf_up, port(to).leaf_up + 1};
}

Topology::Gate Topology::region_gate(int from, int to) const {
  const int link = region_link(from, to);
  return {link, link};
}

int Topology::region_link(int from, int to) const {
  ORRERY_ENSURE(!same_region(from, to));
  return region_link_[static_cast<std::size_t>(port(from).region)][static_cast<std::size_t>(port(to).region)];
}

void Topology::add_inside(Route& route, int from, int to) const {
  add_link(route, port(from).gpu_up);
  add_bridge(route, port(from).pcie_up, port(to).pcie_up);
  add_link(route, port(to).gpu_up + 1);
}

Route Topology::way(int from, int to) const {
  Route route;
  if (from == to) return route;
  if (cluster_.network) return given_way(*cluster_.network->table, from * gpus() + to);
  if (same_node(from, to)) {
    add_inside(route, from, to);
    return route;
  }
  const int by = sender(from, to);
  const Port& a = port(by);
  const Port& b = port(to);
  if (by != from) add_inside(route, from, by);
  if (a.is_on_pcie) {
    add_link(route, a.gpu_up);
    add_bridge(route, a.pcie_up, a.nic_pcie_up);
  }
  add_link(route, a.nic_up);
  // Without leaves, or pods, every GPU has the same entry; nodes of different groups or regions never share
  // one.
  const bool through_leaves = a.leaf_up != b.leaf_up;
  const bool through_pods = a.pod_up != b.pod_up;
  if (through_leaves) add_link(route, a.leaf_up);
  if (through_pods) add_link(route, a.pod_up);
  if (a.region != b.region) add_link(route, region_link(by, to));
  if (through_pods) add_link(route, b.pod_up + 1);
  if (through_leaves) add_link(route, b.leaf_up + 1);
  add_link(route, b.nic_up + 1);
  if (b.is_on_pcie) {
    add_bridge(route, b.nic_pcie_up, b.pcie_up);
    add_link(route, b.gpu_up + 1);
  }
  return route;
}

LinkSpec Topology::path(int from, int to) const {
  return path(route(from, to));
}

LinkSpec Topology::path(const Route& links) const {
  LinkSpec path{BytesPerSecond(std::numeric_limits<double>::infinity()), Seconds(0)};
  for (int i = 0; i < links.count; ++i) {
    const LinkSpec& link = links_[static_cast<std::size_t>(links.links[static_cast<std::size_t>(i)])].spec;
    path.bandwidth = std::min(path.bandwidth, link.bandwidth);
    path.latency += link.latency;
  }
  return path;
}

}  // namespace orrery
