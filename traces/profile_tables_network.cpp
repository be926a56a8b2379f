// Collectives and transfers, and the links of the systems they were measured on.
#include <algorithm>
#include <array>
#include <cmath>

#include "platforms/errors.hpp"
#include "platforms/instance.hpp"
#include "traces/profile_tables.hpp"

namespace orrery {

namespace {

// Links of a measured system from data sheets: GB/s of one GPU in its node, and of one rank between nodes (0:
// not known, so that rows between nodes teach nothing). `ranks` 0 is any number. Left out: boards whose GPUs
// share no switch and no ring of equal links (GH200 NVL4, RTX 3090, H100 pairs of unknown bridge), and parts
// of a V100 mesh: two of its GPUs have one, two or three links, which three sources measured as 22, 42 and 64
// GB/s.
struct SystemLinks {
  std::string_view source, system;
  int ranks;
  double gpu_link, network;
};
constexpr std::array kSystems{
    SystemLinks{"vidur", "a100_dgx", 0, 300, 0},  // a cloud's Ethernet of unknown speed between nodes
    SystemLinks{"vidur", "h100_dgx", 0, 450, 50},
    SystemLinks{"vidur", "a100_pairwise_nvlink", 2, 300, 0},
    SystemLinks{"vidur", "a100_pairwise_nvlink", 4, 32, 0},  // over PCIe 4.0 from pair to pair
    SystemLinks{"vidur", "h100_pairwise_nvlink", 4, 64, 0},  // over PCIe 5.0 from pair to pair
    SystemLinks{"vTrain", "a100", 0, 300, 0},
    SystemLinks{"vTrain", "v100", 8, 150, 0},
    SystemLinks{"SuperScaler-Aceso", "V100-32", 8, 150, 0},
    SystemLinks{"sailor", "A100-40", 0, 300, 0},
    SystemLinks{"sailor", "RTX-2080", 0, 16, 0},
    SystemLinks{"sailor", "Titan-RTX", 0, 16, 0},
};

struct CollectiveColumns {
  explicit CollectiveColumns(const CsvStream& rows)
      : source(rows.column("source")),
        system(rows.column("system")),
        op(rows.column("collective")),
        ranks(rows.column("n_ranks")),
        per_node(rows.column("ranks_per_node")),
        bytes(rows.column("bytes")),
        time(rows.column("time_us")),
        status(rows.column("status")),
        gpu_link(rows.find_column("link_GBps")),
        network(rows.find_column("network_GBps")),
        latency(rows.find_column("network_latency_us")) {}
  std::size_t source, system, op, ranks, per_node, bytes, time, status;
  std::optional<std::size_t> gpu_link, network, latency;  // in tables of one's own
};

struct Links {
  double gpu_link, network;
};

constexpr double kSlowestLink = 0.01;  // GB/s
constexpr double kRounded = 1.05;      // as people round a data sheet

// Why the links that a row gives are none; empty where they may be some.
Fault fault_of_links(const CsvStream& rows, const CollectiveColumns& at, GpuNames& gpus, int per_node) {
  const auto given = [&](std::optional<std::size_t> column) {
    return column ? positive_field(rows, *column) : std::nullopt;
  };
  if (const auto link = given(at.gpu_link)) {
    const std::string fault = link_fault(*link, gpus.find(text_field(rows, at.system)));
    if (!fault.empty()) return unreadable(rows, *at.gpu_link, fault);
  }
  if (const auto network = given(at.network)) {
    const std::string fault = network_fault(*network, per_node);
    if (!fault.empty()) return unreadable(rows, *at.network, fault);
  }
  return {};
}

std::optional<Links> links_of(const CsvStream& rows, const CollectiveColumns& at, int ranks) {
  if (at.gpu_link) {
    const auto gpu_link = positive_field(rows, *at.gpu_link);
    const auto network = at.network ? positive_field(rows, *at.network) : std::nullopt;
    if (gpu_link) return Links{*gpu_link, network.value_or(0)};
  }
  for (const auto& system : kSystems) {
    if (system.source == text_field(rows, at.source) && system.system == text_field(rows, at.system) &&
        (system.ranks == 0 || system.ranks == ranks)) {
      return Links{system.gpu_link, system.network};
    }
  }
  return std::nullopt;
}

// The vector of one rank. Aceso's tables give all-gather sizes as what one rank puts in.
double whole_bytes(std::string_view source, std::string_view op, double bytes, int ranks) {
  const bool input_only = op == "all_gather" && is_aceso_profile(source);
  return input_only ? bytes * ranks : bytes;
}

MeasuredCollective collective_of(std::string_view source, std::string_view system, std::string_view op,
                                 Links links) {
  return {.source = std::string(source),
          .system = std::string(system),
          .op = std::string(op),
          .bytes = {},
          .ranks = 0,
          .ranks_per_node = 0,
          .gpu_link = gpu_link_of(gigabytes_per_second(links.gpu_link)),
          .network = {gigabytes_per_second(links.network), kNicLatency},
          .time = {}};
}

// Why a row taught nothing; empty when it was taken.
Fault take(const CsvStream& rows, const CollectiveColumns& at, GpuNames& gpus, Profiles& profiles) {
  const std::string_view status = text_field(rows, at.status);
  if (status != "ok") return "status " + std::string(status);
  Fault fault = extent_fault(rows, {at.ranks});
  if (fault.empty() && !text_field(rows, at.per_node).empty()) fault = extent_fault(rows, {at.per_node});
  if (fault.empty()) fault = bytes_fault(rows, at.bytes);
  if (!fault.empty()) return fault;
  const auto bytes = positive_field(rows, at.bytes), time = positive_field(rows, at.time);
  const std::int64_t ranks = *extent(rows, at.ranks);
  if (!time) return unreadable(rows, at.time);
  if (ranks > kMostRanks) return unreadable(rows, at.ranks);
  if (ranks < 2) return kOneRank;
  const int count = static_cast<int>(ranks);
  const int per_node = static_cast<int>(std::min(extent(rows, at.per_node).value_or(ranks), kMostRanks));
  fault = fault_of_links(rows, at, gpus, per_node);
  if (!fault.empty()) return fault;
  const auto links = links_of(rows, at, count);
  if (!links || (per_node < count && links->network <= 0)) return "links of the system not known";
  const std::string_view source = text_field(rows, at.source), op = text_field(rows, at.op);
  MeasuredCollective row = collective_of(source, text_field(rows, at.system), op, *links);
  row.bytes = Bytes(whole_bytes(source, op, *bytes, count));
  row.ranks = count;
  row.ranks_per_node = per_node;
  row.time = microseconds(*time);
  if (const auto latency = at.latency ? positive_field(rows, *at.latency) : std::nullopt)
    row.network.latency = microseconds(*latency);
  profiles.collectives.push_back(std::move(row));
  return {};
}

// SimAI's shares of the NICs' 50 GB/s per GPU on nodes of eight (astra-sim-alibabacloud/inputs/ratio):
// nic_ratio of all-gather and reduce-scatter, ata_ratio of what an all-to-all sends to other nodes
// (astra-sim/system/calbusbw.cc).
constexpr std::array kSimaiNodes{2, 4, 8, 16, 32, 64, 128};
constexpr int kSimaiGpus = 8;
constexpr Links kSimaiLinks{450, 50};

void read_simai(CsvStream& rows, std::string_view op, Profiles& profiles, ProfileFile& file) {
  const std::size_t size = rows.column("Size"), first = rows.column("2Node-16GPU(NIC )");
  while (next_row(rows, file)) {
    const auto bytes = positive_field(rows, size);
    Profiles line;
    for (std::size_t i = 0; i < kSimaiNodes.size(); ++i) {
      if (text_field(rows, first + i).empty()) continue;  // not every table has every column filled
      const auto ratio = positive_field(rows, first + i);
      if (!bytes || !ratio) {
        skip(file, unreadable(rows, bytes ? first + i : size), rows.line());
        continue;
      }
      MeasuredCollective row = collective_of("SimAI", "h100", op, kSimaiLinks);
      row.bytes = Bytes(*bytes);
      row.ranks = kSimaiNodes[i] * kSimaiGpus;
      row.ranks_per_node = kSimaiGpus;
      // A ring crosses each node's NICs with all eight together; all-to-all sends each GPU's own part.
      const double wire = op == "all_gather" ? (1.0 - 1.0 / row.ranks) * *bytes / kSimaiGpus
                                             : (1.0 - 1.0 / kSimaiNodes[i]) * *bytes;
      row.time = Bytes(wire) / gigabytes_per_second(kSimaiLinks.network * *ratio);
      line.collectives.push_back(std::move(row));
      ++file.used;
    }
    append_line(profiles, std::move(line), rows.line());
  }
}

}  // namespace

bool is_aceso_profile(std::string_view source) {
  return source == "SuperScaler-Aceso" || source == "sailor";
}

LinkSpec gpu_link_of(BytesPerSecond bandwidth) {
  return {bandwidth, bandwidth > kFastestPcie ? kNvlinkLatency : kPcieLatency};
}

std::string link_fault(double gigabytes, const GpuSpec* gpu) {
  if (gigabytes < kSlowestLink) return kSlowLink;
  BytesPerSecond fastest;
  if (gpu != nullptr) fastest = gpu->link_bandwidth;
  for (const GpuSpec& one : gpu_catalog()) {
    if (gpu == nullptr) fastest = std::max(fastest, one.link_bandwidth);
  }
  if (gigabytes_per_second(gigabytes) <= fastest * kRounded) return {};
  return "unreadable: a link faster than the " + to_text(fastest) + " of " +
         (gpu == nullptr ? "any GPU" : gpu->name) + " in one direction (GB/s are an eighth of Gb/s)";
}

// One rank alone on a node has all its NICs.
std::string network_fault(double gigabytes, int ranks_per_node) {
  if (gigabytes < kSlowestLink) return kSlowLink;
  BytesPerSecond fastest;
  for (const InstanceSpec& one : instance_catalog()) {
    if (one.network)
      fastest = std::max(fastest, *one.network / std::max(1, std::min(one.gpus, ranks_per_node)));
  }
  if (gigabytes_per_second(gigabytes) <= fastest * kRounded) return {};
  return "unreadable: a network faster than the " + to_text(fastest) +
         " that a GPU has on any instance (GB/s are an eighth of Gb/s)";
}

void read_collective_table(CsvStream& rows, const std::string&, Profiles& profiles, ProfileFile& file) {
  const CollectiveColumns at(rows);
  GpuNames gpus(profiles.own_gpus);
  read_rows(
      rows, [&](Profiles& row) { return take(rows, at, gpus, row); }, profiles, file);
}

void read_simai_ring_table(CsvStream& rows, const std::string&, Profiles& profiles, ProfileFile& file) {
  read_simai(rows, "all_gather", profiles, file);
}

void read_simai_all_to_all_table(CsvStream& rows, const std::string&, Profiles& profiles, ProfileFile& file) {
  read_simai(rows, "all_to_all", profiles, file);
}

}  // namespace orrery
