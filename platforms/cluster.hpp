// What the cluster is: groups of equal nodes joined by a fabric.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platforms/gpu.hpp"
#include "platforms/instance.hpp"
#include "platforms/units.hpp"

namespace orrery {

struct LinkSpec {
  BytesPerSecond bandwidth;  // one direction
  Seconds latency;
  bool operator==(const LinkSpec&) const = default;
};

// Latency of a link where nothing else is said. Half of what NCCL's tuning table (src/graph/tuning.cc, hwLat,
// ring, LL) gives one hop from GPU to GPU, because a hop crosses two links: 0.6 us over NVLink, 1.0 us over
// PCIe, 2.7 us over the network.
inline constexpr Seconds kNvlinkLatency = microseconds(0.3);
inline constexpr Seconds kPcieLatency = microseconds(0.5);
inline constexpr Seconds kNicLatency = microseconds(1.35);
// Of 5.0 x16, one direction. A faster link between GPUs is NVLink or its like.
inline constexpr BytesPerSecond kFastestPcie = gigabytes_per_second(64);

struct NodeCount {
  int minimum = 1;
  int maximum = 1;
  bool operator==(const NodeCount&) const = default;
};

struct NodeGroup {
  std::string name;
  GpuSpec gpu;
  int gpus_per_node = 8;
  NodeCount count;    // a fixed count has minimum == maximum
  LinkSpec gpu_link;  // of each GPU to the switch inside its node, each direction; latency counted once a GPU
  // GPUs hang in equal groups, in order, on so many PCIe switches, whose uplinks (each direction) meet at the
  // host bridge; each NIC hangs on the switch of its first GPU, and what a GPU sends by it crosses its GPU
  // link. 0: one switch inside the node joins all its GPUs, and NICs are reached beside it.
  int pcie_switches = 0;
  LinkSpec pcie_uplink{};
  int nics_per_node = 1;  // divides gpus_per_node: the GPUs of a node share its NICs evenly, in order
  LinkSpec nic;           // each NIC, each direction
  HostSpec host = {};     // memory and bandwidth of a whole node; the link of each of its GPUs
  // Of a GPU, that plans may fill, where this is less than they would by themselves.
  std::optional<Bytes> usable_memory = {};
  std::optional<Bytes> memory_limit = {};  // of a search, below which a plan is to stay
  std::optional<DollarsPerHour> price;     // of one node; absent where nothing is known
  std::string price_source;                // "Azure eastus on demand, 2025 list"
  // Mean time until one node is taken away or fails; absent: never. A rate of 1 / this per node.
  std::optional<Seconds> interrupted_every;
  std::string region = "default";
  // The leaf switch of each node, counted within the group, where nodes are handed out in no order; empty:
  // leaves are filled in order. Otherwise size count.maximum, and no leaf with more than
  // Fabric::nodes_per_leaf nodes.
  std::vector<int> leaves = {};
  bool operator==(const NodeGroup&) const = default;
};

// GPUs of a group with all the nodes that its count allows.
std::int64_t largest_gpus(const NodeGroup&);

// Whether NVLink joins the GPUs of a node: it has no PCIe switches and the catalog gives the GPU another link
// than PCIe, or a bridge, which joins two cards, where the node has no more.
bool has_nvlink(const NodeGroup&);

// Of each GPU inside the node where the cluster says nothing: the catalog's, or PCIe's where bridges of two
// cards leave the others to it.
LinkSpec usual_gpu_link(const NodeGroup&);

// `ideal` gives every flow the full bandwidth of its links whoever shares them: the closed-form world.
enum class Contention { shared, ideal };

struct RegionLink {
  std::string from, to;  // unordered
  LinkSpec link;
  DollarsPerGigabyte price = {};  // of what crosses it, either way
  bool operator==(const RegionLink&) const = default;
};

// Of two regions, in either order; null where none joins them.
const RegionLink* link_between(const std::vector<RegionLink>&, const std::string& a, const std::string& b);

// How NICs hang on leaves: all of a node on one switch, or NIC i of every node on rail switch i of the leaf.
enum class FabricKind { fat_tree, rail_optimised };

struct Fabric {
  // Nodes hang below leaf switches, filled in order; the uplink of a leaf carries
  // nodes_per_leaf * nics * nic bandwidth / oversubscription each direction (one NIC a node for a rail
  // switch). 0 nodes per leaf: one big switch, whatever the kind.
  FabricKind kind = FabricKind::fat_tree;
  int nodes_per_leaf = 0;
  double oversubscription = 1.0;
  // A third level: the leaves of a pod share an uplink of what they send up / pod_oversubscription. 0: none.
  int leaves_per_pod = 0;
  double pod_oversubscription = 1.0;
  Seconds latency;  // of each uplink, counted once up and once down
  std::vector<RegionLink> regions;
  bool operator==(const Fabric&) const = default;
};

// Each once, in the order of the groups.
std::vector<std::string> regions_of(const std::vector<NodeGroup>&);

enum class LinkState { up, down };

struct TopologyLink {
  std::string name;  // "a100.node3.nic0.up"
  LinkSpec spec;
  LinkState state = LinkState::up;
  bool operator==(const TopologyLink&) const = default;
};

inline constexpr int kMostLinksOfRoute = 13;
inline constexpr int kMostGivenGpus = 1024;  // of a NetworkTable, which has a route for each pair

// A network given link by link and route by route, in place of GPU links, NICs and fabric. Node counts are
// fixed.
struct NetworkTable {
  std::vector<TopologyLink> links;
  // The route from GPU a to GPU b of n is crossed[first[a * n + b]] up to crossed[first[a * n + b + 1]],
  // indices into links: none where a is b, else 1 to kMostLinksOfRoute.
  std::vector<int> first;
  std::vector<int> crossed;
  bool operator==(const NetworkTable&) const = default;
};

// Shared, because a cluster is copied often and a table may be large. Equal when the tables are.
struct GivenNetwork {
  std::shared_ptr<const NetworkTable> table;
  bool operator==(const GivenNetwork& other) const { return table == other.table || *table == *other.table; }
};

// What is said of the links of a name; what is absent stays.
struct LinkOverride {
  std::string name;  // as Topology names them, with `*` for any text
  std::optional<BytesPerSecond> bandwidth;
  std::optional<double> factor;  // of the bandwidth; not beside `bandwidth`
  std::optional<Seconds> latency;
  std::optional<LinkState> state;  // no route crosses a link that is down
  bool operator==(const LinkOverride&) const = default;
};

// What a run does against interruptions. Assumptions unless a cluster file says better: a minute to write and
// five to get a new node, start again and read.
struct Checkpointing {
  Seconds write = Seconds(60);
  Seconds restart = Seconds(300);
  std::optional<Seconds>
      interval;  // of work between two; absent: the best one (costmodels/money/interruptions.hpp)
  bool operator==(const Checkpointing&) const = default;
};

struct ClusterSpec {
  std::string name;
  std::vector<NodeGroup> groups;
  Fabric fabric;
  Contention contention = Contention::shared;
  std::optional<GivenNetwork> network = {};  // then fabric says nothing
  Checkpointing checkpoint = {};
  double pue = 1.0;  // power usage effectiveness: power of the whole site over that of its GPUs
  std::vector<LinkOverride> links = {};  // in order: a later one changes what an earlier one left
  bool operator==(const ClusterSpec&) const = default;
};

// Reads a cluster file (YAML, README of this folder) or the name of a built-in cluster. Throws InputError.
// `pricing` stands in for that of every group whose price comes from the catalog.
ClusterSpec read_cluster(const std::string& path_or_name, std::optional<Pricing> pricing = std::nullopt);
// What it reads.
std::string read_cluster_text(const std::string& path_or_name);
ClusterSpec parse_cluster(std::string_view yaml, const std::string& file,
                          std::optional<Pricing> pricing = std::nullopt);
// YAML that parse_cluster reads back to an equal value.
std::string to_yaml(const ClusterSpec&);
std::vector<std::string> builtin_cluster_names();
// Checks a table for a cluster of so many GPUs. Throws InputError{place, ...}.
void check_network(const NetworkTable&, int gpus, const std::string& place);
// The largest number of nodes of each group.
std::vector<int> largest_counts(const ClusterSpec&);

}  // namespace orrery
