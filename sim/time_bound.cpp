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

BlockTimes block_times(const PriceBook& book, const ShardKey& key, const Ways& ways, Recompute recompute) {
  const ShardCost& cost = book.shard(key);
  const int layers = book.model().layer_count();
  BlockTimes times, own;
  const NodeGroup& group = book.cluster().groups[static_cast<std::size_t>(key.group)];
  const bool compute_alone = may_beat_its_price(group, ways);
  const auto total = [&](const PassCost& pass) {
    return (compute_alone ? pass.compute : pass.compute + pass.communication).value();
  };
  for (int layer = 0; layer < layers; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    const PartTimes part = least_times(book.part_times(cost, {layer, 1}, recompute), group, ways);
    times.forward.push_back(part.forward.value());
    times.backward.push_back((part.backward + part.weight_gradient).value());
    PassCost forward = cost.before[i + 1].forward - cost.before[i].forward;
    PassCost backward = cost.before[i + 1].backward - cost.before[i].backward;
    if (recompute.granularity == RecomputeGranularity::full) backward += forward;
    if (recompute.granularity == RecomputeGranularity::selective)
      backward += repeated_between(cost.before[i], cost.before[i + 1], recompute.modules);
    for (const BlockCost* end :
         {layer == 0 ? &cost.embedding : nullptr, layer == layers - 1 ? &cost.head : nullptr}) {
      if (end == nullptr) continue;
      forward += end->forward;
      backward += end->backward;
    }
    own.forward.push_back(total(forward));
    own.backward.push_back(total(backward));
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

PartTimes least_times(PartTimes times, const NodeGroup& group, const Ways& ways) {
  if (!may_beat_its_price(group, ways)) return times;
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
          .flash_attention = setting.flash_attention,
          .tensor_overlap = setting.tensor_overlap};
}

LayerTraffic least_traffic(const PriceBook& book, int group, const Ways& ways, const Setting& setting) {
  const NodeGroup& nodes = book.cluster().groups[static_cast<std::size_t>(group)];
  const bool as_said = !book.cluster().network && book.cluster().links.empty();
  const int copies = ways.data * ways.context;
  if (!as_said || copies < 2 || ways.expert > 1 || setting.overlap_grad_reduce ||
      splits_backward(setting.schedule)) {
    return {};
  }
  const JobPrecision& precision = book.precision();
  const LayerSplit split{.tensor = ways.tensor,
                         .context = ways.context,
                         .expert = ways.expert,
                         .micro_batch = setting.micro_batch,
                         .sequence = precision.sequence,
                         .sequence_parallel = setting.sequence_parallel};
  const double gradient = precision.stack.reduced_gradient.value_or(gradient_bytes(precision.type));
  double held = kNever;  // parameters of the smallest layer
  for (const LayerShape& shape : book.model().shapes) {
    const LocalParameters parameters = local_parameters(shape, local_layer(shape, split));
    held = std::min(held, parameters.dense + parameters.expert);
  }
  const int each = std::min(copies, std::max(1, nodes.gpus_per_node / ways.tensor));  // copies in a node
  const int used_nodes = (copies + each - 1) / each;
  // In another rank order fewer copies are in a node: across nodes that takes longer, but longer than inside
  // one only where NICs are slower than the links there.
  if (used_nodes == 1 && setting.order != RankOrder::cp_dp_pp) return {};
  const auto seconds = [&](double bytes) {
    if (used_nodes == 1) return bytes * (copies - 1) / copies / nodes.gpu_link.bandwidth.value();
    const double out = bytes * (used_nodes - 1) / used_nodes;
    // Each copy sends by a NIC, at the best alone; with contention, all that a node sends shares its NICs.
    const double alone = out / (each * nodes.nic.bandwidth.value());
    if (book.cluster().contention == Contention::ideal) return alone;
    return std::max(alone, ways.tensor * out / (nodes.nics_per_node * nodes.nic.bandwidth.value()));
  };
  if (setting.distributed_optimizer)
    return {seconds(held * gradient), seconds(held * stored_bytes(precision.type))};
  return {seconds(held * 2 * gradient), 0};
}

TimeBound::TimeBound(const WorkRates& rates, const std::vector<LayerTraffic>& traffic,
                     const Pipeline& pipeline)
    : pipeline_(pipeline) {
  std::vector<double> gathered, both;
  double gathered_share = kNever;  // of the work of the model
  const auto layers = static_cast<double>(rates.blocks.front().size());
  for (std::size_t g = 0; g < rates.blocks.size(); ++g) {
    gathered.push_back(traffic[g].gathered);
    both.push_back(traffic[g].gathered + traffic[g].reduced);
    work_.push_back(std::accumulate(rates.blocks[g].begin(), rates.blocks[g].end(), 0.0));
    work_of_layer_.push_back(rates.layer.empty() ? kNever : rates.layer[g]);
    layer_.push_back(work_of_layer_.back() + both.back() / pipeline.microbatches);
    if (work_[g] == kNever) continue;
    fastest_first_.push_back(static_cast<int>(g));
    gathered_share = std::min(gathered_share, gathered[g] * layers / work_[g]);
  }
  std::stable_sort(fastest_first_.begin(), fastest_first_.end(), [&](int a, int b) {
    return work_[static_cast<std::size_t>(a)] < work_[static_cast<std::size_t>(b)];
  });
  reduced_ = falling(rates, both, pipeline.fill * rates.forward_least);
  const bool gpipe = pipeline.schedule == ScheduleKind::gpipe;
  closed_ = pipeline.chunks == 1 && (gpipe || pipeline.schedule == ScheduleKind::one_f_one_b);
  if (!closed_) {
    gathered_ = falling(rates, gathered, pipeline.fill);
    return;
  }
  share_ = falling(rates, std::vector<double>(work_.size(), 0.0), 0).share;
  for (int behind = 0; behind < pipeline.most_stages; ++behind) {
    const double trips = gpipe ? 0 : std::min<double>(behind, pipeline.microbatches - 1) * rates.lesser_most;
    weight_.push_back(std::max(pipeline.microbatches - 1 - trips + gathered_share, 1e-9));
    behind_.push_back(behind_.back() + 1 / weight_.back());
  }
}

TimeBound::Falling TimeBound::falling(const WorkRates& rates, const std::vector<double>& once,
                                      double fill) const {
  const std::size_t layers = rates.blocks.front().size();
  Falling result;
  std::vector<double> least_share(layers, kNever), least(layers, kNever);
  double work_share = 1;  // the least that work is of all a stage must do
  for (std::size_t g = 0; g < rates.blocks.size(); ++g) {
    const double more = once[g] / pipeline_.microbatches;
    result.whole.push_back(work_[g] + more * static_cast<double>(layers));
    if (work_[g] == kNever) continue;
    for (std::size_t i = 0; i < layers; ++i) {
      const double block = rates.blocks[g][i];
      least[i] = std::min(least[i], block + more);
      least_share[i] = std::min(least_share[i], (block + more) / result.whole[g]);
      work_share = std::min(work_share, block / (block + more));
    }
  }
  result.share = std::accumulate(least_share.begin(), least_share.end(), 0.0);
  result.largest = *std::max_element(least.begin(), least.end());
  const double ratio = 1 - fill * work_share / pipeline_.microbatches;
  double load = 1;
  for (int stage = 0; stage < pipeline_.most_stages; ++stage) {
    result.loads.push_back(result.loads.back() + load);
    load *= ratio;
  }
  return result;
}

double TimeBound::time(const Falling& falling, const StageCounts& stages) const {
  double held = 0;  // of the model, at a second of time
  std::size_t position = 0;
  for (const int group : fastest_first_) {
    const auto g = static_cast<std::size_t>(group);
    const auto end = position + static_cast<std::size_t>(stages[g]);
    held += (falling.loads[end] - falling.loads[position]) / falling.whole[g];
    position = end;
  }
  return kRounding * pipeline_.microbatches * std::max(falling.share / held, falling.largest);
}

double TimeBound::spread(const StageCounts& stages) const {
  const double reduced = time(reduced_, stages);
  return std::max(reduced, closed_ ? kRounding * least_excess(stages).time : time(gathered_, stages));
}

// Stages that are at work all the time hold no less than ones that wait; so do more of them.
double TimeBound::spread_within(const StageCounts& most) const {
  double held = 0;
  for (const int group : fastest_first_) {
    const auto g = static_cast<std::size_t>(group);
    held += most[g] / reduced_.whole[g];
  }
  return kRounding * pipeline_.microbatches * std::max(reduced_.share / held, reduced_.largest);
}

// Stages that are at work all the time take M x share / (sum of stages / work), at the sum of their rates: a
// ratio of sums, which is least with as much as possible on the groups that are cheapest for their work.
double TimeBound::least_money(const StageCounts& least, const StageCounts& most,
                              const std::vector<double>& dollars_per_second) const {
  double rate = 0, held = 0;
  std::vector<std::pair<double, std::size_t>> cheapest_first;
  for (const int group : fastest_first_) {
    const auto g = static_cast<std::size_t>(group);
    rate += least[g] * dollars_per_second[g];
    held += least[g] / reduced_.whole[g];
    cheapest_first.emplace_back(dollars_per_second[g] * reduced_.whole[g], g);
  }
  std::sort(cheapest_first.begin(), cheapest_first.end());
  double ratio = held > 0 ? rate / held : kNever;
  for (const auto& [price, g] : cheapest_first) {
    if (most[g] == least[g]) continue;
    rate += (most[g] - least[g]) * dollars_per_second[g];
    held += (most[g] - least[g]) / reduced_.whole[g];
    ratio = std::min(ratio, rate / held);
  }
  return kRounding * pipeline_.microbatches * reduced_.share * ratio;
}

// An excess holds excess / (weight x work) of the model on a stage. Of the first groups that could hold all
// of it, each group more takes from the work of all or adds to it.
TimeBound::Excess TimeBound::least_excess(const StageCounts& stages) const {
  Excess best{kNever, kNever};
  double held = 0, inverse = 0;  // at a second of excess
  auto position = static_cast<std::size_t>(std::accumulate(stages.begin(), stages.end(), 0));
  for (const int group : fastest_first_) {
    const auto g = static_cast<std::size_t>(group);
    if (stages[g] == 0) continue;
    const auto end = position - static_cast<std::size_t>(stages[g]);
    held += (behind_[position] - behind_[end]) / work_[g];
    inverse += behind_[position] - behind_[end];
    position = end;
    const double excess = share_ / held, time = excess * (1 + inverse);
    if (time < best.time) best = {excess, time};
  }
  return best;
}

// The least time with such an excess: the fastest GPUs hold as much as they can.
double TimeBound::time_with(double excess, const StageCounts& stages) const {
  double left = share_, time = excess;
  auto position = static_cast<std::size_t>(std::accumulate(stages.begin(), stages.end(), 0));
  for (const int group : fastest_first_) {
    const auto g = static_cast<std::size_t>(group);
    const auto end = position - static_cast<std::size_t>(stages[g]);
    const double held = std::min(left, excess * (behind_[position] - behind_[end]) / work_[g]);
    time += held * work_[g];
    left -= held;
    position = end;
  }
  return time;
}

// Raises an excess, layer by layer, until all layers are held. Which group is where is not known: each may
// have the places of the most layers.
double TimeBound::whole_layer_excess(double excess, const StageCounts& stages) const {
  const int all = std::accumulate(stages.begin(), stages.end(), 0);
  while (true) {
    std::int64_t held = 0;
    double next = kNever;
    for (std::size_t g = 0; g < stages.size(); ++g) {
      for (int stage = 0; stage < stages[g]; ++stage) {
        const double layer = weight_[static_cast<std::size_t>(all - stage - 1)] * work_of_layer_[g];
        const auto here = static_cast<std::int64_t>(excess / layer * (1 + 1e-12));
        held += here;
        next = std::min(next, static_cast<double>(here + 1) * layer);
      }
    }
    if (held >= pipeline_.layers) return excess;
    excess = next;
  }
}

double TimeBound::whole_layers(const StageCounts& stages) const {
  if (pipeline_.layers == 0) return 0;
  const double slowest = slowest_of_whole_layers(stages);
  if (!closed_) return slowest;
  // Below the best excess less work does not make up for more of it, above it the other way round.
  const double excess = whole_layer_excess(least_excess(stages).excess, stages);
  return std::max(slowest, kRounding * time_with(excess, stages));
}

// The least slowest stage: raises the limit from the perfect spread, layer by layer, until all are held.
double TimeBound::slowest_of_whole_layers(const StageCounts& stages) const {
  const int layers = pipeline_.layers;
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

const BlockTimes& TimeBounds::blocks(const ShardKey& shard, const Ways& of_group, Recompute recompute) {
  // How many layers `block` repeats depends on how many there are in a part.
  if (recompute.method == RecomputeMethod::block) recompute = {};
  const BlockKey key{shard, recompute.of_layer()};
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
                                                                       : setting.recompute.of_layer()};
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
  std::vector<LayerTraffic> traffic(group_fits.size());
  for (std::size_t g = 0; layers_alike_ && g < traffic.size(); ++g) {
    if (group_fits[g] == 0) continue;
    traffic[g] = {kNever, kNever};
    for (const Setting& setting : settings) {
      const int group = static_cast<int>(g);
      const LayerTraffic least = least_traffic(book_, group, ways.of_group(group), setting);
      traffic[g].reduced = std::min(traffic[g].reduced, least.reduced);
      traffic[g].gathered = std::min(traffic[g].gathered, least.gathered);
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
