// A cluster with its node counts chosen: every GPU numbered, every link listed, the route between any two
// GPUs. Each group starts a new leaf, so a leaf holds nodes of one kind and a larger group moves nobody
// else's nodes.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "platforms/cluster.hpp"

namespace orrery {

struct TopologyLink {
  std::string name;  // "a100.node3.nic0.up"
  LinkSpec spec;
  LinkState state = LinkState::up;
};

struct Device {
  int group = 0;  // index into ClusterSpec::groups
  int node = 0;   // counted over the whole cluster
  int local = 0;  // index of the GPU in its node
};

// Links of one route, at most: GPU or NIC up, leaf up, region, leaf down, NIC or GPU down.
struct Route {
  std::array<int, 5> links{};
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

  // The links a flow from one GPU to another crosses. Inside a node: the two GPU links. Across nodes: the
  // NICs of the two GPUs, and what lies between. Equal ends: no link. Where route_obstacle has an answer there is no
  // route, and asking for it or its path is our own mistake.
  [[nodiscard]] Route route(int from, int to) const;
  // Why there is no route: the first link on the way that is down, and the two GPUs.
  [[nodiscard]] std::optional<std::string> route_obstacle(int from, int to) const;
  // Whether any link is down; where none is, every route exists.
  [[nodiscard]] bool has_cut() const { return has_cut_; }
  // Latency of a route and its narrowest bandwidth when nobody else is on it. Equal ends: infinite bandwidth,
  // no latency.
  [[nodiscard]] LinkSpec path(int from, int to) const;
  // The links a GPU sends by: to the switch inside its node, and to its NIC's network; each one's next is the way back.
  [[nodiscard]] int gpu_link_up(int gpu) const { return gpu_up_[static_cast<std::size_t>(gpu)]; }
  [[nodiscard]] int nic_up(int gpu) const { return nic_up_[static_cast<std::size_t>(gpu)]; }
  [[nodiscard]] bool same_node(int a, int b) const { return device(a).node == device(b).node; }

 private:
  [[nodiscard]] Route way(int from, int to) const;  // whether or not a link on it is down
  [[nodiscard]] std::optional<int> first_cut(const Route&) const;
  [[nodiscard]] std::string gpu_name(int gpu) const;
  struct Place {
    int node_of_group;
    int leaf_link;
    int region;
  };
  void add_node(Device first, Place place);

  ClusterSpec cluster_;
  std::vector<int> nodes_;
  std::vector<int> first_gpu_;
  std::vector<Device> devices_;
  std::vector<TopologyLink> links_;
  std::vector<int> gpu_up_;   // link index of GPU g's link up; down is the next one
  std::vector<int> nic_up_;   // of the NIC GPU g uses
  std::vector<int> leaf_up_;  // of the leaf above GPU g; absent leaves share one entry that no route uses
  std::vector<int> region_of_;
  std::vector<std::vector<int>> region_link_;
  bool has_cut_ = false;
};

}  // namespace orrery
