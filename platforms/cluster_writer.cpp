#include <algorithm>

#include "platforms/cluster.hpp"
#include "platforms/errors.hpp"
#include "platforms/link_override.hpp"
#include "platforms/yaml.hpp"

namespace orrery {

namespace {

std::string count_text(NodeCount count) {
  if (count.minimum == count.maximum) return std::to_string(count.minimum);
  return std::to_string(count.minimum) + ".." + std::to_string(count.maximum);
}

void write_peak(std::string& out, const char* key, const std::optional<FlopsPerSecond>& peak) {
  if (peak) out += std::string(", ") + key + ": " + to_exact_text(*peak);
}

std::string host_text(const HostSpec& host, const std::string& gap) {
  return gap + "host_memory: " + to_exact_text(host.memory) + gap +
         "host_memory_bandwidth: " + to_exact_text(host.memory_bandwidth) + gap +
         "host_link_bandwidth: " + to_exact_text(host.link) + gap + "host_pace: " + shortest_text(host.pace) +
         gap + "host_python_pace: " + shortest_text(host.python_pace);
}

std::string gpu_map(const GpuSpec& gpu) {
  std::string aliases;
  for (const std::string& alias : gpu.aliases) aliases += (aliases.empty() ? "" : ", ") + yaml_quoted(alias);
  std::string out = "{name: " + yaml_quoted(gpu.name) + ", aliases: [" + aliases + "]";
  out += ", architecture: " + yaml_quoted(gpu.architecture) + ", memory: " + to_exact_text(gpu.memory);
  out += ", memory_bandwidth: " + to_exact_text(gpu.memory_bandwidth);
  write_peak(out, "fp32", gpu.fp32);
  write_peak(out, "tf32", gpu.tf32);
  write_peak(out, "fp16", gpu.fp16);
  write_peak(out, "bf16", gpu.bf16);
  write_peak(out, "fp8", gpu.fp8);
  write_peak(out, "fp4", gpu.fp4);
  out += ", link: " + yaml_quoted(gpu.link) + ", link_bandwidth: " + to_exact_text(gpu.link_bandwidth);
  if (!gpu.peer_access) out += ", peer_access: false";
  if (gpu.through_host) out += ", through_host: " + to_exact_text(*gpu.through_host);
  if (gpu.inline_ecc) out += ", inline_ecc: true";
  out += ", multiprocessors: " + std::to_string(gpu.multiprocessors) +
         ", l2_cache: " + to_exact_text(gpu.l2_cache);
  if (gpu.sustained != 1.0) out += ", sustained: " + shortest_text(gpu.sustained);
  if (gpu.sustained_long) out += ", sustained_long: " + shortest_text(*gpu.sustained_long);
  if (gpu.sustained_fp32) out += ", sustained_fp32: " + shortest_text(*gpu.sustained_fp32);
  if (gpu.fp8_share != GpuSpec().fp8_share) out += ", fp8_share: " + shortest_text(gpu.fp8_share);
  if (gpu.fp4_share != GpuSpec().fp4_share) out += ", fp4_share: " + shortest_text(gpu.fp4_share);
  if (gpu.power_limit) out += ", power_limit: " + to_exact_text(*gpu.power_limit);
  out += host_text(gpu.host, ", ");
  if (gpu.idle_power) out += ", idle_power: " + to_exact_text(*gpu.idle_power);
  return out + ", power: " + to_exact_text(gpu.power) + ", source: " + yaml_quoted(gpu.source) + "}";
}

// A GPU of the catalog by its name, any other with all its numbers.
std::string gpu_text(const GpuSpec& gpu) {
  const std::vector<GpuSpec>& catalog = gpu_catalog();
  return std::find(catalog.begin(), catalog.end(), gpu) != catalog.end() ? yaml_quoted(gpu.name)
                                                                         : gpu_map(gpu);
}

std::string group_text(const NodeGroup& group) {
  const std::string gap = "\n    ";
  std::string out = "  - name: " + yaml_quoted(group.name);
  out += gap + "gpu: " + gpu_text(group.gpu);
  out += gap + "gpus_per_node: " + std::to_string(group.gpus_per_node);
  out += gap + "count: " + count_text(group.count);
  out += gap + "region: " + yaml_quoted(group.region);
  if (!group.leaves.empty()) {
    out += gap + "leaves: [";
    for (std::size_t i = 0; i < group.leaves.size(); ++i)
      out += (i == 0 ? "" : ", ") + std::to_string(group.leaves[i]);
    out += "]";
  }
  out += gap + "gpu_link_bandwidth: " + to_exact_text(group.gpu_link.bandwidth);
  out += gap + "gpu_link_latency: " + to_exact_text(group.gpu_link.latency);
  if (group.pcie_switches > 0) {
    out += gap + "pcie_switches: " + std::to_string(group.pcie_switches);
    out += gap + "pcie_uplink_bandwidth: " + to_exact_text(group.pcie_uplink.bandwidth);
    out += gap + "pcie_uplink_latency: " + to_exact_text(group.pcie_uplink.latency);
  }
  out += gap + "nics_per_node: " + std::to_string(group.nics_per_node);
  out += gap + "nic_bandwidth: " + to_exact_text(group.nic.bandwidth);
  out += gap + "nic_latency: " + to_exact_text(group.nic.latency);
  out += host_text(group.host, gap);
  if (group.usable_memory) out += gap + "usable_memory: " + to_exact_text(*group.usable_memory);
  if (group.price) {
    out += gap + "price: " + to_exact_text(*group.price);
    out += gap + "price_source: " + yaml_quoted(group.price_source);
  }
  if (group.interrupted_every) out += gap + "interrupted_every: " + to_exact_text(*group.interrupted_every);
  return out + "\n";
}

std::string fabric_text(const Fabric& fabric) {
  std::string out = "fabric:\n  nodes_per_leaf: " + std::to_string(fabric.nodes_per_leaf) + "\n";
  if (fabric.nodes_per_leaf > 0) {
    if (fabric.kind == FabricKind::rail_optimised) out += "  kind: rail-optimised\n";
    if (fabric.leaves_per_pod > 0) {
      out += "  leaves_per_pod: " + std::to_string(fabric.leaves_per_pod) + "\n";
      out += "  pod_oversubscription: " + shortest_text(fabric.pod_oversubscription) + "\n";
    }
    out += "  oversubscription: " + shortest_text(fabric.oversubscription) + "\n";
    out += "  latency: " + to_exact_text(fabric.latency) + "\n";
  }
  if (fabric.regions.empty()) return out;
  out += "  regions:\n";
  for (const RegionLink& region : fabric.regions) {
    out += "    - {from: " + yaml_quoted(region.from) + ", to: " + yaml_quoted(region.to) +
           ", bandwidth: " + to_exact_text(region.link.bandwidth) +
           ", latency: " + to_exact_text(region.link.latency) + ", price: " + to_exact_text(region.price) +
           "}\n";
  }
  return out;
}

std::string links_text(const std::vector<LinkOverride>& changes) {
  std::string out = changes.empty() ? "" : "links:\n";
  for (const LinkOverride& change : changes) {
    out += "  - {name: " + yaml_quoted(change.name);
    if (change.bandwidth) out += ", bandwidth: " + to_exact_text(*change.bandwidth);
    if (change.factor) out += ", bandwidth: " + factor_text(*change.factor);
    if (change.latency) out += ", latency: " + to_exact_text(*change.latency);
    if (change.state) out += *change.state == LinkState::up ? ", state: up" : ", state: down";
    out += "}\n";
  }
  return out;
}

// Links by number; a row for each GPU with its routes to each GPU in turn.
std::string network_text(const NetworkTable& network) {
  std::string out = "network:\n  links:\n";
  for (const TopologyLink& link : network.links) {
    out += "    - {name: " + yaml_quoted(link.name) + ", bandwidth: " + to_exact_text(link.spec.bandwidth) +
           ", latency: " + to_exact_text(link.spec.latency) + "}\n";
  }
  out += "  routes:\n";
  std::size_t gpus = 1;
  while (gpus * gpus + 1 < network.first.size()) ++gpus;
  for (std::size_t route = 0; route + 1 < network.first.size(); ++route) {
    out += route % gpus == 0 ? "    - \"" : "|";
    const auto end = static_cast<std::size_t>(network.first[route + 1]);
    for (auto i = static_cast<std::size_t>(network.first[route]); i < end; ++i) {
      out += (i == static_cast<std::size_t>(network.first[route]) ? "" : " ") +
             std::to_string(network.crossed[i]);
    }
    if (route % gpus == gpus - 1) out += "\"\n";
  }
  return out;
}

std::string site_text(const ClusterSpec& cluster) {
  const Checkpointing& checkpoint = cluster.checkpoint;
  std::string out = "checkpoint: {write: " + to_exact_text(checkpoint.write) +
                    ", restart: " + to_exact_text(checkpoint.restart);
  if (checkpoint.interval) out += ", interval: " + to_exact_text(*checkpoint.interval);
  return out + "}\npue: " + shortest_text(cluster.pue) + "\n";
}

std::string_view contention_text(Contention contention) {
  switch (contention) {
    case Contention::shared:
      return "shared";
    case Contention::ideal:
      return "ideal";
  }
  fail_ensure("a kind of contention", __FILE__, __LINE__);
}

}  // namespace

std::string to_yaml(const ClusterSpec& cluster) {
  std::string out = "name: " + yaml_quoted(cluster.name) + "\ngroups:\n";
  for (const NodeGroup& group : cluster.groups) out += group_text(group);
  out += cluster.network ? network_text(*cluster.network->table) : fabric_text(cluster.fabric);
  out += "contention: ";
  out += contention_text(cluster.contention);
  return out + "\n" + site_text(cluster) + links_text(cluster.links);
}

}  // namespace orrery
