#include "costmodels/stack_effects.hpp"

#include <algorithm>

#include "costmodels/local_layer.hpp"

namespace orrery {
namespace {

// Time of collectives that GEMMs run beside.
Seconds hidden_collectives(Seconds collectives, Seconds gemms, int ranks, const SoftwareStack& stack) {
  return std::min(collectives * (stack.tensor_overlap * (1.0 - 1.0 / ranks)), gemms);
}

// Tensor collectives that no matrix of their own runs beside, and the matrices that are free to.
struct TensorTimes {
  Seconds collectives, gemms;
  Seconds slowdown;  // of matrices beside the other tensor collectives
};

TensorTimes tensor_times(const PassOperators& operators, const PassTimes& times, const SoftwareStack& stack) {
  TensorTimes sums;
  for (std::size_t i = 0; i < operators.compute.size(); ++i) {
    if (std::holds_alternative<Gemm>(operators.compute[i])) sums.gemms += times.compute[i];
  }
  for (std::size_t i = 0; i < operators.communication.size(); ++i) {
    const CallPlace& place = operators.places[i];
    if (place.group != RankGroup::tensor) continue;
    if (place.beside == 0.0) {
      sums.collectives += times.communication[i];
      continue;
    }
    const Seconds beside = times.compute[place.after - 1] * place.beside;
    sums.gemms += beside * -1.0;
    sums.slowdown += std::min(beside, times.communication[i]) * (stack.overlap_slowdown - 1);
  }
  return sums;
}

}  // namespace

Seconds exposed_collectives(Seconds collectives, Seconds gemms, int ranks, const SoftwareStack& stack) {
  const Seconds beside = hidden_collectives(collectives, gemms, ranks, stack);
  return collectives - beside + beside * (stack.overlap_slowdown - 1);
}

PassCost cost_under(const PassOperators& operators, const PassTimes& times, const Sharding& sharding) {
  PassCost cost = cost_of(operators, times);
  cost.compute += sharding.stack.kernel_gap * static_cast<double>(operators.compute.size());
  const auto [tensor, gemms, slowdown] = tensor_times(operators, times, sharding.stack);
  cost.communication +=
      exposed_collectives(tensor, gemms, sharding.tensor, sharding.stack) - tensor + slowdown;
  cost.calls = static_cast<double>(operators.communication.size());
  return cost;
}

// Chunks of a collective run beside the GEMM before or after it; here beside an equal share of the compute of
// the whole block, whose sums are the same.
std::vector<PassPiece> pieces_under(const PassOperators& operators, const PassTimes& times, PassOrder order,
                                    const Sharding& sharding) {
  std::vector<PassPiece> pieces = pieces_of(operators, times, order);
  const auto is_tensor = [](const PassPiece& piece) {
    return piece.call && piece.call->group == RankGroup::tensor;
  };
  const double slower = sharding.stack.overlap_slowdown - 1;
  for (PassPiece& piece : pieces) {
    if (is_tensor(piece)) piece.slowdown = std::min(piece.beside.time, piece.call->time) * slower;
  }
  const auto [tensor, gemms, of_own] = tensor_times(operators, times, sharding.stack);
  const Seconds hidden = hidden_collectives(tensor, gemms, sharding.tensor, sharding.stack);
  if (hidden.value() <= 0) return pieces;
  Work compute;
  for (const PassPiece& piece : pieces) compute += piece.compute;
  const double moved = hidden / compute.time;
  for (PassPiece& piece : pieces) {
    piece.compute = piece.compute * (1 - moved);
    if (!is_tensor(piece) || piece.beside.time.value() > 0) continue;
    piece.beside = compute * (moved * (piece.call->time / tensor));
    piece.slowdown = piece.beside.time * slower;
  }
  return pieces;
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
    return 1 / (collective->ranks > collective->ranks_per_node ? network.between * network.collectives
                                                               : network.inside);
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

TransferEfficiency under_network(const TransferEfficiency& efficiency, const NetworkShare& network) {
  return {std::min(1.0, efficiency.inside * network.inside),
          std::min(1.0, efficiency.between * network.between)};
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

PassTime time_under(const LaunchedPass& pass, const SoftwareStack& stack) {
  const PassCost& cost = pass.cost;
  const Seconds own = cost.compute + cost.communication;
  const Seconds beside = std::min(own, cost.weights);
  // The weights of the first layer come before anything can run beside them.
  const Seconds first = pass.layers > 0 ? cost.weights / pass.layers : cost.weights;
  const Seconds device = std::max(own + beside * (stack.overlap_slowdown - 1), cost.weights) + first;
  const Seconds launched =
      pass.host > Seconds(0) ? pass.host + pass.last.compute + pass.last.communication : Seconds(0);
  return {std::max(device, launched), launched > device};
}

}  // namespace orrery
