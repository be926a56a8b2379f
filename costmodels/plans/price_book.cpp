#include "costmodels/plans/price_book.hpp"

#include <algorithm>
#include <cstdio>

#include "costmodels/layers/stage_parts.hpp"
#include "costmodels/memory/memory.hpp"
#include "costmodels/operators/local_layer.hpp"
#include "costmodels/operators/node_links.hpp"
#include "costmodels/plans/layer_pricing.hpp"
#include "costmodels/plans/price_batch.hpp"
#include "costmodels/stacks/sustained_power.hpp"
#include "platforms/errors.hpp"
#include "strategies/placement.hpp"

namespace orrery {
namespace {

// A plan's switch turns on what the stack has, or, of a stack that leaves it off, all four collectives of a
// layer, as Megatron-LM's --tp-comm-overlap does (NVIDIA's recipes, stacks.yaml: nemo-24.12).
double switched_overlap(bool on, const SoftwareStack& stack) {
  if (!on) return 0.0;
  return stack.tensor_overlap > 0 ? stack.tensor_overlap : 1.0;
}

// Of experts that are spread over ranks PyTorch's programs ask for the next layer's ahead.
bool gathers_experts_alone(const SoftwareStack& stack, const GpuSpec& gpu, const ShardKey& key) {
  if (stack.whole_weights) return false;  // no pass gathers any
  switch (stack.experts.gathers_alone) {
    case LoneGathers::never:
      return false;
    case LoneGathers::on_blackwell:
      return key.expert == 1 && (gpu.architecture == "Blackwell" || gpu.architecture == "Blackwell Ultra");
    case LoneGathers::always:
      return true;
  }
  ORRERY_ENSURE(false);
}

// As a program does whose replicas have all weights and sum the gradients of every backward
// (DistributedDataParallel): nothing is gathered, nor copied for it.
void reduce_whole(SoftwareStack& stack) {
  stack.whole_weights = stack.all_reduces_gradients = true;
  stack.gathers_in_forward = stack.adds_up_whole = false;
  stack.shard_copies = {};
  stack.host.gather_forward = stack.host.gather_backward = {};
}

// The shard whose times a table has: another microbatch, maybe.
ShardKey as_timed(ShardKey key, const LayerTable& table) {
  key.micro_batch = table.micro_batch;
  return key;
}

ShardKey without_tensor_ways(ShardKey key) {
  key.tensor = 1;
  key.sequence_parallel = false;
  return key;
}

}  // namespace

PriceBook::PriceBook(const ModelSpec& model, const ClusterSpec& cluster, const JobPrecision& precision)
    : model_(model), cluster_(cluster), precision_(precision) {
  precision_.stack = stack_for(model, std::move(precision_.stack));
}

void PriceBook::need(const ShardKey& key) {
  shards_.try_emplace(key);
}

void PriceBook::need_rings(int group, int lanes, int data, int expert, int instances) {
  if (data % instances != 0) return;
  const int of_set = data / instances;
  if (expert > 1) need_rings(group, lanes * expert, of_set / expert);
  if (instances > 1) need_rings(group, lanes * of_set, instances);
  if (of_set < 2) return;
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather}) {
    rings_.try_emplace({group, lanes, of_set, kind});
  }
}

void PriceBook::need_spread_rings(int group, int lanes, int data, int expert, int instances) {
  if (data % instances != 0) return;
  const int gpus = cluster_.groups[static_cast<std::size_t>(group)].gpus_per_node, of_set = data / instances;
  for (int members = 1; members <= gpus / lanes; ++members) {
    need_rings(group, gpus / members, of_set);
    need_rings(group, gpus / members, instances);
    if (expert > 1) need_rings(group, gpus / members, of_set / expert);
  }
}

void PriceBook::need(const ParallelStrategy& strategy) {
  for (int kind = 1; kind < strategy.kinds(); ++kind) need(strategy.of_kind(kind));
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    const int group = strategy.stages[static_cast<std::size_t>(stage)].group;
    need(shard_key(strategy, stage));
    const int gpus = cluster_.groups[static_cast<std::size_t>(group)].gpus_per_node;
    const auto need_reduction = [&](int apart) {
      const int members = strategy.copies_of_instance() / apart;
      for (const int ring : {members, members * strategy.optimizer_instances})
        need_rings(group, ring_lanes(strategy, stage, apart, gpus), ring);
      need_rings(group, ring_lanes(strategy, stage, apart * members, gpus), strategy.optimizer_instances);
    };
    need_reduction(1);
    if (strategy.copies_sharing_experts() > 1) need_reduction(strategy.copies_sharing_experts());
  }
}

Sharding PriceBook::sharding(const ShardKey& key) const {
  const NodeGroup& group = cluster_.groups[static_cast<std::size_t>(key.group)];
  Sharding sharding;
  sharding.tensor = key.tensor;
  sharding.context = key.context;
  sharding.expert = key.expert;
  sharding.expert_tensor = key.expert_tensor;
  sharding.micro_batch = key.micro_batch;
  sharding.sequence = precision_.sequence;
  sharding.sequence_parallel = key.sequence_parallel;
  const bool flash = precision_.flash_attention && key.flash_attention;
  const AttentionKernel own = precision_.stack.attention;
  // A plan with flash attention has it whatever its program had.
  const AttentionKernel flashing = own == AttentionKernel::unfused ? AttentionKernel::flash2 : own;
  sharding.attention = flash ? flashing : AttentionKernel::unfused;
  sharding.stack = precision_.stack;
  const double pace = precision_.stack.host_in_python ? group.host.python_pace : group.host.pace;
  sharding.stack.host = at_pace(precision_.stack.host, pace);
  sharding.stack.experts = at_pace(precision_.stack.experts, pace);
  sharding.router = model_.router;
  sharding.scaled_rotation = scales_rotation(model_.rotary_positions);
  if (key.tensor_overlap)
    sharding.stack.tensor_overlap = switched_overlap(*key.tensor_overlap, precision_.stack);
  if (!user_buffers_take(precision_.type)) sharding.stack.tensor_overlap = 0;
  sharding.sharded = key.sharded;
  sharding.instances = key.instances;
  if (key.whole) reduce_whole(sharding.stack);
  sharding.type = precision_.type;
  sharding.power_limited = at_power_limit(group.gpu);
  sharding.lone_experts = gathers_experts_alone(precision_.stack, group.gpu, key);
  sharding.gpus_per_node = group.gpus_per_node;
  sharding.gpu_links = NodeLinks(group);
  sharding.network = nic_share(group);
  sharding.gpus_per_nic = std::max(1, group.gpus_per_node / group.nics_per_node);
  return sharding;
}

std::vector<AskedShard> PriceBook::ask_layers(PriceBatch& batch) {
  std::vector<AskedShard> asked;
  asked.reserve(shards_.size());  // the batch points into it
  for (auto& [key, cost] : shards_) {
    const Sharding split = sharding(key);
    const auto table = [&](std::int64_t words) {
      return LocalParameters{static_cast<double>(padded_rows(words, key.tensor) * model_.hidden)};
    };
    const auto block = [&](BlockOperators operators, const LocalParameters& parameters, bool in_root) {
      WeightTraffic weights = weight_traffic(split, parameters, operators.forward);
      return AskedBlock{std::move(operators), split, std::move(weights),
                        in_root || split.stack.whole_weights};
    };
    const RootUnit root = split.stack.root_unit;
    const bool one_unit = root == RootUnit::all;
    asked.push_back(
        {{},
         block(embedding_operators(model_, split), table(model_.vocabulary),
               one_unit || root == RootUnit::embedding_and_head),
         block(head_operators(model_, split), table(model_.head_width()), root != RootUnit::none)});
    for (const LayerShape& shape : model_.shapes) {
      asked.back().shapes.push_back(block(layer_operators(shape, model_.causal, split),
                                          local_parameters(shape, local_layer(shape, split_of(split))),
                                          one_unit));
      if (shape.sixteen_bit) asked.back().shapes.back().sharding.type = outside_fp8(split.type);
    }
    for (AskedBlock& shape : asked.back().shapes) batch.add_block(key.group, &shape, &cost.extrapolated);
    batch.add_block(key.group, &asked.back().embedding, &cost.extrapolated);
    batch.add_block(key.group, &asked.back().head, &cost.extrapolated);
  }
  return asked;
}

// Predicted, of one shard.
struct BlockSums {
  std::vector<BlockCost> shapes;
  BlockCost embedding, head;
};

void PriceBook::need_measured() {
  for (const auto& [key, cost] : shards_) {
    if (const auto table = measured_table(key)) measured_tables_.emplace(key, *table);
  }
  for (const auto& [key, table] : measured_tables_) {
    need(as_timed(key, table));
    need(without_tensor_ways(as_timed(key, table)));
  }
}

void PriceBook::sum_layers(const std::vector<AskedShard>& asked) {
  std::map<ShardKey, BlockSums> predicted;
  auto next = asked.begin();
  for (auto& [key, cost] : shards_) {
    const AskedShard& shard = *next++;
    BlockSums& sums = predicted[key];
    for (const AskedBlock& block : shard.shapes) {
      sums.shapes.push_back(block.cost());
      cost.shape_pieces.push_back(block.pieces());
    }
    sums.embedding = cost.embedding = shard.embedding.cost();
    cost.embedding_pieces = shard.embedding.pieces();
    sums.head = cost.head = shard.head.cost();
    cost.head_pieces = shard.head.pieces();
    cost.before.assign(1, BlockCost{});
    for (const int shape : model_.layers) {
      cost.before.push_back(cost.before.back());
      cost.before.back() += sums.shapes[static_cast<std::size_t>(shape)];
    }
  }
  for (const auto& [key, cost] : shards_) {
    if (const auto table = measured_tables_.find(key); table != measured_tables_.end())
      take_measured(key, table->second, predicted);
  }
}

void PriceBook::take_measured(const ShardKey& key, const LayerTable& table,
                              const std::map<ShardKey, BlockSums>& predicted) {
  const BlockSums& asked = predicted.at(key);
  const BlockSums& timed = predicted.at(as_timed(key, table));
  const BlockSums& whole = predicted.at(without_tensor_ways(as_timed(key, table)));
  const double sequences = static_cast<double>(key.micro_batch) / static_cast<double>(table.micro_batch);
  ShardCost& cost = shards_.at(key);
  for (std::size_t i = 0; i < model_.layers.size(); ++i) {
    const auto shape = static_cast<std::size_t>(model_.layers[i]);
    cost.before[i + 1] = cost.before[i];
    cost.before[i + 1] += as_measured(
        {asked.shapes[shape], timed.shapes[shape], whole.shapes[shape], sequences}, table.layers[i]);
  }
  cost.embedding =
      as_measured({asked.embedding, timed.embedding, whole.embedding, sequences}, table.embedding);
  cost.head = as_measured({asked.head, timed.head, whole.head, sequences}, table.head);
  cost.extrapolated = false;
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
  need_measured();
  PriceBatch batch;
  auto layers = ask_layers(batch);  // the answers arrive in these
  auto rings = ask_rings(batch);
  auto paths = ask_paths(batch);
  auto optimizers = ask_optimizers(batch);
  const std::size_t count = batch.predict(models, cluster_);
  own_answers_ = batch.own_answers();
  for (const NodeGroup& group : cluster_.groups) {
    measured_gpus_.push_back(models.measured(group.gpu));
    unseen_errors_.push_back(models.unseen_error(group.gpu, precision_.type));
  }
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

bool PriceBook::measured_gpu(int group) const {
  return measured_gpus_.at(static_cast<std::size_t>(group));
}

const ShardCost& PriceBook::shard(const ShardKey& key) const {
  const auto found = shards_.find(key);
  ORRERY_ENSURE(found != shards_.end());
  return found->second;
}

namespace {

// What the backward of a part makes again of its forward.
PassCost repeated(const ShardCost& cost, const LayerRange& range, const Recompute& recompute) {
  const auto first = static_cast<std::size_t>(range.first);
  const auto layers = static_cast<std::size_t>(range.count);
  switch (recompute.granularity) {
    case RecomputeGranularity::none:
      return {};
    case RecomputeGranularity::selective:
      return repeated_between(cost.before[first], cost.before[first + layers], recompute.modules);
    case RecomputeGranularity::full: {
      const std::size_t again = recompute.method == RecomputeMethod::block
                                    ? static_cast<std::size_t>(std::min(recompute.layers, range.count))
                                    : layers;
      return all_repeated_between(cost.before[first], cost.before[first + again]);
    }
  }
  ORRERY_ENSURE(false);
}

}  // namespace

PartTimes PriceBook::part_times(const ShardCost& cost, const LayerRange& range, const Recompute& recompute,
                                int gpus, Backward pass, double delay_of_weights) const {
  const auto first = static_cast<std::size_t>(range.first);
  const auto end = static_cast<std::size_t>(range.first + range.count);
  PassCost forward = cost.before[end].forward - cost.before[first].forward;
  PassCost backward = cost.before[end].backward - cost.before[first].backward;
  const Seconds host_of_layers = forward.host;
  PassCost weights = cost.before[end].weight_gradient - cost.before[first].weight_gradient;
  PassCost again = repeated(cost, range, recompute);
  if (!precision_.stack.regathers_recomputed) again.weights = again.lone_weights = again.copies = Seconds(0);
  backward += again;
  const bool embedding = range.has_embedding(), head = range.has_head(model_.layer_count());
  if (embedding) {
    forward += cost.embedding.forward;
    backward += cost.embedding.backward;
    weights += cost.embedding.weight_gradient;
  }
  if (head) {
    forward += cost.head.forward;
    backward += cost.head.backward;
    weights += cost.head.weight_gradient;
  }
  const double slowest = slowest_of(gpus);
  for (PassCost* one : {&forward, &backward, &weights}) *one = on_slowest(*one, slowest);
  forward.host = host_of_layers;  // the head's collectives are launched while the GPU is at its matrix
  if (pass == Backward::split) backward.communication += weights.communication;
  for (Seconds* sent : {&forward.weights, &forward.lone_weights, &backward.weights, &backward.lone_weights})
    *sent = *sent * delay_of_weights;
  const PassTime forward_time = time_under(
      {forward, head ? on_slowest(cost.head.forward, slowest) : PassCost{}, range.count}, precision_.stack);
  const PassTime backward_time = time_under(
      {backward, embedding ? on_slowest(cost.embedding.backward, slowest) : PassCost{}, range.count},
      precision_.stack);
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

Backward backward_of(ScheduleKind kind) {
  return splits_backward(kind) ? Backward::split : Backward::whole;
}

ShardKey shard_key(const ParallelStrategy& strategy, int stage) {
  const StageDevices& devices = strategy.stages[static_cast<std::size_t>(stage)];
  return {devices.group,
          devices.tensor,
          strategy.context,
          strategy.expert,
          strategy.expert_tensor,
          strategy.micro_batch,
          strategy.sequence_parallel,
          exchanges_in_passes(strategy) ? strategy.copies_of_instance() : 0,
          gathered_in_passes(strategy) ? strategy.optimizer_instances : 1,
          strategy.reduce_each_microbatch,
          strategy.flash_attention,
          strategy.tensor_overlap};
}

std::vector<std::string> PriceBook::extrapolations(const ParallelStrategy& strategy) const {
  std::vector<std::string> reasons;
  for (int at = 0; at < strategy.kinds() * strategy.pipeline; ++at) {
    const ShardKey key = shard_key(strategy.of_kind(at / strategy.pipeline), at % strategy.pipeline);
    if (!shard(key).extrapolated) continue;
    std::string reason = cluster_.groups[static_cast<std::size_t>(key.group)].gpu.name;
    if (const auto& unseen = unseen_errors_.at(static_cast<std::size_t>(key.group))) {
      char error[128];
      std::snprintf(error, sizeof error,
                    ": its GEMMs were not measured; those of GPUs left out of the fit are %.1f %% off "
                    "(%.0f to %.0f by GPU)",
                    100 * unseen->mean, 100 * unseen->least, 100 * unseen->most);
      reason += error;
    } else {
      reason += ": some operators lie outside what was measured";
    }
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end())
      reasons.push_back(std::move(reason));
  }
  return reasons;
}

}  // namespace orrery
