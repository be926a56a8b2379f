// Whole plans priced from the tables of a price book.
#include <algorithm>

#include "costmodels/layers/stack_effects.hpp"
#include "costmodels/layers/stage_parts.hpp"
#include "costmodels/memory/memory.hpp"
#include "costmodels/plans/fabric_delay.hpp"
#include "costmodels/plans/folding.hpp"
#include "costmodels/plans/price_book.hpp"
#include "strategies/placement.hpp"

namespace orrery {
BoundaryMessage PriceBook::boundary(const ParallelStrategy& strategy, int boundary) const {
  const LayerRange& before = strategy.parts[static_cast<std::size_t>(boundary)];
  const StageDevices& from = strategy.stages[static_cast<std::size_t>(strategy.rank_of_part(boundary))];
  const StageDevices& to = strategy.stages[static_cast<std::size_t>(strategy.rank_of_part(boundary + 1))];
  BoundaryMessage message;
  message.in_shards = precision_.stack.scatter_gather || strategy.sequence_parallel;
  message.whole_gradients = precision_.stack.whole_gradient_messages && !strategy.sequence_parallel;
  message.bytes = boundary_message(model_, strategy, before.first + before.count - 1);
  if (precision_.stack.scatter_gather && !strategy.sequence_parallel) {
    message.bytes = message.bytes / from.tensor;
  }
  const Bytes flow =
      message.in_shards ? message.bytes * from.tensor / std::max(from.tensor, to.tensor) : message.bytes;
  message.efficiency = under_network({path_efficiency({from.group, to.group, true}, flow),
                                      path_efficiency({from.group, to.group, false}, flow)},
                                     precision_.stack.network);
  return message;
}

// `apart`: copies, over context ranks and then replicas, from one member of the ring to the next.
PartReduction PriceBook::part_reduction(const ParallelStrategy& strategy, int part, double parameters,
                                        int apart) const {
  const int stage = strategy.rank_of_part(part);
  const StageDevices& devices = strategy.stages[static_cast<std::size_t>(stage)];
  PartReduction reduction;
  reduction.gradients = Bytes(parameters * gradient_sent(precision_.stack, strategy.type));
  const int copies = strategy.data * strategy.context / apart;
  const int members = copies / strategy.optimizer_instances;
  const auto efficiency = [&](int ring_apart, int ring_members, CollectiveKind kind, Bytes bytes) {
    const int gpus = cluster_.groups[static_cast<std::size_t>(devices.group)].gpus_per_node;
    return ring_efficiency(devices.group, ring_lanes(strategy, stage, ring_apart, gpus), ring_members, kind,
                           bytes);
  };
  const CollectiveKind reduce =
      gradient_collective(strategy.distributed_optimizer, precision_.stack.all_reduces_gradients);
  const bool for_all = reduce == CollectiveKind::all_reduce;
  reduction.efficiency = efficiency(apart, for_all ? copies : members, reduce, reduction.gradients);
  if (!for_all && strategy.optimizer_instances > 1) {
    reduction.across_efficiency = efficiency(apart * members, strategy.optimizer_instances,
                                             CollectiveKind::all_reduce, reduction.gradients / members);
  }
  if (strategy.distributed_optimizer) {
    const bool twice = precision_.stack.gathers_for_each_optimizer && !strategy.overlap_param_gather &&
                       strategy.copies_sharing_experts() > 1;
    const Bytes once(parameters * stored_bytes(strategy.type));
    reduction.gathered = once * (twice ? 2.0 : 1.0);
    reduction.gather_efficiency = efficiency(apart, members, CollectiveKind::all_gather, once);
  }
  // What the passes gather they need not after the step, and gradients that they reduced are; weights that
  // are whole are gathered once.
  if (gathered_in_passes(strategy) && forwards_gather(precision_.stack)) reduction.gathered = Bytes(0);
  if (reduced_in_passes(strategy, precision_.stack)) reduction.gradients = Bytes(0);
  return reduction;
}

PartReduction PriceBook::reduction(const ParallelStrategy& strategy, int part) const {
  const LocalParameters parameters =
      part_parameters(model_, strategy, strategy.rank_of_part(part), part / strategy.pipeline);
  return slowest_reduction(strategy, part, parameters.dense + parameters.expert, 1);
}

// Experts that are spread over context ranks or replicas have fewer copies than the rest of a part, and a
// reduction of their own.
void PriceBook::add_reductions(PricedPlan& plan, const ParallelStrategy& strategy) const {
  for (int part = 0; part < strategy.part_count(); ++part) {
    const int sharing = strategy.copies_sharing_experts();
    if (sharing == 1) {
      plan.reductions.push_back(reduction(strategy, part));
      continue;
    }
    const LocalParameters parameters =
        part_parameters(model_, strategy, strategy.rank_of_part(part), part / strategy.pipeline);
    plan.reductions.push_back(slowest_reduction(strategy, part, parameters.dense, 1));
    plan.expert_reductions.push_back(slowest_reduction(strategy, part, parameters.expert, sharing));
  }
}

// By the largest tensors that are gathered: a layer's weights.
double PriceBook::delay_of_weights(const PricedPlan& plan, const ParallelStrategy& strategy,
                                   const Topology& topology) const {
  if (!exchanges_in_passes(strategy) || cut_route(plan, topology)) return 1.0;
  const double layer = stage_parameters(model_, strategy, 0) / std::max(1, model_.layer_count());
  return fabric_delay(plan, strategy, topology, Bytes(layer * stored_bytes(strategy.type)));
}

PricedPlan PriceBook::price(const ParallelStrategy& strategy, const Topology& topology) const {
  PricedPlan plan;
  plan.schedule = {strategy.schedule, strategy.transfers, strategy.pipeline, strategy.chunks,
                   static_cast<int>(strategy.microbatches())};
  plan.replicas = strategy.data;
  plan.context = strategy.context;
  plan.expert = strategy.replicas_sharing_experts();
  plan.expert_context = strategy.contexts_sharing_experts();
  plan.expert_tensor = std::max(1, strategy.expert / strategy.copies_sharing_experts());
  const bool in_passes = gathered_in_passes(strategy), reduced_once = precision_.stack.adds_up_whole;
  const bool gathers_once = in_passes && precision_.stack.whole_weights;
  if (!reduced_in_passes(strategy, precision_.stack) || gathers_once) add_reductions(plan, strategy);
  plan.gpus = place(strategy, topology);
  price_kinds(strategy, plan, delay_of_weights(plan, strategy, topology));
  plan.gradient_norm = !validates_later(strategy.schedule);
  const bool is_cut = cut_route(plan, topology).has_value();  // then nobody asks when messages arrive
  if (!is_cut) play_groups(plan, strategy, topology);
  plan.distributed_optimizer = strategy.distributed_optimizer;
  plan.optimizer_instances = strategy.optimizer_instances;
  plan.all_reduces_gradients = precision_.stack.all_reduces_gradients;
  plan.broadcasts_parameters = precision_.stack.broadcasts_parameters;
  if (model_.has_second_word_table()) {
    const int tensor = strategy.tensor(0);
    const auto rows = static_cast<double>(padded_rows(model_.vocabulary, tensor));
    plan.embedding_gradient =
        Bytes(rows * static_cast<double>(model_.hidden) * gradient_sent(precision_.stack, strategy.type));
  }
  plan.overlap_grad_reduce = strategy.overlap_grad_reduce || (in_passes && reduced_once);
  plan.overlap_param_gather = strategy.overlap_param_gather;
  if (plan.overlap_grad_reduce || strategy.overlap_param_gather) {
    // Megatron-LM core/distributed/distributed_data_parallel.py.
    const double usual = std::max(40e6, 1e6 * strategy.data * strategy.context);
    plan.bucket = Bytes(precision_.stack.gradient_bucket.value_or(usual) *
                        gradient_sent(precision_.stack, strategy.type));
    plan.overlap_slowdown = precision_.stack.overlap_slowdown;
  }
  // Parameters gathered under the next forwards, and stages that go on from their own step, show in the
  // second iteration.
  if (strategy.overlap_param_gather || !plan.gradient_norm || strategy.pipeline > 1) plan.iterations = 2;
  if (!is_cut) plan.transfers = transfer_times(plan, topology);
  return plan;
}

}  // namespace orrery
