#include "costmodels/stack_effects.hpp"

#include <algorithm>

#include "costmodels/local_layer.hpp"

namespace orrery {

Seconds exposed_collectives(Seconds collectives, Seconds gemms, int ranks, const SoftwareStack& stack) {
  const Seconds hidden = collectives * (stack.tensor_overlap * (1.0 - 1.0 / ranks));
  const Seconds beside = std::min(hidden, gemms);
  return collectives - beside + beside * (stack.overlap_slowdown - 1);
}

PassCost cost_under(const PassOperators& operators, const PassTimes& times, const Sharding& sharding) {
  PassCost cost = cost_of(operators, times);
  Seconds gemms, tensor;
  for (std::size_t i = 0; i < operators.compute.size(); ++i) {
    if (std::holds_alternative<Gemm>(operators.compute[i])) gemms += times.compute[i];
  }
  for (std::size_t i = 0; i < operators.communication.size(); ++i) {
    if (operators.places[i].group == RankGroup::tensor) tensor += times.communication[i];
  }
  cost.communication += exposed_collectives(tensor, gemms, sharding.tensor, sharding.stack) - tensor;
  cost.calls = static_cast<double>(operators.communication.size());
  return cost;
}

PassCost selective_repeats(const BlockOperators& block, const PassTimes& forward,
                           const PassTimes& attention_core, const Sharding& sharding) {
  if (sharding.stack.selective == SelectiveRecompute::attention) {
    return cost_of({block.attention_core, {}, {}}, attention_core);
  }
  PassCost cost;
  for (std::size_t i = 0; i < block.forward.compute.size(); ++i) {
    const Operator& op = block.forward.compute[i];
    if (std::holds_alternative<Attention>(op)) continue;  // its output is kept
    const double share = std::holds_alternative<Gemm>(op) ? 0.5 : 1.0;
    cost.compute += forward.compute[i] * share;
    cost.flops += flops_of(op) * share;
  }
  return cost;
}

double KernelFactors::of(const Operator& op) const {
  if (const auto* collective = std::get_if<Collective>(&op))
    return 1 / (collective->ranks > collective->ranks_per_node ? network.between : network.inside);
  if (const auto* transfer = std::get_if<PointToPoint>(&op))
    return 1 / (transfer->same_node ? network.inside : network.between);
  return compute * of_kernel(op);
}

double KernelFactors::of_kernel(const Operator& op) const {
  if (std::holds_alternative<Gemm>(op)) return gemm;
  if (const auto* core = std::get_if<Attention>(&op)) {
    return core->kernel == AttentionKernel::unfused ? 1.0 : attention;
  }
  if (const auto* kernel = std::get_if<MemoryBound>(&op)) {
    const MemoryKernel kind = kernel->kernel;
    const bool layer_kernel = kind == MemoryKernel::norm || kind == MemoryKernel::activation ||
                              kind == MemoryKernel::rope || kind == MemoryKernel::residual;
    return layer_kernel ? elementwise : 1.0;
  }
  return 1.0;
}

WeightTraffic weight_traffic(const Sharding& sharding, double parameters) {
  if (sharding.sharded < 2) return {};
  Collective gather;
  gather.kind = CollectiveKind::all_gather;
  gather.bytes = Bytes(parameters * stored_bytes(sharding.type));
  gather.ranks = sharding.sharded;
  gather.ranks_per_node = std::clamp(sharding.gpus_per_node / sharding.tensor, 1, sharding.sharded);
  gather.gpu_link = sharding.gpu_link;
  gather.network = sharding.network;
  Collective reduce = gather;
  reduce.kind = CollectiveKind::reduce_scatter;
  reduce.bytes = Bytes(parameters * sharding.stack.reduced_gradient.value_or(gradient_bytes(sharding.type)));
  return {{gather}, {reduce}};
}

PassTime time_under(const PassCost& cost, Seconds host, int layers, const SoftwareStack& stack) {
  const Seconds own = cost.compute + cost.communication;
  const Seconds beside = std::min(own, cost.weights);
  // The weights of the first layer come before anything can run beside them.
  const Seconds first = layers > 0 ? cost.weights / layers : cost.weights;
  const Seconds device = std::max(own + beside * (stack.overlap_slowdown - 1), cost.weights) + first;
  return {std::max(device, host), host > device};
}

}  // namespace orrery
