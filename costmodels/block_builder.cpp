#include "costmodels/block_builder.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {

BlockBuilder::BlockBuilder(const Sharding& sharding)
    : sharding_(sharding), element_(stored_bytes(sharding.type)) {}

void BlockBuilder::push(PassOperators& pass, MemoryKernel kernel, double bytes) const {
  if (bytes <= 0) return;
  const SoftwareStack& stack = sharding_.stack;
  const Fusion fusion =
      kernel == MemoryKernel::norm ? stack.norm.value_or(stack.elementwise) : stack.elementwise;
  const auto direction = &pass == &out_.backward ? Direction::backward : Direction::forward;
  pass.compute.push_back(MemoryBound{kernel, Bytes(bytes), fusion, direction});
}

void BlockBuilder::push(PassOperators& pass, CollectiveKind kind, Group group, double bytes) const {
  if (group.ranks == 1 || bytes <= 0) return;
  const int in_node = std::max(1, sharding_.gpus_per_node / group.stride);
  pass.communication.push_back(Collective{
      .kind = kind,
      .bytes = Bytes(bytes),
      .ranks = group.ranks,
      .ranks_per_node = std::min(group.ranks, in_node),
      .gpu_link = sharding_.gpu_link,
      .network = sharding_.network,
      .stated = group.kind == RankGroup::expert ? sharding_.stack.experts.dispatch : std::nullopt});
  pass.places.push_back({group.kind, pass.compute.size(), group.beside});
}

void BlockBuilder::linear(const Gemm& forward, InputCast cast, InputCast gradient_cast) {
  const Gemm& f = forward;
  const double batch = static_cast<double>(f.batch);
  // An fp8 cast reads 2 bytes and writes the value and its transpose (Transformer Engine's cast_transpose).
  // NVFP4 is scaled by the largest element of the whole tensor, so that each is read twice, and by no kernel
  // before it (arXiv 2509.25149, section 2 and appendix B).
  const bool fp4 = f.type == DataType::fp4;
  const double cast_bytes = (fp4 ? 4.0 : 2.0) + 2 * size_of(f.type).value();
  if (fp4 || f.type == DataType::fp8) {
    if (fp4 || cast == InputCast::separate) {
      push(out_.forward, MemoryKernel::copy, cast_bytes * batch * static_cast<double>(f.m * f.k));
    }
    if (gradient_cast == InputCast::separate) {
      push(out_.backward, MemoryKernel::copy, cast_bytes * batch * static_cast<double>(f.m * f.n));
    }
  }
  out_.forward.compute.push_back(f);
  const Gemm input{.m = f.m, .n = f.k, .k = f.n, .batch = f.batch, .type = f.type};
  const Gemm weights{.m = f.k, .n = f.n, .k = f.m, .batch = f.batch, .type = f.type};
  // A backward runs from its end: first the gradient that is reduced under the other one.
  const bool input_first = async_gradient_.has_value();
  if (!input_first) out_.backward.compute.push_back(input);
  out_.weight_gradient.push_back(out_.backward.compute.size());
  out_.backward.compute.push_back(weights);
  if (!input_first) return;
  push(out_.backward, async_gradient_->kind, tensor_group(1.0), async_gradient_->bytes);
  out_.backward.compute.push_back(input);
  async_gradient_.reset();
}

void BlockBuilder::product(const Gemm& forward, Recomputed recomputed) {
  const Gemm& f = forward;
  out_.forward.compute.push_back(f);
  out_.backward.compute.push_back(Gemm{.m = f.m, .n = f.k, .k = f.n, .batch = f.batch, .type = f.type});
  out_.backward.compute.push_back(Gemm{.m = f.k, .n = f.n, .k = f.m, .batch = f.batch, .type = f.type});
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
  out_.attention_core.push_back(forward);
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
      return ring_exchange(key_value_elements, query_elements);
    case ContextExchange::gathered:
      return gathered_exchange(key_value_elements, query_elements);
  }
}

void BlockBuilder::ring_exchange(double key_value_elements, double query_elements) {
  const double ranks = sharding_.context;
  // Each step of the ring computes on the keys that are there while the next ones arrive; after the last step
  // nothing is on its way. So all but one step hide the exchange: exposed are
  // max(0, exchange - compute) x (ranks - 1) steps (FIDELITY B.9.4).
  const Group group{RankGroup::context, sharding_.context, sharding_.tensor, (ranks - 1) / ranks};
  const Group backward_group{group.kind, group.ranks, group.stride, group.beside / 2};
  // K and V go round the ring, which moves what an all-gather moves; backward they go round again and their
  // gradients, which travel with them, end where they belong, as a reduce-scatter does: each beside half of
  // the attention's backward.
  const double all = element_ * key_value_elements * ranks;
  push(out_.forward, CollectiveKind::all_gather, group, all);
  push(out_.backward, CollectiveKind::all_gather, backward_group, all);
  push(out_.backward, CollectiveKind::reduce_scatter, backward_group, all);
  // Each ring step merges its partial output into the running one: 10 B per element (FIDELITY B.9.4).
  const double merged = 10.0 * (ranks - 1) * query_elements;
  push(out_.forward, MemoryKernel::copy, merged);
  out_.attention_core.push_back(MemoryBound{.kernel = MemoryKernel::copy, .bytes = Bytes(merged)});
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
  out_.attention_core.push_back(MemoryBound{.kernel = MemoryKernel::copy, .bytes = Bytes(merged)});
  // Each step adds gradients in 16 bits to fp32 sums (10), copies those of keys and values together (8), and
  // where it touched half of them copies all (8).
  constexpr double kQueryGradient = 10.0 * 0.75 + 8.0 / 2, kKeyGradient = 10.0 * 0.75 + 8.0 + 8.0 / 2;
  push(out_.backward, MemoryKernel::copy,
       ranks * (kQueryGradient * query_elements + kKeyGradient * key_value_elements));
}

// With sequence parallelism Megatron-LM gathers the input a second time in the backward pass, under the GEMM
// of the input gradient (LinearWithGradAccumulationAndAsyncCommunication): hidden, so not listed.
void BlockBuilder::enter_tensor_region(double elements, TensorInput input) {
  const double bytes = elements * element_;
  const bool shared = sharding_.sequence_parallel;
  if (shared) push(out_.forward, CollectiveKind::all_gather, tensor_group(), bytes);
  const CollectiveKind gradient = shared ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
  if (input == TensorInput::of_matrix && sharding_.stack.async_tensor_gradients) {
    async_gradient_ = AsyncGradient{gradient, bytes};
  } else {
    push(out_.backward, gradient, tensor_group(), bytes);
  }
}

void BlockBuilder::leave_tensor_region(double elements) {
  const double bytes = elements * element_;
  if (sharding_.sequence_parallel) {
    push(out_.forward, CollectiveKind::reduce_scatter, tensor_group(), bytes);
    push(out_.backward, CollectiveKind::all_gather, tensor_group(), bytes);
  } else {
    push(out_.forward, CollectiveKind::all_reduce, tensor_group(), bytes);
  }
}

void BlockBuilder::expert_exchange(double elements, double copies) {
  const Group group{RankGroup::expert, sharding_.expert, sharding_.tensor * sharding_.context};
  const double nodes = std::ceil(static_cast<double>(group.ranks) * group.stride / sharding_.gpus_per_node);
  if (sharding_.stack.experts.deduplicated) {
    // Nodes, or in one node GPUs, that a token's copies reach, were experts drawn at random, over copies.
    const double places = nodes > 1 ? nodes : group.ranks;
    elements *= places * (1 - std::pow(1 - 1 / places, copies)) / copies;
  }
  push(out_.forward, CollectiveKind::all_to_all, group, elements * element_);
  push(out_.backward, CollectiveKind::all_to_all, group, elements * element_);
}

void BlockBuilder::begin_experts(std::int64_t count) {
  for (PassOperators* pass : {&out_.forward, &out_.backward})
    pass->experts = {pass->compute.size(), pass->compute.size(), static_cast<int>(count)};
}

void BlockBuilder::end_experts() {
  for (PassOperators* pass : {&out_.forward, &out_.backward}) pass->experts.end = pass->compute.size();
}

void BlockBuilder::accumulate_gradients(double parameters) {
  // The weight-gradient GEMM adds in place: the sum is read and written once more. A gradient kept in the
  // type of the weights, and any of a program without that GEMM, is added by a kernel of its own, which also
  // reads the new one (FIDELITY B.9.3: 8 B, A.6: 6 and 10 B).
  const SoftwareStack& stack = sharding_.stack;
  const double sum = stack.gradient.value_or(gradient_bytes(sharding_.type));
  const bool own_kernel = stack.separate_accumulation || sum < 4.0;
  const double bytes = stack.accumulation.value_or(2.0 * sum + (own_kernel ? element_ : 0.0));
  weight_gradient(MemoryKernel::copy, parameters * bytes);
}

void BlockBuilder::reduce_statistic(double bytes) {
  push(out_.forward, CollectiveKind::all_reduce, tensor_group(), bytes);
}

}  // namespace orrery
