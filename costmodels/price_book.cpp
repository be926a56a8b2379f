#include "costmodels/price_book.hpp"

#include <algorithm>
#include <cmath>

#include "costmodels/layer_pricing.hpp"
#include "costmodels/local_layer.hpp"
#include "costmodels/memory.hpp"
#include "costmodels/stack_effects.hpp"
#include "costmodels/sustained_power.hpp"
#include "platforms/errors.hpp"
#include "strategies/placement.hpp"

namespace orrery {
namespace {

// Launching the kernels of an optimizer step and reading the gradient norm back (FIDELITY A.3: 3 ms on A100
// hosts).
constexpr Seconds kOptimizerHost = milliseconds(3);

// Compute beside a collective, measured on A100 (Galvatron, arXiv 2211.13878, its overlap coefficient).
constexpr double kOverlapSlowdown = 1.1256;

}  // namespace

// Operators of a block, and their times once predicted.
struct PriceBook::AskedBlock {
  BlockOperators operators;
  Sharding sharding;
  WeightTraffic weights;
  PassTimes forward = {}, backward = {}, attention_core = {};
  Seconds gather = {}, reduce = {};

  // Backward gathers the weights again.
  [[nodiscard]] BlockCost cost() const {
    BlockCost cost{cost_under(operators.forward, forward, sharding),
                   cost_under(operators.backward, backward, sharding), weight_gradient(),
                   selective_repeats(operators, forward, attention_core, sharding)};
    cost.forward.weights = gather;
    cost.backward.weights = gather + reduce;
    return cost;
  }

  [[nodiscard]] PassCost weight_gradient() const {
    PassCost cost;
    for (const std::size_t index : operators.weight_gradient) {
      cost.compute += backward.compute[index];
      cost.flops += flops_of(operators.backward.compute[index]);
    }
    return cost;
  }
};

// Of one shard: of every layer shape, then of embedding and head.
struct PriceBook::AskedShard {
  std::vector<AskedBlock> shapes;
  AskedBlock embedding, head;
};

// Collects the operators of all tables, asks once, and hands every answer to whoever asked.
class PriceBook::Batch {
 public:
  // Adds the time of an operator on a group's GPU to `*seconds` once predicted.
  void add(int group, const Operator& op, Seconds* seconds, bool* extrapolated = nullptr,
           double factor = 1.0) {
    queries_.push_back({group, op});
    sinks_.push_back({seconds, extrapolated, factor});
  }

  void add_pass(int group, const PassOperators& operators, PassTimes* times, bool* extrapolated,
                const KernelFactors& factors) {
    const auto ask = [&](const std::vector<Operator>& asked, std::vector<Seconds>* seconds) {
      seconds->resize(asked.size());
      for (std::size_t i = 0; i < asked.size(); ++i)
        add(group, asked[i], &(*seconds)[i], extrapolated, factors.of(asked[i]));
    };
    ask(operators.compute, &times->compute);
    ask(operators.communication, &times->communication);
  }

  void add_block(int group, AskedBlock* block, bool* extrapolated) {
    const SoftwareStack& stack = block->sharding.stack;
    const KernelFactors forward{1.0, stack.attention_time, stack.elementwise_time, stack.compute_time,
                                stack.network};
    add_pass(group, block->operators.forward, &block->forward, extrapolated, forward);
    add_pass(group, block->operators.backward, &block->backward, extrapolated,
             {stack.backward_gemm, stack.attention_time, stack.elementwise_time, stack.compute_time,
              stack.network});
    add_pass(group, {block->operators.attention_core, {}, {}}, &block->attention_core, extrapolated, forward);
    for (const Operator& op : block->weights.gather)
      add(group, op, &block->gather, extrapolated, forward.of(op));
    for (const Operator& op : block->weights.reduce)
      add(group, op, &block->reduce, extrapolated, forward.of(op));
  }

  std::size_t predict(const CostModels& models, const ClusterSpec& cluster) {
    std::vector<GpuSpec> gpus;
    for (const NodeGroup& group : cluster.groups) gpus.push_back(group.gpu);
    const std::vector<Prediction> answers = models.predict(gpus, queries_);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const Sink& sink = sinks_[i];
      const OperatorQuery& query = queries_[i];
      const GpuSpec& gpu = gpus[static_cast<std::size_t>(query.gpu)];
      *sink.seconds += under_power(query.op, gpu, answers[i].time) * sink.factor;
      if (sink.extrapolated != nullptr) *sink.extrapolated |= answers[i].extrapolated;
    }
    return queries_.size();
  }

 private:
  struct Sink {
    Seconds* seconds;
    bool* extrapolated;
    double factor;
  };
  std::vector<OperatorQuery> queries_;
  std::vector<Sink> sinks_;
};

// Times of one kind of operation over sizes, turned into efficiencies once they are predicted.
struct PriceBook::SizeSeries {
  std::vector<Seconds> times;
  std::vector<double> ideal;     // s at full bandwidth
  std::vector<double> overhead;  // s of latency, which the flows pay on their own

  void add(Seconds ideal_time, Seconds latency) {
    ideal.push_back(ideal_time.value());
    overhead.push_back(latency.value());
  }

  [[nodiscard]] SizeTable efficiencies() const {
    std::vector<double> values;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const double moving = times[i].value() - overhead[i];
      // A measured time below the bound means the catalog's link is slower than the measured one: play the
      // link.
      values.push_back(moving > ideal[i] ? ideal[i] / moving : 1.0);
    }
    return SizeTable(kFirstExponent, std::move(values));
  }
};

namespace {

// A link gives no more than its bandwidth, whatever a stack was calibrated to.
TransferEfficiency under_network(const TransferEfficiency& efficiency, const NetworkShare& network) {
  return {std::min(1.0, efficiency.inside * network.inside),
          std::min(1.0, efficiency.between * network.between)};
}

std::vector<double> grid() {
  std::vector<double> sizes;
  for (int exponent = kFirstExponent; exponent <= kLastExponent; exponent += kStride) {
    sizes.push_back(std::exp2(exponent));
  }
  return sizes;
}

// What one GPU gets of the NICs of its node.
LinkSpec nic_share(const NodeGroup& group) {
  const double share = static_cast<double>(group.nics_per_node) / group.gpus_per_node;
  return {group.nic.bandwidth * std::min(1.0, share), group.nic.latency};
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
  ring.gpu_link = group.gpu_link;
  ring.network = nic_share(group);
  return ring;
}

// Seconds at full bandwidth, and of latency, of the ring that collective_flows plays when the rest of the
// node is as busy: with its share of the NICs, since the flows that share them are played.
std::pair<double, double> ring_bound(const NodeGroup& group, const Collective& ring) {
  const double rounds = ring.kind == CollectiveKind::all_reduce ? 2.0 : 1.0;
  const double members = ring.ranks;
  const double hop = rounds * (members - 1) / members * ring.bytes.value();
  const bool closed = ring.ranks <= ring.ranks_per_node;
  const double inside = hop / group.gpu_link.bandwidth.value();
  const double steps = rounds * (members - 1);
  if (closed) return {inside, steps * 2 * group.gpu_link.latency.value()};
  const double between = hop / ring.ranks_per_node / ring.network.bandwidth.value();
  const double latency = 2 * std::max(group.nic.latency.value(), group.gpu_link.latency.value());
  return {ring.ranks_per_node > 1 ? std::max(inside, between) : between, steps * latency};
}

}  // namespace

PriceBook::PriceBook(const ModelSpec& model, const ClusterSpec& cluster, const JobPrecision& precision)
    : model_(model), cluster_(cluster), precision_(precision) {}

void PriceBook::need(const ShardKey& key) {
  shards_.try_emplace(key);
}

void PriceBook::need_rings(int group, int lanes, int data) {
  if (data < 2) return;
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather}) {
    rings_.try_emplace({group, lanes, data, kind});
  }
}

void PriceBook::need(const ParallelStrategy& strategy) {
  for (int kind = 1; kind < strategy.kinds(); ++kind) need(strategy.of_kind(kind));
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    need(shard_key(strategy, stage));
    need_rings(strategy.stages[static_cast<std::size_t>(stage)].group, strategy.tensor(stage),
               strategy.data * strategy.context);
  }
}

Sharding PriceBook::sharding(const ShardKey& key) const {
  const NodeGroup& group = cluster_.groups[static_cast<std::size_t>(key.group)];
  Sharding sharding;
  sharding.tensor = key.tensor;
  sharding.context = key.context;
  sharding.expert = key.expert;
  sharding.micro_batch = key.micro_batch;
  sharding.sequence = precision_.sequence;
  sharding.sequence_parallel = key.sequence_parallel;
  sharding.attention = precision_.flash_attention ? precision_.stack.attention : AttentionKernel::unfused;
  sharding.stack = precision_.stack;
  sharding.sharded = key.sharded;
  sharding.type = precision_.type;
  sharding.gpus_per_node = group.gpus_per_node;
  sharding.gpu_link = group.gpu_link;
  sharding.network = nic_share(group);
  return sharding;
}

std::vector<PriceBook::AskedShard> PriceBook::ask_layers(Batch& batch) {
  std::vector<AskedShard> asked;
  asked.reserve(shards_.size());  // the batch points into it
  for (auto& [key, cost] : shards_) {
    const Sharding split = sharding(key);
    const double table =
        static_cast<double>(padded_vocabulary(model_.vocabulary, key.tensor) / key.tensor * model_.hidden);
    asked.push_back({{},
                     {embedding_operators(model_, split), split, weight_traffic(split, table)},
                     {head_operators(model_, split), split, weight_traffic(split, table)}});
    for (const LayerShape& shape : model_.shapes) {
      const LocalParameters parameters = local_parameters(shape, local_layer(shape, split_of(split)));
      asked.back().shapes.push_back({layer_operators(shape, model_.causal, split), split,
                                     weight_traffic(split, parameters.dense + parameters.expert)});
    }
    for (AskedBlock& block : asked.back().shapes) batch.add_block(key.group, &block, &cost.extrapolated);
    batch.add_block(key.group, &asked.back().embedding, &cost.extrapolated);
    batch.add_block(key.group, &asked.back().head, &cost.extrapolated);
  }
  return asked;
}

std::map<PriceBook::RingKey, PriceBook::SizeSeries> PriceBook::ask_rings(Batch& batch) const {
  const std::vector<double> sizes = grid();
  std::map<RingKey, SizeSeries> all;
  for (const auto& [key, table] : rings_) {
    const NodeGroup& group = cluster_.groups[static_cast<std::size_t>(key.group)];
    SizeSeries& series = all[key];
    series.times.resize(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Collective ring = ring_collective(group, key.lanes, key.data, key.kind, sizes[i]);
      const auto [ideal, overhead] = ring_bound(group, ring);
      series.add(Seconds(ideal), Seconds(overhead));
      batch.add(key.group, ring, &series.times[i]);
    }
  }
  return all;
}

LinkSpec PriceBook::path_of(const PathKey& key) const {
  const NodeGroup& from = cluster_.groups[static_cast<std::size_t>(key.from)];
  const NodeGroup& to = cluster_.groups[static_cast<std::size_t>(key.to)];
  if (key.inside) return {from.gpu_link.bandwidth, from.gpu_link.latency * 2};
  return {std::min(from.nic.bandwidth, to.nic.bandwidth), from.nic.latency + to.nic.latency};
}

std::map<PriceBook::PathKey, PriceBook::SizeSeries> PriceBook::ask_paths(Batch& batch) const {
  const std::vector<double> sizes = grid();
  std::map<PathKey, SizeSeries> all;
  const auto ask = [&](const PathKey& key) {
    const LinkSpec path = path_of(key);
    SizeSeries& series = all[key];
    series.times.resize(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      series.add(Bytes(sizes[i]) / path.bandwidth, path.latency);
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

std::vector<std::vector<Seconds>> PriceBook::ask_optimizers(Batch& batch) const {
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

void PriceBook::sum_layers(const std::vector<AskedShard>& asked) {
  auto next = asked.begin();
  for (auto& [key, cost] : shards_) {
    const AskedShard& shard = *next++;
    const std::optional<LayerTable> measured = measured_table(key);
    std::vector<BlockCost> shapes;
    for (const AskedBlock& block : shard.shapes) shapes.push_back(block.cost());
    cost.embedding = shard.embedding.cost();
    cost.head = shard.head.cost();
    cost.before.assign(1, BlockCost{});
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      const BlockCost& layer = shapes[static_cast<std::size_t>(model_.layers[i])];
      BlockCost sum = cost.before.back();
      sum += measured ? as_measured(layer, measured->layers[i]) : layer;
      cost.before.push_back(sum);
    }
    if (!measured) continue;
    cost.embedding = as_measured(cost.embedding, measured->embedding);
    cost.head = as_measured(cost.head, measured->head);
    cost.extrapolated = false;
    cost.measured = true;
  }
}

void PriceBook::use_layers(int group, LayerProfile profile) {
  measured_.insert_or_assign(group, std::move(profile));
}

std::optional<LayerTable> PriceBook::measured_table(const ShardKey& key) const {
  const auto profile = measured_.find(key.group);
  if (profile == measured_.end()) return std::nullopt;
  return measured_layers(profile->second, model_, cluster_.groups[static_cast<std::size_t>(key.group)], key);
}

std::size_t PriceBook::predict(const CostModels& models) {
  ORRERY_ENSURE(optimizers_.empty());  // once
  Batch batch;
  auto layers = ask_layers(batch);  // the answers arrive in these
  auto rings = ask_rings(batch);
  auto paths = ask_paths(batch);
  auto optimizers = ask_optimizers(batch);
  const std::size_t count = batch.predict(models, cluster_);
  for (const NodeGroup& group : cluster_.groups) measured_gpus_.push_back(models.measured(group.gpu));
  sum_layers(layers);
  for (const auto& [key, series] : rings) rings_[key] = series.efficiencies();
  for (const auto& [key, series] : paths) paths_[key] = series.efficiencies();
  for (const auto& times : optimizers) {
    std::vector<double> seconds;
    for (const Seconds time : times) seconds.push_back(time.value());
    optimizers_.emplace_back(kFirstExponent, std::move(seconds));
  }
  return count;
}

const ShardCost& PriceBook::shard(const ShardKey& key) const {
  const auto found = shards_.find(key);
  ORRERY_ENSURE(found != shards_.end());
  return found->second;
}

PartTimes PriceBook::part_times(const ShardCost& cost, const LayerRange& range, const Recompute& recompute,
                                Backward pass) const {
  const auto first = static_cast<std::size_t>(range.first);
  const auto end = static_cast<std::size_t>(range.first + range.count);
  PassCost forward = cost.before[end].forward - cost.before[first].forward;
  PassCost backward = cost.before[end].backward - cost.before[first].backward;
  const HostCost host = cost.measured ? HostCost{} : precision_.stack.host;
  const Seconds forward_host = host.forward * range.count + host.collective * forward.calls;
  Seconds backward_host = host.backward * range.count;
  PassCost weights = cost.before[end].weight_gradient - cost.before[first].weight_gradient;
  switch (recompute.granularity) {
    case RecomputeGranularity::none:
      break;
    case RecomputeGranularity::selective:
      backward += cost.before[end].attention_core - cost.before[first].attention_core;
      break;
    case RecomputeGranularity::full: {
      backward_host += host.forward * range.count;
      const int repeated =
          recompute.method == RecomputeMethod::block ? std::min(recompute.layers, range.count) : range.count;
      backward +=
          cost.before[first + static_cast<std::size_t>(repeated)].forward - cost.before[first].forward;
      break;
    }
  }
  if (range.first == 0) {
    forward += cost.embedding.forward;
    backward += cost.embedding.backward;
    weights += cost.embedding.weight_gradient;
  }
  if (end == model_.layers.size()) {
    forward += cost.head.forward;
    backward += cost.head.backward;
    weights += cost.head.weight_gradient;
  }
  backward_host += host.collective * backward.calls;
  const PassTime forward_time = time_under(forward, forward_host, range.count, precision_.stack);
  const PassTime backward_time = time_under(backward, backward_host, range.count, precision_.stack);
  PartTimes times;
  times.forward = forward_time.time;
  times.backward = backward_time.time;
  times.host_bound = forward_time.host_bound || backward_time.host_bound;
  times.forward_tensor = forward.communication;
  times.backward_tensor = backward.communication;
  times.forward_flops = forward.flops;
  times.backward_flops = backward.flops;
  if (pass == Backward::split) {
    times.backward -= weights.compute;
    times.backward_flops -= weights.flops;
    times.weight_gradient = weights.compute;
    times.weight_gradient_flops = weights.flops;
  }
  return times;
}

Seconds PriceBook::optimizer(int group, double parameters) const {
  if (const auto& own = precision_.stack.optimizer) {
    const GpuSpec& gpu = cluster_.groups[static_cast<std::size_t>(group)].gpu;
    return own->fixed +
           Bytes(parameters * own->bytes_per_parameter) / (gpu.memory_bandwidth * own->bandwidth_share);
  }
  return kOptimizerHost + Seconds(optimizers_[static_cast<std::size_t>(group)].at(parameters));
}

TransferEfficiency PriceBook::ring_efficiency(int group, int lanes, int data, CollectiveKind kind,
                                              Bytes bytes) const {
  if (data < 2) return {};
  const auto found = rings_.find({group, lanes, data, kind});
  ORRERY_ENSURE(found != rings_.end());
  const double efficiency = found->second.at(bytes.value());
  return under_network({efficiency, efficiency}, precision_.stack.network);
}

bool PriceBook::measured_gpu(int group) const {
  return measured_gpus_.at(static_cast<std::size_t>(group));
}

double PriceBook::path_efficiency(const PathKey& key, Bytes bytes) const {
  const auto found = paths_.find(key);
  return found == paths_.end() ? 1.0 : found->second.at(bytes.value());
}

BoundaryMessage PriceBook::boundary(const ParallelStrategy& strategy, int boundary) const {
  const LayerRange& before = strategy.parts[static_cast<std::size_t>(boundary)];
  const int from = strategy.stages[static_cast<std::size_t>(strategy.rank_of_part(boundary))].group;
  const int to = strategy.stages[static_cast<std::size_t>(strategy.rank_of_part(boundary + 1))].group;
  BoundaryMessage message;
  message.bytes = boundary_message(model_, strategy, before.first + before.count - 1);
  if (precision_.stack.scatter_gather && !strategy.sequence_parallel) {
    message.bytes = message.bytes / strategy.tensor(strategy.rank_of_part(boundary));
  }
  message.efficiency = under_network(
      {path_efficiency({from, to, true}, message.bytes), path_efficiency({from, to, false}, message.bytes)},
      precision_.stack.network);
  return message;
}

PartReduction PriceBook::part_reduction(const ParallelStrategy& strategy, int part) const {
  const int stage = strategy.rank_of_part(part);
  const StageDevices& devices = strategy.stages[static_cast<std::size_t>(stage)];
  const double parameters = part_parameters(model_, strategy, stage, part / strategy.pipeline);
  PartReduction reduction;
  reduction.gradients =
      Bytes(parameters * precision_.stack.reduced_gradient.value_or(gradient_bytes(strategy.type)));
  const auto efficiency = [&](CollectiveKind kind, Bytes bytes) {
    return ring_efficiency(devices.group, strategy.tensor(stage), strategy.data * strategy.context, kind,
                           bytes);
  };
  reduction.efficiency =
      efficiency(strategy.distributed_optimizer ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
                 reduction.gradients);
  if (strategy.distributed_optimizer) {
    reduction.gathered = Bytes(parameters * stored_bytes(strategy.type));
    reduction.gather_efficiency = efficiency(CollectiveKind::all_gather, reduction.gathered);
  }
  return reduction;
}

PricedPlan PriceBook::price(const ParallelStrategy& strategy, const Topology& topology) const {
  PricedPlan plan;
  plan.schedule = {strategy.schedule, strategy.transfers, strategy.pipeline, strategy.chunks,
                   static_cast<int>(strategy.microbatches())};
  plan.replicas = strategy.data;
  plan.context = strategy.context;
  for (int part = 0; part < strategy.part_count(); ++part) {
    if (!gathered_in_passes(strategy)) plan.reductions.push_back(slowest_reduction(strategy, part));
  }
  price_kinds(strategy, plan);
  plan.gpus = place(strategy, topology);
  plan.distributed_optimizer = strategy.distributed_optimizer;
  if (model_.tied_embeddings && model_.vocabulary > 0) {
    const int tensor = strategy.tensor(0);
    const auto rows = static_cast<double>(padded_vocabulary(model_.vocabulary, tensor) / tensor);
    plan.embedding_gradient =
        Bytes(rows * static_cast<double>(model_.hidden) * gradient_bytes(strategy.type));
  }
  plan.gradient_norm = !validates_later(strategy.schedule);
  plan.overlap_grad_reduce = strategy.overlap_grad_reduce;
  plan.overlap_param_gather = strategy.overlap_param_gather;
  if (strategy.overlap_grad_reduce || strategy.overlap_param_gather) {
    // Megatron-LM core/distributed/distributed_data_parallel.py: max(40 M, 1 M x data-parallel ways)
    // elements.
    plan.bucket =
        Bytes(std::max(40e6, 1e6 * strategy.data * strategy.context) * gradient_bytes(strategy.type));
    plan.overlap_slowdown = kOverlapSlowdown;
  }
  // Parameters gathered under the next forwards, and ranks that step on by themselves, show in the second
  // iteration.
  if (strategy.overlap_param_gather || !plan.gradient_norm) plan.iterations = 2;
  plan.transfers = transfer_times(plan, topology);
  return plan;
}

bool gathered_in_passes(const ParallelStrategy& strategy) {
  return strategy.fully_sharded && strategy.pipeline == 1;
}

Backward backward_of(ScheduleKind kind) {
  return splits_backward(kind) ? Backward::split : Backward::whole;
}

ShardKey shard_key(const ParallelStrategy& strategy, int stage) {
  const StageDevices& devices = strategy.stages[static_cast<std::size_t>(stage)];
  return {devices.group,
          devices.tensor,
          strategy.context,
          strategy.expert,
          strategy.micro_batch,
          strategy.sequence_parallel,
          gathered_in_passes(strategy) ? strategy.data * strategy.context : 1};
}

std::vector<std::string> PriceBook::extrapolations(const ParallelStrategy& strategy) const {
  std::vector<std::string> reasons;
  for (int at = 0; at < strategy.kinds() * strategy.pipeline; ++at) {
    const ShardKey key = shard_key(strategy.of_kind(at / strategy.pipeline), at % strategy.pipeline);
    if (!shard(key).extrapolated) continue;
    std::string reason = cluster_.groups[static_cast<std::size_t>(key.group)].gpu.name +
                         ": some operators lie outside what was measured";
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end())
      reasons.push_back(std::move(reason));
  }
  return reasons;
}

}  // namespace orrery
