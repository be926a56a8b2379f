// Times and efficiencies over sizes: of gradient rings, of paths between stages, of optimizer steps.
#include <algorithm>
#include <cmath>

#include "costmodels/collectives/collective_phase.hpp"
#include "costmodels/layers/stack_effects.hpp"
#include "costmodels/operators/cached_traffic.hpp"
#include "costmodels/operators/node_links.hpp"
#include "costmodels/plans/price_batch.hpp"
#include "costmodels/plans/price_book.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

// Launching the kernels of an optimizer step and reading the gradient norm back (FIDELITY A.3: 3 ms on A100
// hosts).
constexpr Seconds kOptimizerHost = milliseconds(3);

// Bytes of a parameter; what one operation leaves for the next is as large as the widest matrix.
double moved_by_step(const SoftwareStack& stack, const ModelSpec& model, const GpuSpec& gpu) {
  const OptimizerCost& cost = *stack.optimizer;
  if (cost.uncached <= 0) return cost.bytes_per_parameter;
  const double element = stack.states.step_in_16_bits() ? 2 : 4;
  std::int64_t widest = 1;
  for (const LayerShape& shape : model.shapes) widest = std::max(widest, shape.hidden * shape.ffn);
  return moved_past_cache(gpu, element * static_cast<double>(widest), cost.bytes_per_parameter,
                          cost.uncached);
}

std::vector<double> grid() {
  std::vector<double> sizes;
  for (int exponent = kFirstExponent; exponent <= kLastExponent; exponent += kStride) {
    sizes.push_back(std::exp2(exponent));
  }
  return sizes;
}

// Replicas of one stage that share a node.
int ring_ranks_per_node(const NodeGroup& group, int lanes, int data) {
  return std::max(1, std::min(data, group.gpus_per_node / lanes));
}

Collective ring_collective(const NodeGroup& group, int lanes, int data, CollectiveKind kind, double bytes) {
  Collective ring;
  ring.kind = kind;
  ring.bytes = Bytes(bytes);
  ring.ranks = data;
  ring.ranks_per_node = ring_ranks_per_node(group, lanes, data);
  ring.gpu_link = NodeLinks(group).among(ring.ranks_per_node);
  ring.network = nic_share(group);
  return ring;
}

// Seconds at full bandwidth of the ring that collective_flows plays when the rest of the node is as busy:
// with its share of the NICs, since the flows that share them are played.
double ring_ideal(const NodeGroup& group, const Collective& ring) {
  const double rounds = ring.kind == CollectiveKind::all_reduce ? 2.0 : 1.0;
  const double members = ring.ranks;
  const double hop = rounds * (members - 1) / members * ring.bytes.value();
  const double inside = hop / group.gpu_link.bandwidth.value();
  if (ring.ranks <= ring.ranks_per_node) return inside;
  const double between = hop / ring.ranks_per_node / ring.network.bandwidth.value();
  return ring.ranks_per_node > 1 ? std::max(inside, between) : between;
}

// And of latency, whatever it carries.
Seconds ring_latency(const NodeGroup& group, const Collective& ring) {
  const bool closed = ring.ranks <= ring.ranks_per_node;
  const Seconds hop_inside = group.gpu_link.latency * 2;
  std::vector<Seconds> hops(static_cast<std::size_t>(ring.ranks), hop_inside);
  const auto run = static_cast<std::size_t>(ring.ranks_per_node);
  for (std::size_t last = run; !closed && last < hops.size() + run; last += run)
    hops[std::min(last, hops.size()) - 1] = group.nic.latency * 2;
  const std::size_t rounds = ring.kind == CollectiveKind::all_reduce ? 2 : 1;
  return chain_latency(hops, rounds * (hops.size() - 1));
}

// What pinned copies reach of a link, 25 of 32 GB/s on PCIe 4.0, and a stream through the memory of a host of
// its data sheet: usual of bandwidthTest and STREAM, recalled; assumptions elsewhere.
constexpr double kHostLinkShare = 0.8;
constexpr double kHostMemoryShare = 0.8;
// What Adam reaches of it on x86 cores that the ranks of a node share, over 34 B of each parameter: the
// median of 38 published steps of eleven sources. By source 0.20 to 0.33 in six (deep-opt-states,
// bridge-cpu-offload, ml-eng-offload, stronghold-ae, amd-llm-mi210, prime-rl's first), 0.4 to 0.7 in two
// (zenflow-corebind, ds-reflow-base) and in prime-rl's with pinned copies under the backward, 0.02 to 0.1 in
// three (alst-llama8b, ds-pr8186, ds-gist-a800-off). A GPU's own CPU (Grace) is taken to reach all of
// kHostMemoryShare (assumption).
constexpr double kSharedAdamShare = 0.3;
// 6.0 x16, one direction; faster links lead to a GPU's own CPU.
constexpr BytesPerSecond kFastestHostPcie{128e9};

// Of one GPU's parameters while the other GPUs of its node are at theirs: gradients go down, Adam steps,
// weights come back (Megatron-LM core/optimizer/cpu_offloading/hybrid_optimizer.py without
// --overlap-cpu-optimizer-d2h-h2d, where each waits for the one before). Gradients are in fp32. Adam reads
// four fp32 numbers of each and writes three, in one kernel (fused); the weights are cast before they are
// copied.
Seconds host_step(const NodeGroup& group, DataType type, double parameters) {
  const BytesPerSecond share = group.host.memory_bandwidth / group.gpus_per_node;
  const BytesPerSecond memory = share * kHostMemoryShare;
  const BytesPerSecond stepped = group.host.link > kFastestHostPcie ? memory : share * kSharedAdamShare;
  BytesPerSecond link = group.host.link;
  if (group.pcie_switches > 0)
    link = std::min(link, group.pcie_uplink.bandwidth * (double(group.pcie_switches) / group.gpus_per_node));
  link = std::min(link * kHostLinkShare, memory);
  const double weight = stored_bytes(type);
  const double cast = weight < 4 ? 4 + weight : 0;
  return Bytes((4 + weight) * parameters) / link + Bytes((28 + cast) * parameters) / stepped;
}

}  // namespace

LinkSpec nic_share(const NodeGroup& group) {
  const double share = static_cast<double>(group.nics_per_node) / group.gpus_per_node;
  return {group.nic.bandwidth * std::min(1.0, share), group.nic.latency};
}

std::map<PriceBook::RingKey, SizeSeries> PriceBook::ask_rings(PriceBatch& batch) const {
  const std::vector<double> sizes = grid();
  std::map<RingKey, SizeSeries> all;
  for (const auto& [key, table] : rings_) {
    const NodeGroup& group = cluster_.groups[static_cast<std::size_t>(key.group)];
    SizeSeries& series = all[key];
    series.times.resize(sizes.size());
    const Seconds latency =
        ring_latency(group, ring_collective(group, key.lanes, key.data, key.kind, sizes.front()));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Collective ring = ring_collective(group, key.lanes, key.data, key.kind, sizes[i]);
      series.add(Seconds(ring_ideal(group, ring)), latency);
      batch.add(key.group, ring, &series.times[i]);
    }
  }
  return all;
}

LinkSpec PriceBook::path_of(const PathKey& key) const {
  const NodeGroup& from = cluster_.groups[static_cast<std::size_t>(key.from)];
  const NodeGroup& to = cluster_.groups[static_cast<std::size_t>(key.to)];
  if (key.inside) return {NodeLinks(from).among(2).bandwidth, from.gpu_link.latency * 2};
  return {std::min(from.nic.bandwidth, to.nic.bandwidth), from.nic.latency + to.nic.latency};
}

std::map<PriceBook::PathKey, SizeSeries> PriceBook::ask_paths(PriceBatch& batch) const {
  const std::vector<double> sizes = grid();
  std::map<PathKey, SizeSeries> all;
  const auto ask = [&](const PathKey& key) {
    const LinkSpec path = path_of(key);
    // The flows are on the whole link, as those of collectives are.
    const BytesPerSecond played =
        key.inside ? cluster_.groups[static_cast<std::size_t>(key.from)].gpu_link.bandwidth : path.bandwidth;
    SizeSeries& series = all[key];
    series.times.resize(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      series.add(Bytes(sizes[i]) / played, path.latency);
      batch.add(key.from, PointToPoint{Bytes(sizes[i]), path, key.inside}, &series.times[i]);
    }
  };
  const int groups = static_cast<int>(cluster_.groups.size());
  for (int from = 0; from < groups; ++from) {
    ask({from, from, true});
    for (int to = 0; to < groups; ++to) ask({from, to, false});
  }
  return all;
}

std::vector<std::vector<Seconds>> PriceBook::ask_optimizers(PriceBatch& batch) const {
  const std::vector<double> sizes = grid();
  std::vector<std::vector<Seconds>> all(cluster_.groups.size(), std::vector<Seconds>(sizes.size()));
  for (std::size_t group = 0; group < all.size(); ++group) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      for (const Operator& op : optimizer_operators(sizes[i], precision_.type)) {
        batch.add(static_cast<int>(group), op, &all[group][i]);
      }
    }
  }
  return all;
}

Seconds PriceBook::optimizer(int group, double parameters, double offload) const {
  if (offload <= 0) return optimizer(group, parameters);
  const NodeGroup& nodes = cluster_.groups[static_cast<std::size_t>(group)];
  const Seconds host = host_step(nodes, precision_.type, parameters * offload);
  return offload < 1 ? std::max(host, optimizer(group, parameters * (1 - offload))) : host;
}

Seconds PriceBook::moving(int group, Bytes bytes) const {
  constexpr double kShare = 0.7;  // of the bandwidth, as the optimizer's kernels
  return bytes / (cluster_.groups[static_cast<std::size_t>(group)].gpu.memory_bandwidth * kShare);
}

Seconds PriceBook::casting_weights(int group, Bytes copies) const {
  // 2 B are read for each two narrow elements that are written.
  return moving(group, copies * (1 + 1 / narrow_bytes(precision_.type, precision_.stack.fp8_recipe)));
}

// Read and written on the way there, and on the way back.
Seconds PriceBook::copying_buckets(int group, Bytes buckets) const {
  return moving(group, buckets * 4);
}

// Moments that there are not are neither read nor written.
Seconds PriceBook::optimizer(int group, double parameters) const {
  constexpr double kOfAdam = 28.0;  // bytes: optimizer_operators
  const double lacking = 2 * lacking_moments(precision_.stack);
  if (const auto& own = precision_.stack.optimizer) {
    const GpuSpec& gpu = cluster_.groups[static_cast<std::size_t>(group)].gpu;
    const double bytes = moved_by_step(precision_.stack, model_, gpu) - lacking;
    return own->fixed +
           Bytes(parameters * std::max(0.0, bytes)) / (gpu.memory_bandwidth * own->bandwidth_share);
  }
  const double share = 1 - lacking / kOfAdam;
  return kOptimizerHost + Seconds(share * optimizers_[static_cast<std::size_t>(group)].at(parameters));
}

TransferEfficiency PriceBook::ring_efficiency(int group, int lanes, int data, CollectiveKind kind,
                                              Bytes bytes) const {
  if (data < 2) return {};
  const auto found = rings_.find({group, lanes, data, kind});
  ORRERY_ENSURE(found != rings_.end());
  const double efficiency = found->second.at(bytes.value());
  NetworkShare network = precision_.stack.network;
  network.between *= network.collectives;
  return under_network({efficiency, efficiency}, network);
}

double PriceBook::path_efficiency(const PathKey& key, Bytes bytes) const {
  const auto found = paths_.find(key);
  return found == paths_.end() ? 1.0 : found->second.at(bytes.value());
}

}  // namespace orrery
