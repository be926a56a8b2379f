// Layers whose operators tests count, and the counting.
#pragma once

#include "costmodels/layers/layer_operators.hpp"

namespace orrery::test {

// GPT-3 175B: 12288 wide, 96 heads of 128.
inline LayerShape gpt3_layer() {
  return {.hidden = 12288, .heads = 96, .kv_heads = 96, .head_dim = 128, .ffn = 4 * 12288};
}

inline LayerShape llama70b_layer() {
  return {.hidden = 8192,
          .heads = 64,
          .kv_heads = 8,
          .head_dim = 128,
          .ffn = 28672,
          .mlp = MlpKind::gated,
          .norm = NormKind::rms_norm,
          .linear_bias = false,
          .rotary = true};
}

inline LayerShape mixtral_layer() {
  LayerShape shape = llama70b_layer();
  shape.hidden = 4096;
  shape.heads = 32;
  shape.ffn = 14336;
  shape.experts = 8;
  shape.experts_per_token = 2;
  return shape;
}

template <class Kind>
std::vector<Kind> all_of(const std::vector<Operator>& operators) {
  std::vector<Kind> found;
  for (const Operator& op : operators) {
    if (const Kind* kind = std::get_if<Kind>(&op)) found.push_back(*kind);
  }
  return found;
}

inline double gemm_flops(const PassOperators& pass) {
  double sum = 0.0;
  for (const Gemm& gemm : all_of<Gemm>(pass.compute)) {
    sum += 2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) * static_cast<double>(gemm.k) *
           static_cast<double>(gemm.batch);
  }
  return sum;
}

inline double bytes_of(const PassOperators& pass, MemoryKernel kernel) {
  double sum = 0.0;
  for (const MemoryBound& op : all_of<MemoryBound>(pass.compute)) {
    if (op.kernel == kernel) sum += op.bytes.value();
  }
  return sum;
}

inline double copied_bytes(const PassOperators& pass) {
  return bytes_of(pass, MemoryKernel::copy);
}

inline int times(const std::vector<Operator>& communication, CollectiveKind kind) {
  int found = 0;
  for (const Collective& op : all_of<Collective>(communication)) found += op.kind == kind ? 1 : 0;
  return found;
}

inline Sharding plain(std::int64_t micro_batch, std::int64_t sequence) {
  Sharding sharding;
  sharding.micro_batch = micro_batch;
  sharding.sequence = sequence;
  return sharding;
}

// What a ring makes each rank send (Megatron-LM's sequence parallelism: a reduce-scatter and an all-gather
// move what one all-reduce moves).
inline double ring_bytes(const std::vector<Operator>& communication) {
  double sum = 0.0;
  for (const Collective& op : all_of<Collective>(communication)) {
    const double once = op.bytes.value() * (op.ranks - 1) / op.ranks;
    sum += op.kind == CollectiveKind::all_reduce ? 2 * once : once;
  }
  return sum;
}

}  // namespace orrery::test
