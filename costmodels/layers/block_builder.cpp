#include "costmodels/layers/block_builder.hpp"

#include <algorithm>
#include <cmath>

#include "platforms/errors.hpp"

namespace orrery {

namespace {

// What a cast moves of an element, next to nothing of which are the scales of blocks (1 B for 16 or 32).
// Written by rows and by columns. Delayed: Transformer Engine's cast_transpose. Tensorwise: read once more
// for the largest element, unless the norm found it (normalization.cpp, FUSED_NORM_AMAX_FP8). NVFP4: read
// once more for the largest element of its rows and of its columns' Hadamard transform
// (nvte_hadamard_transform_amax).
double cast_bytes(DataType type, InputCast cast, Fp8Recipe recipe) {
  if (type == DataType::fp4) return 2.0 + 2.0 + 2 * (0.5 + 1.0 / 16);
  const bool normed = cast == InputCast::after_norm || cast == InputCast::ungathered_after_norm;
  switch (recipe) {
    case Fp8Recipe::delayed:
      return normed ? 0.0 : 2.0 + 2.0;
    case Fp8Recipe::tensorwise:
      return normed ? 2.0 + 2.0 : 2.0 + 2.0 + 2.0;
    case Fp8Recipe::rowwise:  // each way read twice and written
      return 2 * (2.0 + 2.0 + 1.0) - (normed ? 2.0 : 0.0);
    case Fp8Recipe::mxfp8:
      return 2.0 + 2 * (1.0 + 1.0 / 32);
  }
  ORRERY_ENSURE(false);
}

// Kernels that scale blocks reach 0.61 of B300's bandwidth (Transformer Engine's GEMM profiling tutorial as
// in platforms/catalog/gpus.yaml: with its casts a layer takes 1.82 ms more in MXFP8 and 2.69 ms in NVFP4,
// least squares over forward, input and weight gradients 0.82 and 1.05 ps an element of activations), where
// a copy is taken to reach 0.75.
constexpr double kBlockScaling = 0.75 / 0.61;

// Of a product [M, N, K]: that of its [M, K], a [M, K, N], and that of its [K, N], a [K, N, M].
struct FactorGradients {
  Gemm of_first, of_second;
};
FactorGradients gradients_of(const Gemm& f, GemmPass of_second) {
  FactorGradients gradients{{.m = f.m, .n = f.k, .k = f.n, .batch = f.batch, .type = f.type},
                            {.m = f.k, .n = f.n, .k = f.m, .batch = f.batch, .type = f.type}};
  gradients.of_first.pass = GemmPass::input_gradient;
  gradients.of_second.pass = of_second;
  return gradients;
}

bool scales_blocks(DataType type, Fp8Recipe recipe) {
  return type == DataType::fp4 || recipe == Fp8Recipe::mxfp8;
}

}  // namespace

BlockBuilder::BlockBuilder(const Sharding& sharding)
    : sharding_(sharding), element_(stored_bytes(sharding.type)) {}

void BlockBuilder::push(PassOperators& pass, MemoryKernel kernel, double bytes) const {
  if (bytes <= 0) return;
  const SoftwareStack& stack = sharding_.stack;
  const Fusion fusion =
      kernel == MemoryKernel::norm ? stack.kernels.norm.value_or(stack.elementwise) : stack.elementwise;
  const auto direction = &pass == &out_.backward ? Direction::backward : Direction::forward;
  pass.compute.push_back(MemoryBound{kernel, Bytes(bytes), fusion, direction});
}

void BlockBuilder::cast(PassOperators& pass, InputCast cast, DataType type, double elements) const {
  if (cast == InputCast::none || outside_fp8(type) == type) return;
  const Fp8Recipe recipe = sharding_.stack.fp8_recipe;
  const bool own = cast == InputCast::after_norm || cast == InputCast::own_tokens;
  if (own && sharding_.sequence_parallel) elements /= sharding_.tensor;
  push(pass, MemoryKernel::copy,
       cast_bytes(type, cast, recipe) * (scales_blocks(type, recipe) ? kBlockScaling : 1.0) * elements);
}

void BlockBuilder::push(PassOperators& pass, CollectiveKind kind, Group group, double bytes) const {
  if (group.ranks == 1 || bytes <= 0) return;
  int in_node = std::min(group.ranks, std::max(1, sharding_.gpus_per_node / group.stride));
  LinkSpec network = sharding_.network;
  const bool one_channel = group.in_turn && in_node < group.ranks;
  if (one_channel) {
    // The hop between nodes, which has the card of its GPU: the others are as if they had one too.
    network.bandwidth =
        network.bandwidth * (sharding_.gpus_per_nic * 1.0 / std::min(group.stride, sharding_.gpus_per_nic));
    in_node = 1;
  }
  pass.communication.push_back(
      Collective{.kind = kind,
                 .bytes = Bytes(bytes),
                 .ranks = group.ranks,
                 .ranks_per_node = in_node,
                 .gpu_link = sharding_.gpu_links.among(in_node),
                 .network = network,
                 .stated = group.kind == RankGroup::expert ? sharding_.stack.experts.dispatch : std::nullopt,
                 .one_channel = one_channel});
  pass.places.push_back({group.kind, pass.compute.size(), group.beside});
}

void BlockBuilder::linear(const Gemm& forward, InputCast input_cast, InputCast gradient_cast) {
  const Gemm& f = forward;
  cast(out_.forward, input_cast, f.type, static_cast<double>(f.batch * f.m * f.k));
  cast(out_.backward, gradient_cast, f.type, static_cast<double>(f.batch * f.m * f.n));
  out_.forward.compute.push_back(f);
  const auto [input, weights] = gradients_of(f, GemmPass::weight_gradient);
  // A backward runs from its end: first the gradient that is reduced under the other one.
  const bool input_first = async_gradient_.has_value();
  if (!input_first) out_.backward.compute.push_back(input);
  out_.weight_gradient.push_back(out_.backward.compute.size());
  out_.backward.compute.push_back(weights);
  if (!input_first) return;
  push(out_.backward, async_gradient_->kind, tensor_group(1.0), async_gradient_->bytes);
  out_.backward.compute.push_back(input);
  push(out_.backward, CollectiveKind::all_gather, tensor_group(1.0), async_gradient_->gathered);
  async_gradient_.reset();
}

void BlockBuilder::product(const Gemm& forward, ProductGradients gradients) {
  out_.forward.compute.push_back(forward);
  const auto [of_first, of_second] = gradients_of(forward, GemmPass::input_gradient);
  out_.backward.compute.push_back(of_second);
  if (gradients == ProductGradients::of_both) out_.backward.compute.push_back(of_first);
}

void BlockBuilder::scan_product(const Gemm& forward, Recomputed recomputed) {
  const Gemm& f = forward;
  out_.forward.compute.push_back(f);
  Gemm gradient{.m = f.m, .n = f.k, .k = f.n, .batch = f.batch, .type = f.type, .scan_gradient = true};
  out_.backward.compute.push_back(gradient);
  gradient.m = f.k, gradient.n = f.n, gradient.k = f.m;
  out_.backward.compute.push_back(gradient);
  if (recomputed == Recomputed::yes) out_.backward.compute.push_back(f);
}

void BlockBuilder::elementwise(MemoryKernel kernel, double elements, double forward_bytes,
                               double backward_bytes) {
  const double scaled = elements * element_ / 2.0;
  push(out_.forward, kernel, scaled * forward_bytes);
  push(out_.backward, kernel, scaled * backward_bytes);
}

void BlockBuilder::weight_gradient(MemoryKernel kernel, double bytes) {
  if (bytes > 0) out_.weight_gradient.push_back(out_.backward.compute.size());
  push(out_.backward, kernel, bytes);
}

void BlockBuilder::attention(const Attention& forward) {
  Attention backward = forward;
  backward.direction = Direction::backward;
  out_.forward.compute.push_back(forward);
  out_.backward.compute.push_back(backward);
}

void BlockBuilder::context_heads_exchange(double elements) {
  const Group group{RankGroup::context, sharding_.context, sharding_.tensor};
  push(out_.forward, CollectiveKind::all_to_all, group, elements * element_);
  push(out_.backward, CollectiveKind::all_to_all, group, elements * element_);
}

void BlockBuilder::context_exchange(const LocalLayer& local) {
  if (sharding_.context == 1) return;
  const std::int64_t width = sharding_.stack.repeated_keys ? local.query_width + local.output_width
                                                           : local.key_width + local.value_width;
  const auto key_value_elements = static_cast<double>(local.tokens * width);
  const auto query_elements = static_cast<double>(local.tokens * local.query_width);
  switch (sharding_.stack.context_exchange) {
    case ContextExchange::ring:
      return ring_exchange(key_value_elements, query_elements,
                           static_cast<double>(local.tokens * local.output_width));
    case ContextExchange::gathered:
      return gathered_exchange(key_value_elements, query_elements);
    case ContextExchange::heads:
      return;
  }
}

void BlockBuilder::ring_exchange(double key_value_elements, double query_elements, double output_elements) {
  const double ranks = sharding_.context;
  // Each step of the ring computes on the keys that are there while the next ones arrive; after the last step
  // nothing is on its way. So all but one step hide the exchange: exposed are
  // max(0, exchange - compute) x (ranks - 1) steps (FIDELITY B.9.4).
  const Group group{RankGroup::context, sharding_.context, sharding_.tensor, (ranks - 1) / ranks, true};
  Group backward_group = group;
  backward_group.beside = group.beside / 2;
  // K and V go round the ring, which moves what an all-gather moves; backward they go round again and their
  // gradients, which travel with them, end where they belong, as a reduce-scatter does: each beside half of
  // the attention's backward.
  const double all = element_ * key_value_elements * ranks;
  push(out_.forward, CollectiveKind::all_gather, group, all);
  push(out_.backward, CollectiveKind::all_gather, backward_group, all);
  push(out_.backward, CollectiveKind::reduce_scatter, backward_group, all);
  out_.forward.ring_steps = out_.backward.ring_steps = ranks - 1;
  // Counted in Transformer Engine 2.8, pytorch/attention/dot_product_attention/context_parallel.py,
  // AttnFuncWithCPAndKVP2P, in 16 bits. Of the steps after the first, half attend with the second half of the
  // queries and half to the first half of the keys: what is halved is copied, and in the mean a step touches
  // 0.75 of either. Outputs are scaled, later ones added; gradients are added, at first copied; keys and
  // values are joined, and copied before their gradients.
  constexpr double kCopy = 4.0, kAdd = 6.0, kTouched = 0.75, kHalved = 0.5 * 0.5;
  const double later = ranks - 1;
  const double summed = kCopy + later * kTouched * kAdd;  // outputs, and each kind of gradients
  const double halved = later * kHalved * kCopy;
  push(out_.forward, MemoryKernel::copy,
       (kCopy + halved) * key_value_elements + halved * query_elements + summed * output_elements);
  push(out_.backward, MemoryKernel::copy,
       (kCopy + summed + halved) * key_value_elements + (summed + halved) * query_elements +
           2 * halved * output_elements);  // outputs and their gradients
}

// Counted in torch/distributed/tensor/experimental/_attention.py, whose causal steps are equally long.
void BlockBuilder::gathered_exchange(double key_value_elements, double query_elements) {
  const double ranks = sharding_.context;
  const Group first_step{RankGroup::context, sharding_.context, sharding_.tensor, 1 / ranks};
  const Group other_steps{first_step.kind, first_step.ranks, first_step.stride, (ranks - 1) / ranks};
  const double all = element_ * key_value_elements * ranks;
  push(out_.forward, CollectiveKind::all_gather, first_step, all);
  push(out_.backward, CollectiveKind::all_gather, first_step, all);
  // Gradients of keys and values pass on in fp32 after each step, the last one too: a reduce-scatter of these
  // bytes would move them ranks - 1 times.
  const double gradients = 4.0 * key_value_elements * ranks;
  push(out_.backward, CollectiveKind::reduce_scatter, other_steps, gradients * ranks / (ranks - 1));
  // To fp32 (6), difference (12), times a sigmoid (8), subtraction (12) for each element of a step after the
  // first; half of the steps touch half of the queries and then copy all (8).
  constexpr double kMerge = 38.0 * 0.75 + 8.0 / 2;
  constexpr double kCast = 6.0;  // of the first output to fp32, and of the merged one back
  const double merged = (kMerge * (ranks - 1) + 2 * kCast) * query_elements;
  push(out_.forward, MemoryKernel::copy, merged);
  // Each step adds gradients in 16 bits to fp32 sums (10), copies those of keys and values together (8), and
  // where it touched half of them copies all (8).
  constexpr double kQueryGradient = 10.0 * 0.75 + 8.0 / 2, kKeyGradient = 10.0 * 0.75 + 8.0 + 8.0 / 2;
  push(out_.backward, MemoryKernel::copy,
       ranks * (kQueryGradient * query_elements + kKeyGradient * key_value_elements));
}

// Scaled by rows, tensor ranks gather in 16 bits (parallelize_llama of torchtitan/models/llama3/infra/
// parallelize.py, 018740b7: torchao has no such gather).
double BlockBuilder::gathered_element(TensorInput input) const {
  const DataType type = sharding_.type;
  const Fp8Recipe recipe = sharding_.stack.fp8_recipe;
  const bool wide = input != TensorInput::of_matrix || outside_fp8(type) == type;
  return wide || recipe == Fp8Recipe::rowwise ? element_ : narrow_bytes(type, recipe);
}

void BlockBuilder::reorder(PassOperators& pass, Exchange exchange, double bytes) const {
  const SequenceCopies copies = sharding_.stack.sequence_copies;
  const bool in_order =
      exchange == Exchange::gathered && sharding_.micro_batch == 1 && copies == SequenceCopies::of_several;
  if (copies == SequenceCopies::none || in_order || sharding_.tensor == 1) return;
  push(pass, MemoryKernel::copy, 2 * bytes);
}

// With sequence parallelism Megatron-LM gathers the input a second time in the backward pass, under the GEMM
// of the input gradient (LinearWithGradAccumulationAndAsyncCommunication; Transformer Engine,
// module/linear.py, waits for it before the weights' gradient).
void BlockBuilder::enter_tensor_region(double elements, TensorInput input) {
  const double bytes = elements * element_, gathered = elements * gathered_element(input);
  const bool shared = sharding_.sequence_parallel, of_tokens = shared && input != TensorInput::of_experts;
  if (shared) push(out_.forward, CollectiveKind::all_gather, tensor_group(), gathered);
  if (of_tokens) reorder(out_.forward, Exchange::gathered, gathered);
  const CollectiveKind gradient = shared ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
  if (input != TensorInput::of_experts && sharding_.stack.async_tensor_gradients) {
    async_gradient_ = AsyncGradient{gradient, bytes, shared ? gathered : 0.0};
    return;
  }
  push(out_.backward, gradient, tensor_group(), bytes);
  if (of_tokens) reorder(out_.backward, Exchange::scattered, bytes);  // a backward runs from its end
}

void BlockBuilder::leave_tensor_region(double elements, TensorInput gradient) {
  const double bytes = elements * element_;
  if (!sharding_.sequence_parallel) {
    push(out_.forward, CollectiveKind::all_reduce, tensor_group(), bytes);
    return;
  }
  const double gathered = elements * gathered_element(gradient);
  const bool of_tokens = gradient != TensorInput::of_experts;
  if (of_tokens) {
    reorder(out_.forward, Exchange::scattered, bytes);
    reorder(out_.backward, Exchange::gathered, gathered);
  }
  push(out_.forward, CollectiveKind::reduce_scatter, tensor_group(), bytes);
  push(out_.backward, CollectiveKind::all_gather, tensor_group(), gathered);
}

void BlockBuilder::gather_outputs(double elements) {
  if (sharding_.tensor == 1) return;
  const double own = elements * element_, all = own * sharding_.tensor;
  push(out_.forward, CollectiveKind::all_gather, tensor_group(), all);
  push(out_.forward, MemoryKernel::copy, 2 * all);
  push(out_.backward, MemoryKernel::copy, 2 * own);
}

BlockBuilder::Group BlockBuilder::expert_group() const {
  // Neighbours stand side by side where expert ways go over the tensor ranks first.
  return {RankGroup::expert, sharding_.expert, splits_experts(sharding_) ? sharding_.tensor : 1};
}

void BlockBuilder::expert_exchange(double elements, const ExpertChoice& choice) {
  const Group group = expert_group();
  const double nodes = std::ceil(static_cast<double>(group.ranks) * group.stride / sharding_.gpus_per_node);
  if (sharding_.stack.experts.deduplicated) {
    // Nodes, or in one node GPUs, that a token's copies reach, over copies.
    const double places = nodes > 1 ? nodes : group.ranks;
    const double reached = sharding_.stack.experts.in_turn
                               ? places_reached_in_turn(choice, static_cast<std::int64_t>(places))
                               : places_reached(choice, places);
    elements *= reached / static_cast<double>(choice.per_token);
  }
  push(out_.forward, CollectiveKind::all_to_all, group, elements * element_);
  push(out_.backward, CollectiveKind::all_to_all, group, elements * element_);
}

void BlockBuilder::expert_gather(double elements) {
  push(out_.forward, CollectiveKind::all_gather, expert_group(), elements * element_);
  push(out_.backward, CollectiveKind::reduce_scatter, expert_group(), elements * element_);
}

void BlockBuilder::expert_sums(double elements, double bytes) {
  push(out_.forward, CollectiveKind::reduce_scatter, expert_group(), elements * bytes);
  push(out_.backward, CollectiveKind::all_gather, expert_group(), elements * bytes);
}

void BlockBuilder::begin_experts(std::int64_t count) {
  for (PassOperators* pass : {&out_.forward, &out_.backward})
    pass->experts = {pass->compute.size(), pass->compute.size(), static_cast<int>(count)};
}

void BlockBuilder::end_experts() {
  for (PassOperators* pass : {&out_.forward, &out_.backward}) pass->experts.end = pass->compute.size();
}

std::optional<RecomputeModule> BlockBuilder::enter(std::optional<RecomputeModule> module) {
  const std::size_t compute = out_.forward.compute.size(), calls = out_.forward.communication.size();
  std::optional<RecomputeModule> before;
  if (open_module_) {
    before = open_module_->module;
    open_module_->end = compute;
    open_module_->end_call = calls;
    out_.modules.push_back(*open_module_);
  }
  open_module_.reset();
  if (module) open_module_ = ModuleSection{*module, compute, compute, calls, calls};
  return before;
}

void BlockBuilder::accumulate_gradients(double parameters) {
  // The weight-gradient GEMM adds in place: the sum is read and written once more. A gradient kept in the
  // type of the weights, and any of a program without that GEMM, is added by a kernel of its own, which also
  // reads the new one (FIDELITY B.9.3: 8 B, A.6: 6 and 10 B).
  const SoftwareStack& stack = sharding_.stack;
  const double sum = gradient_kept(stack, sharding_.type);
  const bool own_kernel = stack.separate_accumulation || sum < 4.0;
  const double bytes = stack.accumulation.value_or(2.0 * sum + (own_kernel ? element_ : 0.0));
  weight_gradient(MemoryKernel::copy, parameters * bytes);
}

void BlockBuilder::repeat_in_backward(std::size_t first) {
  const std::vector<Operator>& forward = out_.forward.compute;
  // A backward runs from its end.
  out_.backward.compute.insert(out_.backward.compute.end(), forward.rbegin(),
                               forward.rend() - static_cast<std::ptrdiff_t>(first));
}

void BlockBuilder::stop_repeating_before_last_matrix() {
  const std::vector<Operator>& compute = out_.forward.compute;
  const auto last = std::find_if(compute.rbegin(), compute.rend(),
                                 [](const Operator& op) { return std::holds_alternative<Gemm>(op); });
  if (last != compute.rend()) out_.unrepeated = static_cast<std::size_t>(last - compute.rbegin()) + 1;
}

void BlockBuilder::reduce_statistic(double bytes) {
  push(out_.forward, CollectiveKind::all_reduce, tensor_group(), bytes);
}

}  // namespace orrery
