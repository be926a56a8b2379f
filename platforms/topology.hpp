// A cluster with its node counts chosen: every GPU numbered, every link listed, the route between any two
// GPUs. Each group starts a new leaf and a new pod, so a leaf holds nodes of one kind and a larger group
// moves nobody else's nodes.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "platforms/cluster.hpp"

namespace orrery {

struct Device {
  int group = 0;  // index into ClusterSpec::groups
  int node = 0;   // counted over the whole cluster
  int local = 0;  // index of the GPU in its node
};

// Links of one route in order, at most: GPU, PCIe switch up and down, NIC, leaf, pod, region, and the same
// back down.
struct Route {
  static constexpr int kMost = kMostLinksOfRoute;
  std::array<int, kMost> links{};
  int count = 0;
};

class Topology {
 public:
  // `nodes[g]` nodes of group g, each within its group's count. GPUs are numbered group by group, node by
  // node.
  Topology(ClusterSpec cluster, std::vector<int> nodes);

  [[nodiscard]] const ClusterSpec& cluster() const { return cluster_; }
  [[nodiscard]] const std::vector<int>& nodes() const { return nodes_; }
  [[nodiscard]] int gpus() const { return static_cast<int>(devices_.size()); }
  [[nodiscard]] const Device& device(int gpu) const { return devices_[static_cast<std::size_t>(gpu)]; }
  [[nodiscard]] const NodeGroup& group_of(int gpu) const;
  [[nodiscard]] int first_gpu(int group) const { return first_gpu_[static_cast<std::size_t>(group)]; }
  [[nodiscard]] const std::vector<TopologyLink>& links() const { return links_; }

  // The links a flow from one GPU to another crosses. Inside a node: the two GPU links, and the uplinks of
  // their PCIe switches where these differ. Across nodes: the NICs of the two GPUs, and what lies between; on
  // rails a flow to another rail goes over the GPU of that rail in its own node first (PXN), where NVLink
  // joins them. Equal ends: no link. Where route_obstacle has an answer there is no route, and asking for it
  // or its path is our own mistake.
  [[nodiscard]] Route route(int from, int to) const;
  // Why there is no route: the first link on the way that is down, and the two GPUs.
  [[nodiscard]] std::optional<std::string> route_obstacle(int from, int to) const;
  // Whether any link is down; where none is, every route exists.
  [[nodiscard]] bool has_cut() const { return has_cut_; }
  // Whether every GPU has a GPU link and a NIC of its own, like those of all GPUs of its group, and no route
  // crosses any other link.
  [[nodiscard]] bool gpus_have_own_links() const { return gpus_have_own_links_; }
  // Latency of a route and its narrowest bandwidth when nobody else is on it. Equal ends: infinite bandwidth,
  // no latency.
  [[nodiscard]] LinkSpec path(int from, int to) const;
  [[nodiscard]] LinkSpec path(const Route&) const;
  // The links a GPU sends by: to the switch inside its node, and to its NIC's network; each one's next is the
  // way back.
  [[nodiscard]] int gpu_link_up(int gpu) const { return port(gpu).gpu_up; }
  [[nodiscard]] int nic_up(int gpu) const { return port(gpu).nic_up; }
  [[nodiscard]] bool same_node(int a, int b) const { return device(a).node == device(b).node; }
  // Whether the nodes of two GPUs hang below the same leaf switches (always where there are none), and in one
  // region.
  [[nodiscard]] bool same_leaf(int a, int b) const { return port(a).leaf == port(b).leaf; }
  [[nodiscard]] bool same_region(int a, int b) const { return port(a).region == port(b).region; }
  // The links by which a flow leaves one leaf or region and enters another; asked only where it does.
  struct Gate {
    int out, in;
  };
  [[nodiscard]] Gate leaf_gate(int from, int to) const;
  [[nodiscard]] Gate region_gate(int from, int to) const;

 private:
  [[nodiscard]] int region_link(int from, int to) const;
  // The links up of one GPU; the way down is the next index. What a cluster lacks is 0 for all GPUs, and no
  // route uses it.
  struct Port {
    int gpu_up = 0;
    int pcie_up = 0;      // of its PCIe switch
    int nic_up = 0;       // of the NIC it uses
    int nic_pcie_up = 0;  // of the PCIe switch that NIC hangs on
    int leaf_up = 0;      // of the switch above that NIC
    int pod_up = 0;
    int leaf = 0;  // number of the leaf, that of the node group's rail switches together
    int region = 0;
    bool is_on_pcie = false;  // the way to the NIC crosses the GPU link
  };
  [[nodiscard]] const Port& port(int gpu) const { return ports_[static_cast<std::size_t>(gpu)]; }
  void add_group(int group, int first_node, int region);
  void add_node(Device first, int node_of_group, Port above);
  void add_given_network(const NetworkTable&);
  [[nodiscard]] int sender(int from, int to) const;
  void add_inside(Route&, int from, int to) const;
  [[nodiscard]] Route way(int from, int to) const;  // whether or not a link on it is down
  [[nodiscard]] std::optional<int> first_cut(const Route&) const;
  [[nodiscard]] std::string gpu_name(int gpu) const;

  ClusterSpec cluster_;
  std::vector<int> nodes_;
  std::vector<int> first_gpu_;
  std::vector<Device> devices_;
  std::vector<Port> ports_;  // [gpu]
  std::vector<TopologyLink> links_;
  std::vector<std::vector<int>> region_link_;
  int leaves_ = 0;
  int pods_ = 0;
  bool has_cut_ = false;
  bool gpus_have_own_links_ = false;
};

}  // namespace orrery
