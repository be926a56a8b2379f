#include "sim/bounds/priced_bounds.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "costmodels/stacks/sustained_power.hpp"
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
bool may_beat_its_price(const ClusterSpec& cluster, int group_index, const Ways& ways) {
  const bool faster_links =
      std::any_of(cluster.links.begin(), cluster.links.end(), [](const LinkOverride& change) {
        return change.bandwidth || change.latency || (change.factor && *change.factor > 1);
      });
  if (faster_links) return true;
  const NodeGroup& group = cluster.groups[static_cast<std::size_t>(group_index)];
  const bool leaves_node = group.gpus_per_node % (ways.tensor * ways.context * ways.expert) != 0;
  return leaves_node && group.nics_per_node < group.gpus_per_node;
}

// Seconds of a pass through each layer at least, whichever stretch of layers it is part of: the host and the
// GPU go through a stretch side by side, so that it is their sums that count, and either is below the time.
// `own`: of the GPU alone.
std::vector<double> part_floor(const std::vector<double>& times, const std::vector<double>& own) {
  double host = kNever;  // of a layer it is slower with than the GPU
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i] > own[i] * (1 + 1e-9)) host = std::min(host, times[i]);
  }
  if (host == kNever) return times;
  const double of_host = host * static_cast<double>(times.size());
  if (of_host <= std::accumulate(own.begin(), own.end(), 0.0)) return own;
  return std::vector<double>(times.size(), host);
}

std::vector<double> scaled_to(std::vector<double> shares, double sum) {
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share *= sum / all;
  return shares;
}

// Of its replicas as many as the power of two below them, so that few blocks are priced.
int least_data(const Ways& ways) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(ways.data)));
}

BlockTimes block_times(const PriceBook& book, const ShardKey& key, const Ways& ways, Recompute recompute) {
  const ShardCost& cost = book.shard(key);
  const int gpus = ways.tensor * ways.context * least_data(ways);
  const double slowest = slowest_of(gpus);
  const int layers = book.model().layer_count();
  BlockTimes times, own;
  const bool compute_alone = may_beat_its_price(book.cluster(), key.group, ways);
  const auto total = [&](const PassCost& pass) {
    return (compute_alone ? pass.compute : pass.compute + pass.communication).value();
  };
  for (int layer = 0; layer < layers; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    const PartTimes part =
        least_times(book.part_times(cost, {layer, 1}, recompute, gpus), book.cluster(), key.group, ways);
    times.forward.push_back(part.forward.value());
    times.backward.push_back((part.backward + part.weight_gradient).value());
    PassCost forward = cost.before[i + 1].forward - cost.before[i].forward;
    PassCost backward = cost.before[i + 1].backward - cost.before[i].backward;
    if (recompute.granularity == RecomputeGranularity::full)
      backward += all_repeated_between(cost.before[i], cost.before[i + 1]);
    if (recompute.granularity == RecomputeGranularity::selective)
      backward += repeated_between(cost.before[i], cost.before[i + 1], recompute.modules);
    for (const BlockCost* end :
         {layer == 0 ? &cost.embedding : nullptr, layer == layers - 1 ? &cost.head : nullptr}) {
      if (end == nullptr) continue;
      forward += end->forward;
      backward += end->backward;
    }
    own.forward.push_back(total(on_slowest(forward, slowest)));
    own.backward.push_back(total(on_slowest(backward, slowest)));
  }
  // Weights are gathered beside the layers of the one stage that has them all: its time is not their sum.
  if (key.sharded > 0) {
    const PartTimes all =
        least_times(book.part_times(cost, {0, layers}, recompute, gpus), book.cluster(), key.group, ways);
    return {scaled_to(own.forward, all.forward.value()),
            scaled_to(own.backward, (all.backward + all.weight_gradient).value())};
  }
  return {part_floor(times.forward, own.forward), part_floor(times.backward, own.backward)};
}

// Of a stretch of layers the shares lie between those of its layers.
void add_shares(WorkRates& rates, const BlockTimes& times) {
  double least = kNever, lesser = 0;
  for (std::size_t i = 0; i < times.forward.size(); ++i) {
    const double whole = times.forward[i] + times.backward[i];
    least = std::min(least, times.forward[i] / whole);
    lesser = std::max(lesser, times.forward[i] / whole);
  }
  rates.forward_least = rates.forward_least == 0 ? least : std::min(rates.forward_least, least);
  rates.lesser_most = std::max(rates.lesser_most, std::min(lesser, 0.5));
}

}  // namespace

PartTimes least_times(PartTimes times, const ClusterSpec& cluster, int group, const Ways& ways) {
  if (!may_beat_its_price(cluster, group, ways)) return times;
  times.forward -= times.forward_tensor;
  times.backward -= times.backward_tensor;
  return times;
}

ShardKey shard_key(int group, const Ways& ways, const Setting& setting) {
  return {.group = group,
          .tensor = ways.tensor_of(group),
          .context = ways.context,
          .expert = ways.expert,
          .expert_tensor = setting.expert_tensor,
          .micro_batch = setting.micro_batch,
          .sequence_parallel = setting.sequence_parallel,
          .sharded = setting.fully_sharded ? ways.data * ways.context / setting.optimizer_instances : 0,
          .instances = setting.fully_sharded ? setting.optimizer_instances : 1,
          .flash_attention = setting.flash_attention,
          .tensor_overlap = setting.tensor_overlap};
}

TimeBounds::TimeBounds(const PriceBook& book, int most_stages, std::int64_t global_batch)
    : book_(book),
      most_stages_(most_stages),
      layers_alike_(std::all_of(book.model().layers.begin(), book.model().layers.end(),
                                [&](int shape) { return shape == book.model().layers.front(); })),
      global_batch_(global_batch) {}

const BlockTimes& TimeBounds::blocks(const ShardKey& shard, const Ways& of_group, Recompute recompute) {
  // How many layers `block` repeats depends on how many there are in a part.
  if (recompute.method == RecomputeMethod::block) recompute = {};
  const BlockKey key{shard, recompute.of_layer(), least_data(of_group)};
  const auto found = blocks_.find(key);
  if (found != blocks_.end()) return found->second;
  return blocks_.emplace(key, block_times(book_, shard, of_group, recompute)).first->second;
}

const WorkRates& TimeBounds::rates(const Ways& ways, const std::vector<char>& group_fits,
                                   const Setting& setting) {
  std::vector<ShardKey> shards;
  for (int g = 0; g < static_cast<int>(group_fits.size()); ++g) shards.push_back(shard_key(g, ways, setting));
  const RateKey key{shards, group_fits,
                    setting.recompute.method == RecomputeMethod::block ? Recompute{}.of_layer()
                                                                       : setting.recompute.of_layer(),
                    least_data(ways)};
  const auto found = rates_.find(key);
  if (found != rates_.end()) return found->second;
  WorkRates& rates = rates_[key];
  rates.lesser_most = 0;
  for (std::size_t g = 0; g < group_fits.size(); ++g) {
    rates.blocks.emplace_back(book_.model().layers.size(), kNever);
    if (layers_alike_) rates.layer.push_back(kNever);
    if (group_fits[g] == 0) continue;
    const BlockTimes& times = blocks(shards[g], ways.of_group(static_cast<int>(g)), setting.recompute);
    add_shares(rates, times);
    for (std::size_t i = 0; i < times.forward.size(); ++i)
      rates.blocks[g][i] = times.forward[i] + times.backward[i];
    if (!layers_alike_) continue;
    // Without the embedding and the head.
    const auto inner = rates.blocks[g].size() > 2 ? 1 : 0;
    const auto [quickest, slowest] =
        std::minmax_element(rates.blocks[g].begin() + inner, rates.blocks[g].end() - inner);
    rates.layer[g] = *std::min_element(rates.blocks[g].begin(), rates.blocks[g].end()) * kRounding;
    rates.alike = rates.alike && *slowest <= *quickest * (1 + 1e-6);
  }
  return rates;
}

TimeBound TimeBounds::bound(const Ways& ways, const std::vector<char>& group_fits, const Setting& common,
                            const std::vector<Setting>& settings) {
  std::vector<LeastTraffic> traffic(group_fits.size());
  for (std::size_t g = 0; layers_alike_ && g < traffic.size(); ++g) {
    if (group_fits[g] == 0) continue;
    traffic[g].reduced = kNever;
    for (const Setting& setting : settings) {
      const int group = static_cast<int>(g);
      const LeastTraffic least = least_traffic(book_, group, ways.of_group(group), setting);
      traffic[g].reduced = std::min(traffic[g].reduced, least.reduced);
    }
  }
  const WorkRates& of_groups = rates(ways, group_fits, common);
  TimeBound::Pipeline pipeline;
  pipeline.schedule = common.schedule;
  pipeline.microbatches = static_cast<double>(global_batch_ / (common.micro_batch * ways.data));
  pipeline.fill = fill_share(common, layers_alike_ && of_groups.alike);
  const bool equal_parts = common.schedule == ScheduleKind::interleaved;
  if (layers_alike_ && (equal_parts || common.chunks == 1)) {
    pipeline.chunks = common.chunks;
    pipeline.layers = book_.model().layer_count() / common.chunks;
  }
  pipeline.most_stages = most_stages_;
  return {of_groups, traffic, pipeline};
}

}  // namespace orrery
