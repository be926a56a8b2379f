// The cluster of a published run: its GPU by name and memory, its network from what the row says of it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <regex>

#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_names.hpp"
#include "sim/measured/measured_network.hpp"
#include "sim/measured/measured_plan.hpp"

namespace orrery {
namespace {

constexpr double kUsualShare = 0.85;  // of a card's rate that the cost models expect between nodes
constexpr int kDomain = 64;           // GPUs of an NVL72 rack that one job's power-of-two layout uses

bool shares_card(const NodeGroup& group) {
  return group.nics_per_node == 1 && group.gpus_per_node > 1;
}

// What a row means by a card of which its node has so many, or which has so much memory: one that draws less
// there, or a die of a card, since no node has more than four of the whole ones.
struct CrowdedCard {
  const char* alone;  // catalog names
  int gpus_per_node;
  double memory;  // GB; 0: whatever
  const char* crowded;
  const char* assumption;
};
constexpr std::array kCrowdedCards{
    CrowdedCard{"GH200-96GB", 4, 0, "GH200-96GB-quad", "the power limit of GH200-96GB-quad"},
    CrowdedCard{"MI250", 8, 64, "MI250-GCD", "dies of MI250 are its GPUs"},
    CrowdedCard{"MI250X", 8, 64, "MI250X-GCD", "dies of MI250X are its GPUs"},
};

const GpuSpec& card_of_node(const GpuSpec& gpu, int gpus_per_node, double memory,
                            std::vector<std::string>& assumptions) {
  const auto found = std::find_if(kCrowdedCards.begin(), kCrowdedCards.end(), [&](const CrowdedCard& card) {
    return gpu.name == card.alone &&
           (gpus_per_node == card.gpus_per_node || (memory > 0 && memory == card.memory));
  });
  if (found == kCrowdedCards.end()) return gpu;
  assumptions.emplace_back(found->assumption);
  return find_gpu(found->crowded, "");
}

// What NCCL gets through a card over sockets: 0.92 of it on 1 Gb/s and 25 Gb/s Ethernet (the maxima that
// Sailor measured, network_coeffs_all_homo.json: 0.926 on RTX 3090 nodes, 0.914 on RTX 2080 and Titan RTX
// nodes), as long as processors can copy that much: 4 to 6 GB/s through 100 Gb/s cards of nodes of eight V100
// (NVIDIA/nccl issues 398 and 450), the middle. Looked up after errors of AMP's trials had been
// seen.
double socket_share(double gigabits) {
  constexpr double kOfEthernet = 0.92, kMostGigabits = 40;
  return std::min(kOfEthernet, kMostGigabits / gigabits);
}

std::string to_text(const SaidNetwork& network) {
  char text[48];
  std::snprintf(text, sizeof text, "%d x %g", network.nics, network.gigabits);
  return text;
}

// As said; else all that a node can have had: of a DGX, or where memory is remote, the reference machine's.
std::vector<SaidNetwork> networks_of(const MeasuredRun& run, const NodeGroup& group, bool one_node,
                                     std::vector<std::string>& assumptions) {
  const std::string text = run.text("interconnect");
  const int gpus = group.gpus_per_node;
  if (const auto said = said_network(text, gpus, reference_network(group.gpu, gpus))) return {*said};
  std::vector<SaidNetwork> possible = possible_networks(group.gpu, gpus, text);
  const bool reference = says_remote_memory(text) || says(text + run.text("cluster_desc"), "DGX");
  if (one_node || reference) possible.resize(1);
  if (one_node) return possible;
  std::string what = "network: " + to_text(possible.front());
  for (std::size_t i = 1; i < possible.size(); ++i) what += " or " + to_text(possible[i]);
  what += " Gb/s a node";
  if (says_numbers_between_nodes(text)) what += ", for '" + text + "' is not understood";
  assumptions.push_back(std::move(what));
  return possible;
}

// What sockets get through where a node has one card, or the row says that they are what it had.
void limit_sockets(SaidNetwork& network, const std::string& text, std::vector<std::string>& assumptions) {
  // Of 200 Gb/s and more all are RDMA's: InfiniBand HDR, or RoCE.
  constexpr double kRemoteMemory = 200;
  const bool may_be_remote =
      network.nics > 1 || network.gigabits >= kRemoteMemory || says_remote_memory(text);
  if (may_be_remote && !says_sockets(text)) return;
  const double share = socket_share(network.gigabits);
  network.gigabits *= share / kUsualShare;
  char said[64];
  std::snprintf(said, sizeof said, "sockets over %s reach %.2f of its rate",
                network.nics == 1 ? "one network card a node" : "a network card", share);
  assumptions.emplace_back(said);
}

// With the cards that GPUs can share evenly.
NodeNetwork spread_evenly(const SaidNetwork& network, int gpus_per_node, Seconds latency) {
  int nics = std::min(network.nics, gpus_per_node);
  while (gpus_per_node % nics != 0) --nics;
  return {nics, {gigabits_per_second(network.gigabits * network.nics / nics), latency}};
}

MeasuredCluster cluster_called(const std::string& name) {
  MeasuredCluster result{read_cluster(name), {}};
  const NodeGroup& first = result.cluster.groups.front();
  result.networks.push_back({first.nics_per_node, first.nic});
  return result;
}

// Of cards that a bridge could join: "PCIe", "PCIe (NVLink disabled)", "PCIe, no NVLink".
bool has_no_bridge(const std::string& text, const GpuSpec& gpu) {
  if (!gpu.link.starts_with("NVLink bridge") || !says(lower_case(text), "pcie")) return false;
  return said(clauses_of(text), {"*nvlink*"}) != Said::yes;
}

// Of a name that cards in sockets of NVLink and in PCIe slots share, the latter where the row names PCIe and
// no NVLink between them.
const GpuSpec* card_of_slot(const MeasuredRun& run, const GpuSpec* gpu, double memory) {
  const auto words = clauses_of(run.text("interconnect"));
  const bool in_slot = affirms(words, {"pcie*"}) && said(words, {"*nvlink*", "*nvswitch*"}) != Said::yes &&
                       !says_any(lower_case(run.text("gpu")), {"sxm", "pcie"});
  if (!in_slot || !gpu->link.starts_with("NVLink") || gpu->link.starts_with("NVLink bridge")) return gpu;
  const GpuSpec* other = gpu_called(run.text("gpu") + " PCIe", memory);
  return other ? other : gpu;
}

// "power cap 240 W", "power limited to 250W", "a 300 W cap": what the owner set, below the data sheet's.
std::optional<Watts> said_power_limit(const MeasuredRun& run) {
  static const std::regex kLimit(
      R"(power (?:cap|limit)(?:ped|ed)?(?: of| to| at)? (\d{2,4}) ?w\b|\b(\d{2,4}) ?w (?:power )?(?:cap|limit)\b)");
  constexpr std::size_t kLongest = 400;  // std::regex goes as deep as its text is long
  const std::string text = lower_case(run.text("note")).substr(0, kLongest);
  std::smatch found;
  if (!std::regex_search(text, found, kLimit)) return std::nullopt;
  return Watts(std::stod(found[1].matched ? found[1] : found[2]));
}

}  // namespace

ClusterSpec on_network(ClusterSpec cluster, const NodeNetwork& network) {
  cluster.groups.front().nics_per_node = network.nics;
  cluster.groups.front().nic = network.nic;
  return cluster;
}

bool comes_in_racks(const GpuSpec& gpu) {
  return says(gpu.link, "72-GPU");
}

std::variant<MeasuredCluster, Unmapped> cluster_of_run(const MeasuredRun& run,
                                                       std::vector<std::string>& assumptions) {
  constexpr std::int64_t kMostGpus = 1 << 17, kMostOfNode = 1024;
  constexpr double kOtherCard = 0.12, kMostMemory = 4096;  // of the catalog's memory; GB
  const auto gpus = run.integer("n_gpus", kMostGpus);
  if (!gpus) return Unmapped{"no number of GPUs"};
  if (const std::string name = run.text("cluster"); !name.empty()) return cluster_called(name);
  if (const auto rate = negative_rate(run.text("interconnect")))
    return Unmapped{"interconnect: found '" + *rate + "', expected rates above zero"};
  const double memory = run.number("gpu_mem_gb").value_or(0);
  const GpuSpec* gpu = gpu_called(run.text("gpu"), memory);
  if (!gpu)
    return Unmapped{"GPU " + run.text("gpu") +
                    " is not in the catalog (`orrery catalog gpus`): describe it in a cluster file and name "
                    "that in the column `cluster`"};
  gpu = card_of_slot(run, gpu, memory);
  if (memory == 0) assumptions.push_back("the usual card of the name " + run.text("gpu"));
  NodeGroup group;
  const bool rack = comes_in_racks(*gpu);
  constexpr int kOfTray = 4;  // of a rack of GB200 or GB300; each tray has the cards of its network
  group.gpus_per_node =
      static_cast<int>(run.integer("gpus_per_node", kMostOfNode).value_or(rack ? kOfTray : 8));
  group.gpu = card_of_node(*gpu, group.gpus_per_node, memory, assumptions);
  if (memory > 0 && std::abs(memory / to_gibibytes(group.gpu.memory) - 1) > kOtherCard) {
    if (memory > kMostMemory) return Unmapped{"a GPU of " + run.text("gpu_mem_gb") + " GB"};
    group.gpu.memory = gibibytes(memory);
    assumptions.push_back(group.gpu.name + " with " + run.text("gpu_mem_gb") + " GB");
  }
  if (const auto limit = said_power_limit(run); limit && *limit < group.gpu.power)
    group.gpu.power_limit = *limit;
  group.name = "gpus";
  const std::string text = run.text("interconnect");
  const bool one_node = *gpus <= (rack ? kDomain : group.gpus_per_node);
  std::vector<SaidNetwork> networks = networks_of(run, group, one_node, assumptions);
  if (group.gpus_per_node > 1 && !one_node) {
    for (SaidNetwork& network : networks) limit_sockets(network, text, assumptions);
  }
  if (rack) {
    for (SaidNetwork& network : networks)
      network.nics = std::max(1, network.nics * kDomain / group.gpus_per_node);
    group.gpus_per_node = kDomain;
  }
  group.host = usual_host(group.gpu, group.gpus_per_node);
  if (has_no_bridge(text, group.gpu)) {
    group.gpu.link = "PCIe";
    group.gpu.link_bandwidth = group.host.link;
  }
  group.gpu_link = usual_gpu_link(group);
  if (const auto inside = said_inside(text)) group.gpu_link.bandwidth = gigabits_per_second(*inside);
  const int nodes = static_cast<int>((*gpus + group.gpus_per_node - 1) / group.gpus_per_node);
  group.count = {0, std::max(nodes, 1)};
  MeasuredCluster result;
  result.cluster.name = "published";
  result.cluster.groups = {group};
  const Seconds latency =
      says(text, "EFA") ? find_instance("p5.48xlarge", "").nic_latency.value_or(kNicLatency) : kNicLatency;
  for (const SaidNetwork& network : networks)
    result.networks.push_back(spread_evenly(network, group.gpus_per_node, latency));
  result.cluster = on_network(std::move(result.cluster), result.networks.front());
  return result;
}

// What collectives over nodes get through of the cards' rate, where less than the cost models expect is
// known. InfiniBand: a ring passes a node's one card by the GPU beside it, and without GPUDirect crosses the
// uplink of their PCIe switch twice: 6 GB/s on two clusters of four nodes with 100 Gb/s InfiniBand, one of
// them of 8 V100 (NVIDIA/nccl issue 465, nccl-tests issue 29). Set, and looked up, after dlperf-v100 had been
// seen (pipelines 19 % too long). Omni-Path, without GPUDirect too: bus bandwidth of an all-reduce of 4 GB
// over four nodes of 8 A100 and four cards of 100 Gb/s, 40.6 Gb/s in every trial but the first
// (bigscience-workshop/bigscience 358e3c8, experiments/bandwidth/all_reduce_bench-a100-n4.txt); looked up
// after bloom-a100 had been seen. Messages between stages come from the GPUs behind every switch of the node
// and are not slowed.
double node_collectives(const MeasuredRun& run, const ClusterSpec& cluster,
                        std::vector<std::string>& assumptions) {
  constexpr BytesPerSecond kThroughOneSwitch{6e9}, kOmniPathNode{40.6e9 / 8};
  constexpr double kOldCard = 100;  // Gb/s: of faster ones nobody measured that
  const NodeGroup& group = cluster.groups.front();
  if (!run.text("cluster").empty() || group.count.maximum == 1) return 1.0;
  const std::string text = run.text("interconnect");
  if (affirms(clauses_of(text), {"*gpudirect*"})) return 1.0;
  const bool omni_path = says(text, "Omni-Path");
  const bool one_old_card = shares_card(group) && group.nic.bandwidth <= gigabits_per_second(kOldCard);
  if (!omni_path && !(one_old_card && says(text, "InfiniBand"))) return 1.0;
  const BytesPerSecond cards = group.nic.bandwidth * kUsualShare * group.nics_per_node;
  const double share = (omni_path ? kOmniPathNode : kThroughOneSwitch) / cards;
  if (share >= 1) return 1.0;
  assumptions.emplace_back(omni_path ? "no GPUDirect: collectives over Omni-Path get 5 GB/s of a node through"
                                     : "no GPUDirect: collectives over one network card a node get 6 GB/s "
                                       "through");
  return share;
}

}  // namespace orrery
