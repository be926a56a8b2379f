#include "sim/time_bound.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "costmodels/local_layer.hpp"
#include "strategies/schedule.hpp"

namespace orrery {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Sums of layers are rounded in another order than those of the exact recurrence.
constexpr double kRounding = 1 - 1e-9;

// Which part of the way through the stages above a stage must wait for: for the first microbatch to come down
// and the last gradient to go up. Chunks pass on a part of a stage each. Schedules that split the backward
// may have work left for after the gradient has gone.
double fill_share(const Setting& setting, bool layers_alike) {
  if (setting.chunks > 1 && !layers_alike) return 0.0;
  switch (setting.schedule) {
    case ScheduleKind::gpipe:
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::interleaved:
      return 1.0 / setting.chunks;
    case ScheduleKind::zb_h1:
    case ScheduleKind::zb_h2:
    case ScheduleKind::zb_v:
    case ScheduleKind::from_file:
      break;
  }
  return 0.0;
}

// Whether collectives of a stage's groups that are played may be quicker than priced.
bool may_beat_its_price(const NodeGroup& group, const Ways& ways) {
  const bool leaves_node = group.gpus_per_node % (ways.tensor * ways.context * ways.expert) != 0;
  return leaves_node && group.nics_per_node < group.gpus_per_node;
}

// Forward and backward seconds of each layer; the first has the embedding with it and the last the head.
std::vector<double> block_seconds(const PriceBook& book, const ShardKey& key, const Ways& ways,
                                  Recompute recompute) {
  // How many layers `block` repeats depends on how many there are in a part.
  if (recompute.method == RecomputeMethod::block) recompute = {};
  const ShardCost& cost = book.shard(key);
  const NodeGroup& group = book.cluster().groups[static_cast<std::size_t>(key.group)];
  std::vector<double> blocks;
  for (int layer = 0; layer < book.model().layer_count(); ++layer) {
    const PartTimes times = least_times(book.part_times(cost, {layer, 1}, recompute), group, ways);
    blocks.push_back((times.forward + times.backward + times.weight_gradient).value());
  }
  return blocks;
}

double seconds(const BlockCost& block, const NodeGroup& group, const Ways& ways) {
  const Seconds compute = block.forward.compute + block.backward.compute;
  if (may_beat_its_price(group, ways)) return compute.value();
  return (compute + block.forward.communication + block.backward.communication).value();
}

// The quickest and the slowest layer, without the embedding and the head.
std::pair<double, double> layer_seconds(const ShardCost& cost, const NodeGroup& group, const Ways& ways,
                                        std::vector<double> blocks) {
  blocks.front() -= seconds(cost.embedding, group, ways);
  blocks.back() -= seconds(cost.head, group, ways);
  const auto [quickest, slowest] = std::minmax_element(blocks.begin(), blocks.end());
  return {*quickest * kRounding, *slowest};
}

}  // namespace

PartTimes least_times(PartTimes times, const NodeGroup& group, const Ways& ways) {
  if (!may_beat_its_price(group, ways)) return times;
  times.forward -= times.forward_tensor;
  times.backward -= times.backward_tensor;
  return times;
}

double least_reduction(const PriceBook& book, int group, const Ways& ways, const Setting& setting) {
  const NodeGroup& nodes = book.cluster().groups[static_cast<std::size_t>(group)];
  const bool as_said = !book.cluster().network && book.cluster().links.empty();
  const int copies = ways.data * ways.context;
  if (!as_said || copies < 2 || ways.expert > 1 || setting.overlap_grad_reduce ||
      splits_backward(setting.schedule)) {
    return 0;
  }
  const JobPrecision& precision = book.precision();
  const LayerSplit split{.tensor = ways.tensor,
                         .context = ways.context,
                         .expert = ways.expert,
                         .micro_batch = setting.micro_batch,
                         .sequence = precision.sequence,
                         .sequence_parallel = setting.sequence_parallel};
  const LayerShape& shape = book.model().layer(0);
  const LocalParameters parameters = local_parameters(shape, local_layer(shape, split));
  const double gradient = precision.stack.reduced_gradient.value_or(gradient_bytes(precision.type));
  const double sent = setting.distributed_optimizer ? gradient + stored_bytes(precision.type) : 2 * gradient;
  const double bytes = (parameters.dense + parameters.expert) * sent;
  const int each = std::min(copies, std::max(1, nodes.gpus_per_node / ways.tensor));  // copies in a node
  const int used_nodes = (copies + each - 1) / each;
  if (used_nodes == 1) return bytes * (copies - 1) / copies / nodes.gpu_link.bandwidth.value();
  const double out = bytes * (used_nodes - 1) / used_nodes;
  // Each copy sends by a NIC, at the best alone; with contention, all that a node sends shares its NICs.
  const double alone = out / (each * nodes.nic.bandwidth.value());
  if (book.cluster().contention == Contention::ideal) return alone;
  return std::max(alone, ways.tensor * out / (nodes.nics_per_node * nodes.nic.bandwidth.value()));
}

TimeBound::TimeBound(const WorkRates& rates, const std::vector<double>& reduction, const Pipeline& pipeline)
    : pipeline_(pipeline) {
  const std::size_t layers = rates.blocks.front().size();
  std::vector<double> least_share(layers, kNever), least(layers, kNever);
  double work_share = 1;  // the least that work is of work and reduction
  for (std::size_t g = 0; g < rates.blocks.size(); ++g) {
    const double once = reduction[g] / pipeline.microbatches;
    const std::vector<double>& blocks = rates.blocks[g];
    whole_.push_back(kNever);
    layer_.push_back(rates.layer.empty() ? kNever : rates.layer[g] + once);
    if (blocks.front() == kNever) continue;
    whole_[g] = std::accumulate(blocks.begin(), blocks.end(), 0.0) + once * static_cast<double>(layers);
    for (std::size_t i = 0; i < layers; ++i) {
      least[i] = std::min(least[i], blocks[i] + once);
      least_share[i] = std::min(least_share[i], (blocks[i] + once) / whole_[g]);
      work_share = std::min(work_share, blocks[i] / (blocks[i] + once));
    }
    fastest_first_.push_back(static_cast<int>(g));
  }
  share_ = std::accumulate(least_share.begin(), least_share.end(), 0.0);
  largest_ = *std::max_element(least.begin(), least.end());
  std::stable_sort(fastest_first_.begin(), fastest_first_.end(), [&](int a, int b) {
    return whole_[static_cast<std::size_t>(a)] < whole_[static_cast<std::size_t>(b)];
  });
  const double ratio = 1 - pipeline.fill * work_share / pipeline.microbatches;
  loads_.push_back(0);
  double load = 1;
  for (int stage = 0; stage < pipeline.most_stages; ++stage) {
    loads_.push_back(loads_.back() + load);
    load *= ratio;
  }
}

double TimeBound::spread(const StageCounts& stages) const {
  double held = 0;  // of the model, at a second of time
  std::size_t position = 0;
  for (const int group : fastest_first_) {
    const auto g = static_cast<std::size_t>(group);
    const auto end = position + static_cast<std::size_t>(stages[g]);
    held += (loads_[end] - loads_[position]) / whole_[g];
    position = end;
  }
  return kRounding * pipeline_.microbatches * std::max(share_ / held, largest_);
}

// The least slowest stage: raises the limit from the perfect spread, layer by layer, until all are held.
double TimeBound::whole_layers(const StageCounts& stages) const {
  const int layers = pipeline_.layers;
  if (layers == 0) return 0;
  double rate = 0, limit = 0;
  for (std::size_t g = 0; g < stages.size(); ++g) {
    if (stages[g] == 0) continue;
    rate += stages[g] / layer_[g];
    limit = std::max(limit, layer_[g]);
  }
  limit = std::max(limit, layers / rate);
  while (true) {
    std::int64_t held = 0;
    double next = kNever;
    for (std::size_t g = 0; g < stages.size(); ++g) {
      if (stages[g] == 0) continue;
      const auto each = static_cast<std::int64_t>(limit / layer_[g] * (1 + 1e-12));
      held += stages[g] * each;
      next = std::min(next, static_cast<double>(each + 1) * layer_[g]);
    }
    if (held >= layers) return kRounding * pipeline_.microbatches * limit * pipeline_.chunks;
    limit = next;
  }
}

TimeBounds::TimeBounds(const PriceBook& book, int most_stages, std::int64_t global_batch)
    : book_(book),
      most_stages_(most_stages),
      layers_alike_(std::all_of(book.model().layers.begin(), book.model().layers.end(),
                                [&](int shape) { return shape == book.model().layers.front(); })),
      global_batch_(global_batch) {}

const WorkRates& TimeBounds::rates(const Ways& ways, const std::vector<char>& group_fits,
                                   const Setting& setting) {
  const RateKey key{ways.tensor,
                    ways.context,
                    ways.expert,
                    group_fits,
                    setting.micro_batch,
                    setting.sequence_parallel,
                    setting.recompute.method == RecomputeMethod::block ? RecomputeGranularity::none
                                                                       : setting.recompute.granularity};
  const auto found = rates_.find(key);
  if (found != rates_.end()) return found->second;
  WorkRates& rates = rates_[key];
  for (std::size_t g = 0; g < group_fits.size(); ++g) {
    rates.blocks.emplace_back(book_.model().layers.size(), kNever);
    if (layers_alike_) rates.layer.push_back(kNever);
    if (group_fits[g] == 0) continue;
    const ShardKey shard{static_cast<int>(g), ways.tensor,         ways.context,
                         ways.expert,         setting.micro_batch, setting.sequence_parallel};
    rates.blocks[g] = block_seconds(book_, shard, ways, setting.recompute);
    if (!layers_alike_) continue;
    const auto [quickest, slowest] =
        layer_seconds(book_.shard(shard), book_.cluster().groups[g], ways, rates.blocks[g]);
    rates.layer[g] = quickest;
    rates.alike = rates.alike && slowest <= quickest * (1 + 1e-6);
  }
  return rates;
}

TimeBound TimeBounds::bound(const Ways& ways, const std::vector<char>& group_fits, const Setting& common,
                            const std::vector<Setting>& settings) {
  std::vector<double> reduction(group_fits.size(), 0.0);
  for (std::size_t g = 0; layers_alike_ && g < reduction.size(); ++g) {
    if (group_fits[g] == 0) continue;
    reduction[g] = kNever;
    for (const Setting& setting : settings) {
      reduction[g] = std::min(reduction[g], least_reduction(book_, static_cast<int>(g), ways, setting));
    }
  }
  const WorkRates& of_groups = rates(ways, group_fits, common);
  TimeBound::Pipeline pipeline;
  pipeline.microbatches = static_cast<double>(global_batch_ / (common.micro_batch * ways.data));
  pipeline.fill = fill_share(common, layers_alike_ && of_groups.alike);
  const bool equal_parts = common.schedule == ScheduleKind::interleaved;
  if (layers_alike_ && (equal_parts || common.chunks == 1)) {
    pipeline.chunks = common.chunks;
    pipeline.layers = book_.model().layer_count() / common.chunks;
  }
  pipeline.most_stages = most_stages_;
  return {of_groups, reduction, pipeline};
}

}  // namespace orrery
