// Like simgrid_network.cpp, written for SimGrid 3.32; these two files have every SimGrid call of Orrery.
#include "sim/replay/xml_platform.hpp"

#include <simgrid/s4u.hpp>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "platforms/errors.hpp"
#include "platforms/topology.hpp"
#include "platforms/yaml.hpp"
#include "sim/replay/children.hpp"
#include "traces/clean_up.hpp"

namespace orrery {
namespace {

namespace sg4 = simgrid::s4u;
using nlohmann::json;

constexpr const char* kGpuExample =
    R"(<prop id="gpu" value="H100"/> inside its <host>, or <cluster>, element)";

// What the child sends: the hosts with their properties, the links, and a list of links for each pair of
// hosts.
struct XmlHost {
  std::string name;
  std::map<std::string, std::string> properties;
};

struct XmlPlatform {
  std::vector<XmlHost> hosts;
  std::vector<TopologyLink> links;
  std::vector<std::vector<int>> routes;  // [from * hosts + to]
};

// "host2" before "host10": runs of digits compare as numbers.
bool before_naturally(const std::string& a, const std::string& b) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto key = [&](const std::string& text) {
    std::vector<std::pair<std::size_t, std::string>> parts;  // a number's length first, without leading zeros
    for (std::size_t i = 0; i < text.size();) {
      std::size_t end = i;
      while (end < text.size() && is_digit(text[end])) ++end;
      if (end == i) {
        parts.emplace_back(0, text.substr(i++, 1));
        continue;
      }
      while (i + 1 < end && text[i] == '0') ++i;
      parts.emplace_back(end - i, text.substr(i, end - i));
      i = end;
    }
    return parts;
  };
  const auto x = key(a);
  const auto y = key(b);
  return x == y ? a < b : x < y;
}

class RouteCollector {
 public:
  explicit RouteCollector(const std::string& file) : file_(file) {}

  json route(const sg4::Host& from, const sg4::Host& to) {
    json numbers = json::array();
    if (&from == &to) return numbers;
    std::vector<sg4::Link*> crossed;
    double latency = 0;
    from.route_to(&to, crossed, &latency);
    if (crossed.empty() || crossed.size() > static_cast<std::size_t>(kMostLinksOfRoute)) {
      throw InputError(file_,
                       "a route of " + std::to_string(crossed.size()) + " links from " +
                           quote_for_message(from.get_name()) + " to " + quote_for_message(to.get_name()),
                       "routes of 1 to " + std::to_string(kMostLinksOfRoute) + " links");
    }
    for (const sg4::Link* link : crossed) numbers.push_back(number_of(*link));
    return numbers;
  }

  [[nodiscard]] const json& links() const { return links_; }

 private:
  std::size_t number_of(const sg4::Link& link) {
    const auto [at, is_new] = numbers_.try_emplace(link.get_name(), links_.size());
    if (!is_new) return at->second;
    if (link.get_sharing_policy() != sg4::Link::SharingPolicy::SHARED) {
      throw InputError(
          file_, "the link " + quote_for_message(link.get_name()) + ", which is not shared",
          "sharing_policy=\"SHARED\" or \"SPLITDUPLEX\": Orrery's links are shared by all that crosses "
          "them (for links without contention: contention: ideal)");
    }
    if (!(link.get_bandwidth() > 0)) {
      throw InputError(file_, "the link " + quote_for_message(link.get_name()) + " without bandwidth",
                       "more than 0Bps");
    }
    links_.push_back({link.get_name(), link.get_bandwidth(), link.get_latency()});
    return at->second;
  }

  std::string file_;
  std::map<std::string, std::size_t> numbers_;
  json links_ = json::array();
};

void load(const std::string& path) {
  static std::string name = "orrery";
  static std::string quiet = "--log=root.thresh:critical";
  static std::vector<char*> arguments{name.data(), quiet.data(), nullptr};
  int count = 2;
  // SimGrid 3.32 crashes where a Full zone lacks a route: the parent says so, and nobody's handler runs here.
  for (const int signal : {SIGSEGV, SIGABRT}) std::signal(signal, SIG_DFL);
  sg4::Engine* const engine = [&] {
    const HandlersKept kept;                           // not SimGrid's own handlers either
    return new sg4::Engine(&count, arguments.data());  // lives as long as the child
  }();
  engine->set_config("network/model:CM02");
  try {
    engine->load_platform(path);
  } catch (const std::exception& error) {
    std::string what = error.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    throw InputError(path, "what SimGrid refuses: " + quote_for_message(what), "a platform file of SimGrid");
  }
}

std::string load_in_child(const std::string& path) {
  load(path);
  std::vector<sg4::Host*> hosts = sg4::Engine::get_instance()->get_all_hosts();
  if (hosts.empty() || hosts.size() > static_cast<std::size_t>(kMostGivenGpus)) {
    throw InputError(path, std::to_string(hosts.size()) + " hosts",
                     "1 to " + std::to_string(kMostGivenGpus) + ", because a route is kept for each pair");
  }
  std::sort(hosts.begin(), hosts.end(), [](const sg4::Host* a, const sg4::Host* b) {
    return before_naturally(a->get_name(), b->get_name());
  });
  json platform = {{"hosts", json::array()}, {"routes", json::array()}};
  RouteCollector collector(path);
  for (const sg4::Host* host : hosts) {
    json properties = json::object();
    for (const char* key : {"gpu", "node", "memory"}) {
      if (const char* value = host->get_property(key)) properties[key] = value;
    }
    platform["hosts"].push_back({{"name", host->get_name()}, {"properties", properties}});
  }
  for (const sg4::Host* from : hosts) {
    for (const sg4::Host* to : hosts) platform["routes"].push_back(collector.route(*from, *to));
  }
  platform["links"] = collector.links();
  const std::vector<std::uint8_t> bytes = json::to_cbor(platform);
  return {bytes.begin(), bytes.end()};
}

XmlPlatform load_platform(const std::string& path) {
  (void)read_text_file(path);  // says what is wrong with a file that cannot be read
  std::string bytes;
  try {
    bytes = run_in_children({[&] { return load_in_child(path); }}, 1).front();
  } catch (const Defect& defect) {
    throw InputError(path, std::string("a platform that SimGrid gave up on: ") + defect.what(),
                     "a platform file of SimGrid with a route between every two hosts");
  }
  const json read = json::from_cbor(bytes);
  XmlPlatform platform;
  for (const json& host : read.at("hosts")) {
    platform.hosts.push_back(
        {host.at("name"), host.at("properties").get<std::map<std::string, std::string>>()});
  }
  for (const json& link : read.at("links")) {
    platform.links.push_back({link.at(0),
                              {BytesPerSecond(link.at(1).get<double>()), Seconds(link.at(2).get<double>())},
                              LinkState::up});
  }
  platform.routes = read.at("routes").get<std::vector<std::vector<int>>>();
  return platform;
}

struct XmlNode {
  GpuSpec gpu;
  std::vector<int> hosts;
};

GpuSpec gpu_of(const XmlHost& host, const std::string& path) {
  const std::string place = path + ": host " + quote_for_message(host.name);
  const auto name = host.properties.find("gpu");
  if (name == host.properties.end()) throw InputError(place, "no property gpu", kGpuExample);
  GpuSpec gpu = find_gpu(name->second, place + ": property gpu");
  if (const auto memory = host.properties.find("memory"); memory != host.properties.end()) {
    gpu.memory = parse_quantity<Bytes>(memory->second, place + ": property memory");
  }
  return gpu;
}

// In the order of their first hosts.
std::vector<XmlNode> nodes_of(const XmlPlatform& platform, const std::string& path) {
  std::vector<XmlNode> nodes;
  std::map<std::string, std::size_t> named;
  for (std::size_t h = 0; h < platform.hosts.size(); ++h) {
    const XmlHost& host = platform.hosts[h];
    const GpuSpec gpu = gpu_of(host, path);
    const auto name = host.properties.find("node");
    std::size_t node = nodes.size();
    if (name != host.properties.end()) node = named.try_emplace(name->second, node).first->second;
    if (node == nodes.size()) nodes.push_back({gpu, {}});
    if (nodes[node].gpu != gpu) {
      throw InputError(
          path + ": host " + quote_for_message(host.name),
          gpu.name + " in node " + quote_for_message(name->second) + " beside " + nodes[node].gpu.name,
          "equal GPUs in one node");
    }
    nodes[node].hosts.push_back(static_cast<int>(h));
  }
  return nodes;
}

// "H100-SXM5-80GB-x8", and "-2" after it for the second group of that name.
std::string name_of(const NodeGroup& group, const std::vector<NodeGroup>& earlier) {
  std::string name = group.gpu.name + "-x" + std::to_string(group.gpus_per_node);
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0 && letter != '_') letter = '-';
  }
  const auto same = std::count_if(earlier.begin(), earlier.end(),
                                  [&](const NodeGroup& other) { return other.name.rfind(name, 0) == 0; });
  return same == 0 ? name : name + "-" + std::to_string(same + 1);
}

// Nodes sorted into groups of equal ones, in order of first mention; `nodes` is reordered alike.
std::vector<NodeGroup> groups_of(std::vector<XmlNode>& nodes) {
  std::vector<NodeGroup> groups;
  std::vector<XmlNode> sorted;
  std::vector<bool> taken(nodes.size(), false);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (taken[i]) continue;
    NodeGroup group;
    group.gpu = nodes[i].gpu;
    group.gpus_per_node = static_cast<int>(nodes[i].hosts.size());
    group.host = usual_host(group.gpu, group.gpus_per_node);
    group.name = name_of(group, groups);
    group.count = {0, 0};
    for (std::size_t j = i; j < nodes.size(); ++j) {
      if (taken[j] || nodes[j].gpu != group.gpu || nodes[j].hosts.size() != nodes[i].hosts.size()) continue;
      taken[j] = true;
      sorted.push_back(nodes[j]);
      group.count = {group.count.maximum + 1, group.count.maximum + 1};
    }
    groups.push_back(group);
  }
  nodes = sorted;
  return groups;
}

NetworkTable table_of(const XmlPlatform& platform, const std::vector<XmlNode>& nodes) {
  std::vector<int> order;
  for (const XmlNode& node : nodes) order.insert(order.end(), node.hosts.begin(), node.hosts.end());
  NetworkTable table{platform.links, {0}, {}};
  for (const int from : order) {
    for (const int to : order) {
      const auto& route =
          platform.routes[static_cast<std::size_t>(from) * order.size() + static_cast<std::size_t>(to)];
      table.crossed.insert(table.crossed.end(), route.begin(), route.end());
      table.first.push_back(static_cast<int>(table.crossed.size()));
    }
  }
  return table;
}

// What the cost models know of a group: half of the way between its first two GPUs, and of the best way out
// of its first node. Replays play the routes themselves.
void describe_links(ClusterSpec& cluster) {
  const Topology topology(cluster, largest_counts(cluster));
  for (std::size_t g = 0; g < cluster.groups.size(); ++g) {
    NodeGroup& group = cluster.groups[g];
    const int first = topology.first_gpu(static_cast<int>(g));
    group.gpu_link = {group.gpu.link_bandwidth, Seconds(0)};
    if (group.gpus_per_node > 1) {
      const LinkSpec inside = topology.path(first, first + 1);
      group.gpu_link = {inside.bandwidth, inside.latency / 2};
    }
    std::optional<LinkSpec> out;
    for (int other = 0; other < topology.gpus(); ++other) {
      if (topology.same_node(first, other)) continue;
      const LinkSpec path = topology.path(first, other);
      if (!out) out = path;
      out = LinkSpec{std::max(out->bandwidth, path.bandwidth), std::min(out->latency, path.latency)};
    }
    group.nic = out ? LinkSpec{out->bandwidth, out->latency / 2} : group.gpu_link;
  }
}

}  // namespace

bool is_xml_platform(const std::string& path) {
  return std::filesystem::path(path).extension() == ".xml";
}

ClusterSpec read_xml_platform(const std::string& path) {
  const XmlPlatform platform = load_platform(path);
  std::vector<XmlNode> nodes = nodes_of(platform, path);
  ClusterSpec cluster;
  cluster.name = std::filesystem::path(path).stem().string();
  cluster.groups = groups_of(nodes);
  NetworkTable table = table_of(platform, nodes);
  check_network(table, static_cast<int>(platform.hosts.size()), path);
  cluster.network = GivenNetwork{std::make_shared<const NetworkTable>(std::move(table))};
  describe_links(cluster);
  return cluster;
}

}  // namespace orrery
