#include "sim/bounds/traffic_bound.hpp"

#include <algorithm>
#include <limits>

#include "costmodels/memory/memory.hpp"
#include "costmodels/operators/local_layer.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

// Flows carry whole bytes.
constexpr double kWholeBytes = 1 - 1e-6;

// Whether links are those that groups say.
bool as_catalogued(const ClusterSpec& cluster) {
  return !cluster.network && cluster.links.empty();
}

// The copies of a stage's parameters, one a replica and context rank.
struct StageCopies {
  const NodeGroup& nodes;
  int count = 1;
  int tensor = 1;
  RankOrder order = RankOrder::cp_dp_pp;
  Contention contention = Contention::shared;

  // Of one vector that all copies hold, once over the network at least.
  [[nodiscard]] double seconds(double bytes, const TransferEfficiency& efficiency) const {
    const int each = std::min(count, std::max(1, nodes.gpus_per_node / tensor));  // copies in a node
    const int used_nodes = (count + each - 1) / each;
    if (used_nodes == 1) {
      // In another rank order fewer copies are in a node: across nodes that takes longer, but longer than
      // inside one only where NICs are slower than the links there.
      if (order != RankOrder::cp_dp_pp) return 0;
      return bytes * (count - 1) / count / nodes.gpu_link.bandwidth.value() / efficiency.inside;
    }
    const double out = bytes * (used_nodes - 1) / used_nodes / efficiency.between;
    // Each copy sends by a NIC, at the best alone; with contention, all that a node sends shares its NICs.
    const double alone = out / (each * nodes.nic.bandwidth.value());
    if (contention == Contention::ideal) return alone;
    return std::max(alone, tensor * out / (nodes.nics_per_node * nodes.nic.bandwidth.value()));
  }
};

// Null within a region.
const LinkSpec* link_between_regions(const ClusterSpec& cluster, const NodeGroup& a, const NodeGroup& b) {
  if (a.region == b.region) return nullptr;
  const RegionLink* found = link_between(cluster.fabric.regions, a.region, b.region);
  ORRERY_ENSURE(found);
  return &found->link;
}

// GPUs of a stage that certainly send their lanes of one message from one node: those in a row of one
// replica, over the nodes that they may lie in.
int lanes_in_node(const ParallelStrategy& plan, int stage, const NodeGroup& nodes) {
  const StageDevices& devices = plan.stages[static_cast<std::size_t>(stage)];
  const bool with_context = plan.order == RankOrder::cp_dp_pp || plan.order == RankOrder::cp_pp_dp;
  const int in_row = devices.tensor * (with_context ? plan.context : 1);
  const bool aligned = std::all_of(plan.stages.begin(), plan.stages.end(), [&](const StageDevices& other) {
    return other.group != devices.group || other.tensor == devices.tensor;
  });
  const int least_nodes = (in_row + nodes.gpus_per_node - 1) / nodes.gpus_per_node;
  const int most_nodes = least_nodes + (aligned ? 0 : 1);
  return (in_row + most_nodes - 1) / most_nodes;
}

// Seconds that the lanes of a node share its NICs for, where each sends or receives so many bytes.
double on_shared_nics(double bytes, int lanes, const NodeGroup& nodes) {
  return lanes * bytes / (nodes.nics_per_node * nodes.nic.bandwidth.value());
}

}  // namespace

LeastTraffic least_traffic(const PriceBook& book, int group, const Ways& ways, const Setting& setting) {
  const int count = ways.data * ways.context;
  if (!as_catalogued(book.cluster()) || count < 2 || ways.expert > 1 || splits_backward(setting.schedule) ||
      setting.optimizer_instances > 1) {
    return {};
  }
  if (setting.overlap_grad_reduce.value_or(true)) return {};  // may lie beside backwards
  const JobPrecision& precision = book.precision();
  const LayerSplit split{.tensor = ways.tensor,
                         .context = ways.context,
                         .expert = ways.expert,
                         .micro_batch = setting.micro_batch,
                         .sequence = precision.sequence,
                         .sequence_parallel = setting.sequence_parallel};
  const double gradient = gradient_sent(precision.stack, precision.type);
  double held = std::numeric_limits<double>::infinity();  // parameters of the smallest layer
  for (const LayerShape& shape : book.model().shapes) {
    const LocalParameters local = local_parameters(shape, local_layer(shape, split));
    held = std::min(held, local.dense + local.expert);
  }
  const StageCopies copies{book.cluster().groups[static_cast<std::size_t>(group)], count, ways.tensor,
                           setting.order, book.cluster().contention};
  const double rounds = setting.distributed_optimizer ? 1 : 2;
  return {.reduced = copies.seconds(held * rounds * gradient, {})};
}

LeastTraffic least_traffic(const PriceBook& book, const ParallelStrategy& plan, int part) {
  const int count = plan.data * plan.context;
  if (!as_catalogued(book.cluster()) || count < 2 || plan.expert > 1 || splits_backward(plan.schedule) ||
      exchanges_in_passes(plan) || plan.optimizer_instances > 1) {
    return {};
  }
  const int stage = plan.rank_of_part(part);
  // Only the last backward of the first stage is cut into buckets (strategies/iteration.cpp).
  const bool hidden = plan.overlap_grad_reduce && (stage == 0 || plan.chunks > 1);
  if (hidden && plan.overlap_param_gather) return {};
  const StageDevices& devices = plan.stages[static_cast<std::size_t>(stage)];
  const StageCopies copies{book.cluster().groups[static_cast<std::size_t>(devices.group)], count,
                           devices.tensor, plan.order, book.cluster().contention};
  const PartReduction reduction = book.reduction(plan, part);
  const double rounds = plan.distributed_optimizer ? 1 : 2;
  LeastTraffic least;
  if (!hidden)
    least.reduced = kWholeBytes * copies.seconds(rounds * reduction.gradients.value(), reduction.efficiency);
  if (!plan.overlap_param_gather && plan.pipeline == 1)
    least.gathered = kWholeBytes * copies.seconds(reduction.gathered.value(), reduction.gather_efficiency);
  return least;
}

double least_transfer(const PriceBook& book, const ParallelStrategy& plan, int boundary) {
  const int before = plan.rank_of_part(boundary), after = plan.rank_of_part(boundary + 1);
  if (!as_catalogued(book.cluster()) || before == after) return 0;
  const StageDevices& from = plan.stages[static_cast<std::size_t>(before)];
  const StageDevices& to = plan.stages[static_cast<std::size_t>(after)];
  const NodeGroup& here = book.cluster().groups[static_cast<std::size_t>(from.group)];
  const NodeGroup& there = book.cluster().groups[static_cast<std::size_t>(to.group)];
  const BoundaryMessage message = book.boundary(plan, boundary);
  // The largest of the flows of a lane.
  const double share =
      message.in_shards ? static_cast<double>(from.tensor) / std::max(from.tensor, to.tensor) : 1;
  const double bytes = kWholeBytes * message.bytes.value() * share;
  // Each lane sends as much as the others, on links that fill.
  const bool together =
      (message.in_shards || from.tensor == to.tensor) && book.cluster().contention == Contention::shared;
  const double of_lane = kWholeBytes * message.bytes.value();
  double sent = bytes / std::min(here.nic.bandwidth, there.nic.bandwidth).value();
  double latency = (here.nic.latency + there.nic.latency).value();
  if (together) {
    sent = std::max(
        {sent, on_shared_nics(of_lane, lanes_in_node(plan, before, here), here),
         on_shared_nics(of_lane * from.tensor / to.tensor, lanes_in_node(plan, after, there), there)});
  }
  if (const LinkSpec* region = link_between_regions(book.cluster(), here, there)) {
    const int lanes = together ? from.tensor * plan.context : 1;
    sent = std::max(sent, lanes * of_lane / region->bandwidth.value());
    latency += region->latency.value();
  }
  const double between = sent / message.efficiency.between + latency;
  // Stages that fill whole nodes between them are never on one.
  const bool apart = plan.order == RankOrder::cp_dp_pp || plan.order == RankOrder::dp_cp_pp;
  if (from.group != to.group ||
      (apart && std::min(from.tensor, to.tensor) * plan.context * plan.data >= here.gpus_per_node)) {
    return between;
  }
  const double inside =
      bytes / message.efficiency.inside / here.gpu_link.bandwidth.value() + 2 * here.gpu_link.latency.value();
  return std::min(between, inside);
}

}  // namespace orrery
