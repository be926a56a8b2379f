#include "costmodels/layers/stack_effects.hpp"

#include <algorithm>

#include "costmodels/stacks/sustained_power.hpp"
#include "strategies/strategy.hpp"

namespace orrery {
namespace {

// Time of collectives that GEMMs run beside.
Seconds hidden_collectives(Seconds collectives, Seconds gemms, int ranks, const SoftwareStack& stack) {
  return std::min(collectives * (stack.tensor_overlap * (1.0 - 1.0 / ranks)), gemms);
}

// Collectives that no matrix of their own runs beside, and the matrices that are free to.
struct OverlapTimes {
  Seconds tensor, expert;  // collectives
  Seconds gemms, compute;
  Seconds slowdown;  // of matrices beside the other tensor collectives
};

OverlapTimes overlap_times(const PassOperators& operators, const PassTimes& times,
                           const SoftwareStack& stack) {
  OverlapTimes sums;
  for (std::size_t i = 0; i < operators.compute.size(); ++i) {
    sums.compute += times.compute[i];
    if (std::holds_alternative<Gemm>(operators.compute[i])) sums.gemms += times.compute[i];
  }
  for (std::size_t i = 0; i < operators.communication.size(); ++i) {
    const CallPlace& place = operators.places[i];
    if (place.group == RankGroup::expert) sums.expert += times.communication[i];
    if (place.group != RankGroup::tensor) continue;
    if (place.beside == 0.0) {
      sums.tensor += times.communication[i];
      continue;
    }
    const Seconds beside = times.compute[place.after - 1] * place.beside;
    sums.gemms += beside * -1.0;
    sums.slowdown += std::min(beside, times.communication[i]) * (stack.overlap_slowdown - 1);
  }
  return sums;
}

// Time of the exchange with experts that another microbatch computes beside; what is left of it goes on while
// the GPU waits for the host (`stall`).
Seconds hidden_exchange(const OverlapTimes& times, Seconds stall, const SoftwareStack& stack) {
  if (stack.experts.overlap == 0) return Seconds(0);
  const Seconds beside = std::min(times.expert * stack.experts.overlap, times.compute);
  return beside + std::min(times.expert - beside, stall);
}

// Of the host for the kernels of a pass.
Seconds launch_time(const PassOperators& operators, PassOrder order, const Sharding& sharding) {
  const HostCost& host = sharding.stack.host;
  const CudaGraphs graphs = sharding.stack.cuda_graphs;
  if (graphs == CudaGraphs::all || (graphs == CudaGraphs::experts && operators.experts.count > 0)) return {};
  const bool forward = order == PassOrder::forward;
  Seconds layer = (forward ? host.forward : host.backward) * sharding.stack.kernels.host_time;
  if (is_cast_from_16_bits(sharding.type)) layer += forward ? host.forward_casts : host.backward_casts;
  const Seconds step = forward ? host.ring_forward : host.ring_backward;
  Seconds matrix = forward ? host.matrix_forward : host.matrix_backward;
  if (sharding.sharded > 1) matrix += forward ? host.gather_forward : host.gather_backward;
  return layer * operators.launched_layers + matrix * operators.launched_matrices +
         step * operators.ring_steps + host.collective * static_cast<double>(operators.communication.size());
}

// Of the host for the experts of a GPU.
Seconds expert_launch(int experts, PassOrder order, const Sharding& sharding) {
  const ExpertCost& cost = sharding.stack.experts;
  const bool forward = order == PassOrder::forward;
  const bool casts = is_cast_from_16_bits(sharding.type);
  const auto of = [&](const ExpertHost& host) {
    const Seconds pass = forward ? host.forward : host.backward;
    return casts ? pass + (forward ? host.forward_casts : host.backward_casts) : pass;
  };
  return of(cost.layer) + of(cost.each) * experts;
}

// What the GPU waits for the host between the kernels of experts.
Seconds expert_stall(const PassOperators& operators, const PassTimes& times, PassOrder order,
                     const Sharding& sharding) {
  const ExpertSection& experts = operators.experts;
  if (experts.count == 0) return Seconds(0);
  Seconds busy;
  for (std::size_t i = experts.first; i < experts.end; ++i) busy += times.compute[i];
  return std::max(Seconds(0), expert_launch(experts.count, order, sharding) - busy);
}

// Of the matrices that a forward multiplies by.
std::vector<double> matrix_parameters(const PassOperators& forward) {
  std::vector<double> matrices;
  for (const Operator& op : forward.compute) {
    if (const auto* gemm = std::get_if<Gemm>(&op))
      matrices.push_back(static_cast<double>(gemm->batch * gemm->n * gemm->k));
  }
  return matrices;
}

// Copies of some weights that share them, every `stride` GPUs.
struct WeightCopies {
  int ranks = 1, stride = 1;
};

WeightCopies copies_of_dense(const Sharding& sharding) {
  return {sharding.sharded, sharding.tensor};
}
WeightCopies copies_of_experts(const Sharding& sharding) {
  const int sharing = copies_sharing_experts(sharding.expert, sharding.tensor,
                                             sharding.expert_tensor.value_or(sharding.tensor));
  return {std::max(1, sharding.sharded / sharing), sharding.tensor * sharing};
}

// Each shard of what the sets reduced apart, summed over them.
Collective across_instances(const Collective& reduce, const WeightCopies& copies, const Sharding& sharding) {
  Collective sum = reduce;
  sum.kind = CollectiveKind::all_reduce;
  sum.bytes = reduce.bytes / copies.ranks;
  sum.ranks = sharding.instances;
  sum.ranks_per_node =
      std::clamp(sharding.gpus_per_node / (copies.stride * copies.ranks), 1, sharding.instances);
  sum.gpu_link = sharding.gpu_links.among(sum.ranks_per_node);
  return sum;
}

Collective gather_of(double parameters, const WeightCopies& copies, const Sharding& sharding) {
  Collective gather;
  gather.kind = CollectiveKind::all_gather;
  gather.bytes = Bytes(parameters * stored_bytes(sharding.type));
  gather.ranks = copies.ranks;
  gather.ranks_per_node = std::clamp(sharding.gpus_per_node / copies.stride, 1, copies.ranks);
  gather.gpu_link = sharding.gpu_links.among(gather.ranks_per_node);
  gather.network = sharding.network;
  return gather;
}

void add_gather(WeightTraffic& traffic, double parameters, const WeightCopies& copies,
                const Sharding& sharding) {
  if (parameters > 0 && copies.ranks > 1 && forwards_gather(sharding.stack))
    traffic.gather.emplace_back(gather_of(parameters, copies, sharding));
}

void add_reduce(WeightTraffic& traffic, double parameters, const WeightCopies& copies,
                const Sharding& sharding) {
  const SoftwareStack& stack = sharding.stack;
  if (parameters <= 0 || stack.adds_up_whole) return;  // reduced once a step
  Collective reduce = gather_of(parameters, copies, sharding);
  const bool for_all = stack.whole_weights && stack.all_reduces_gradients;
  reduce.kind = for_all ? CollectiveKind::all_reduce : CollectiveKind::reduce_scatter;
  reduce.bytes = Bytes(parameters * gradient_sent(stack, sharding.type));
  if (copies.ranks > 1) traffic.reduce.emplace_back(reduce);
  if (sharding.instances > 1) traffic.reduce.emplace_back(across_instances(reduce, copies, sharding));
}

void add_copies(WeightTraffic& traffic, double parameters, const WeightCopies& copies,
                const Sharding& sharding) {
  const SoftwareStack& stack = sharding.stack;
  const ShardCopies& moved = stack.shard_copies;
  const auto add = [&](std::vector<Operator>& kernels, double bytes) {
    if (parameters * bytes > 0)
      kernels.emplace_back(MemoryBound{.kernel = MemoryKernel::copy, .bytes = Bytes(parameters * bytes)});
  };
  if (forwards_gather(stack)) add(traffic.unpack, moved.gathered + moved.own / copies.ranks);
  if (!stack.adds_up_whole)
    add(traffic.pack,
        moved.scattering_time * (stored_bytes(sharding.type) + gradient_sent(stack, sharding.type)));
}

}  // namespace

Seconds exposed_collectives(Seconds collectives, Seconds gemms, int ranks, const SoftwareStack& stack) {
  const Seconds beside = hidden_collectives(collectives, gemms, ranks, stack);
  return collectives - beside + beside * (stack.overlap_slowdown - 1);
}

void add_kinds(PassCost& cost, const Operator& op, Seconds time, const Sharding& sharding) {
  if (std::holds_alternative<Gemm>(op)) cost.matrices += time;
  if (sharding.power_limited && draws_full_power(op)) cost.at_limit += time;
}

PassCost cost_under(const PassOperators& operators, const PassTimes& times, PassOrder order,
                    const Sharding& sharding) {
  PassCost cost = cost_of(operators, times);
  cost.compute += sharding.stack.kernel_gap * static_cast<double>(operators.compute.size());
  const Seconds stall = expert_stall(operators, times, order, sharding);
  cost.compute += stall;
  const OverlapTimes sums = overlap_times(operators, times, sharding.stack);
  cost.communication += exposed_collectives(sums.tensor, sums.gemms, sharding.tensor, sharding.stack) -
                        sums.tensor + sums.slowdown;
  cost.communication -= hidden_exchange(sums, stall, sharding.stack);
  cost.calls = static_cast<double>(operators.communication.size());
  cost.host = launch_time(operators, order, sharding);
  for (std::size_t i = 0; i < operators.compute.size(); ++i)
    add_kinds(cost, operators.compute[i], times.compute[i], sharding);
  return cost;
}

// Chunks of a collective run beside the GEMM before or after it, an exchange with experts beside another
// microbatch; here beside an equal share of the compute of the whole block, whose sums are the same.
std::vector<PassPiece> pieces_under(const PassOperators& operators, const PassTimes& times, PassOrder order,
                                    const Sharding& sharding) {
  std::vector<PassPiece> pieces = pieces_of(operators, times, order);
  const double slower = sharding.stack.overlap_slowdown - 1;
  for (PassPiece& piece : pieces) {
    if (piece.call && piece.call->group == RankGroup::tensor)
      piece.slowdown = std::min(piece.beside.time, piece.call->time) * slower;
  }
  const OverlapTimes sums = overlap_times(operators, times, sharding.stack);
  const Seconds tensor = hidden_collectives(sums.tensor, sums.gemms, sharding.tensor, sharding.stack);
  const Seconds stall = expert_stall(operators, times, order, sharding);
  const Seconds expert = hidden_exchange(sums, stall, sharding.stack);
  if ((tensor + expert).value() <= 0) return pieces;
  Work compute;
  for (const PassPiece& piece : pieces) compute += piece.compute;
  // What is left alone is stretched by what the host adds (fit_work of price_book_groups.cpp); what runs
  // beside an exchange has its part of that wait here.
  const double left = std::max(0.0, 1 - tensor / compute.time - expert / (compute.time + stall));
  const auto beside = [](Seconds call, Seconds hidden, Seconds all, Work block) {
    return hidden.value() > 0 ? block * (hidden / block.time * (call / all)) : Work{};
  };
  for (PassPiece& piece : pieces) {
    piece.compute = piece.compute * left;
    if (!piece.call) continue;
    if (piece.call->group == RankGroup::tensor && piece.beside.time.value() == 0) {
      piece.beside = beside(piece.call->time, tensor, sums.tensor, compute);
      piece.slowdown = piece.beside.time * slower;
    } else if (piece.call->group == RankGroup::expert) {
      piece.beside += beside(piece.call->time, expert, sums.expert, {compute.time + stall, compute.flops});
    }
  }
  return pieces;
}

namespace {

// Of each matrix of a forward, what torchtitan's policy repeats: every second one, where queries, keys,
// values, gate and up count for themselves. Joined, of the two or three of an MLP, projection and keys, the
// second. Of the products of experts, which its list of kept results does not have, all (torchtitan/
// distributed/activation_checkpoint.py and models/deepseek_v3/infra/parallelize.py: no _grouped_mm), and of
// those in 4 bits (components/quantization/nvfp4.py: an operator of torchao's own). Where elementwise kernels
// alone are repeated, these too and nothing else.
std::vector<double> repeated_shares(const std::vector<const Gemm*>& gemms, const SoftwareStack& stack) {
  std::vector<double> shares;
  const bool keeps_known = stack.selective == SelectiveRecompute::elementwise;
  bool second = false;
  for (const Gemm* gemm : gemms) {
    const bool unknown = gemm->batch > 1 || gemm->type == DataType::fp4;
    const double known = keeps_known ? 0.0 : !stack.separate_inputs ? 0.5 : second ? 1.0 : 0.0;
    shares.push_back(unknown ? 1.0 : known);
    if (!unknown) second = !second;
  }
  // Neither experts nor latent attention.
  const bool dense = gemms.size() == 4 && gemms.front()->type != DataType::fp4;
  if (keeps_known || stack.separate_inputs || !dense) return shares;
  const double keys_and_values = static_cast<double>(gemms[0]->n - gemms[1]->k);
  const bool gated = gemms[2]->n == 2 * gemms[3]->k;
  return {keys_and_values / 2 / static_cast<double>(gemms[0]->n), 1.0, gated ? 0.5 : 0.0, gated ? 0.0 : 1.0};
}

// torchtitan's policies: of the matrices what they repeat, every kernel between and what is gathered for
// them; the attention's output and reduced sums are kept (distributed/activation_checkpoint.py).
PassCost repeated_by_operators(const BlockOperators& block, const PassTimes& forward,
                               const Sharding& sharding) {
  std::vector<const Gemm*> gemms;
  for (const Operator& op : block.forward.compute)
    if (const auto* gemm = std::get_if<Gemm>(&op)) gemms.push_back(gemm);
  const std::vector<double> shares = repeated_shares(gemms, sharding.stack);
  PassCost cost;
  Seconds beside, gathered;
  auto next = shares.begin();
  for (std::size_t i = 0; i < block.forward.compute.size(); ++i) {
    const Operator& op = block.forward.compute[i];
    if (std::holds_alternative<Attention>(op)) continue;
    const bool matrix = std::holds_alternative<Gemm>(op);
    const double share = matrix ? *next++ : 1.0;
    cost.compute += forward.compute[i] * share;
    cost.flops += flops_of(op) * share;
    if (matrix) beside += forward.compute[i] * share;
    add_kinds(cost, op, forward.compute[i] * share, sharding);
  }
  for (std::size_t i = 0; i < block.forward.communication.size(); ++i) {
    const bool gathers =
        std::get<Collective>(block.forward.communication[i]).kind == CollectiveKind::all_gather;
    if (gathers && block.forward.places[i].group == RankGroup::tensor) gathered += forward.communication[i];
  }
  // Inside a node, where nothing else meets it: no call of its own.
  cost.compute += exposed_collectives(gathered, beside, sharding.tensor, sharding.stack);
  return cost;
}

}  // namespace

OfModules<PassCost> module_costs(const BlockOperators& block, const PassTimes& forward,
                                 const Sharding& sharding) {
  OfModules<PassCost> costs;
  const bool own = sharding.stack.selective != SelectiveRecompute::attention;
  for (const RecomputeModule module : kRecomputeModules) {
    if (own && module == RecomputeModule::core_attn) {
      costs[index_of(module)] = repeated_by_operators(block, forward, sharding);
      continue;
    }
    const Pass pass = module_pass(block, forward, module);
    costs[index_of(module)] = cost_under(pass.operators, pass.times, PassOrder::forward, sharding);
  }
  return costs;
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
  if (const auto* matrices = std::get_if<Gemm>(&op)) {
    if (matrices->scan_gradient) return scan_gradient;
    return matrices->type == DataType::fp8 ? gemm * narrow : gemm;
  }
  if (const auto* core = std::get_if<Attention>(&op)) {
    return core->kernel == AttentionKernel::unfused ? 1.0 : attention;
  }
  if (const auto* kernel = std::get_if<MemoryBound>(&op)) {
    const MemoryKernel kind = kernel->kernel;
    if (kind == MemoryKernel::norm) return norm;
    if (kind == MemoryKernel::residual) return residual;
    const bool layer_kernel = kind == MemoryKernel::activation || kind == MemoryKernel::rope;
    return layer_kernel ? elementwise : 1.0;
  }
  return 1.0;
}

TransferEfficiency under_network(const TransferEfficiency& efficiency, const NetworkShare& network) {
  return {std::min(1.0, efficiency.inside * network.inside),
          std::min(1.0, efficiency.between * network.between)};
}

WeightTraffic weight_traffic(const Sharding& sharding, const LocalParameters& parameters,
                             const PassOperators& forward) {
  if (sharding.sharded < 1) return {};
  const WeightCopies dense = copies_of_dense(sharding), experts = copies_of_experts(sharding);
  const bool apart = experts.ranks < dense.ranks;
  const SoftwareStack& stack = sharding.stack;
  const std::vector<double> whole{parameters.dense + (apart ? 0 : parameters.expert)};
  std::vector<double> each;
  if ((stack.matrix_gathers || stack.gathers_wait) && !apart) each = matrix_parameters(forward);
  if (each.empty()) each = whole;
  WeightTraffic traffic;
  for (const double part : each) add_gather(traffic, part, dense, sharding);
  for (const double part : stack.matrix_gathers ? each : whole) add_reduce(traffic, part, dense, sharding);
  add_copies(traffic, whole.front(), dense, sharding);
  if (apart) {
    add_gather(traffic, parameters.expert, experts, sharding);
    add_reduce(traffic, parameters.expert, experts, sharding);
    if (experts.ranks > 1) add_copies(traffic, parameters.expert, experts, sharding);
  }
  return traffic;
}

Seconds gathering_host(const Sharding& sharding, std::size_t collectives) {
  const auto& host = sharding.stack.matrix_gathers;
  if (!host) return Seconds(0);
  return (host->host + host->host_per_rank * sharding.sharded) * static_cast<double>(collectives);
}

PassTime time_under(const LaunchedPass& pass, const SoftwareStack& stack) {
  const PassCost& cost = pass.cost;
  const Seconds own = cost.compute + cost.communication + cost.copies;
  if (stack.matrix_gathers) {
    const Seconds sent = cost.weights + cost.lone_weights;
    const Seconds device = own + sent;
    const Seconds launched = cost.host + sent;
    return {std::max(device, launched), launched > device};
  }
  const Seconds room = stack.gathers_wait ? std::min(own, cost.matrices) : own;
  const Seconds beside = std::min(room, cost.weights);
  // The weights of the first layer come before anything can run beside them.
  const Seconds first = pass.layers > 0 ? cost.weights / pass.layers : cost.weights;
  const bool alone = stack.whole_weights && !stack.overlap_grad_reduce;
  const Seconds device =
      cost.lone_weights +
      (alone ? own + cost.weights
             : own - room + std::max(room + beside * (stack.overlap_slowdown - 1), cost.weights) + first);
  const Seconds launched =
      cost.host > Seconds(0) ? cost.host + pass.last.compute + pass.last.communication : Seconds(0);
  return {std::max(device, launched), launched > device};
}

}  // namespace orrery
