// What the parts of a layer are built from, for the files that write its operators down.
#pragma once

#include "costmodels/layers/block_builder.hpp"
#include "costmodels/layers/layer_operators.hpp"
#include "costmodels/operators/local_layer.hpp"

namespace orrery {

// Bytes of memory-bound kernels for each element of 16 bits, forward and backward (FIDELITY B.9.3; the sums
// of reads and writes are spelled out where they are not two or three passes).
struct Traffic {
  double forward = 0.0;
  double backward = 0.0;
};
inline constexpr Traffic kNorm{4.0, 8.0};
// Backward sums the gradient of the output over the tokens.
inline constexpr Traffic kBias{0.0, 2.0};
// cap x tanh(x / cap) by three kernels, of which the middle one keeps its output: backward that one reads it
// beside the gradient (transformers, modeling_gemma2.py).
inline constexpr Traffic kCap{12.0, 14.0};

inline double count(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

struct Layer {
  const LayerShape& shape;
  const Sharding& sharding;
  LocalLayer local;
  [[nodiscard]] double hidden_elements() const { return count(local.tokens, shape.hidden); }
  [[nodiscard]] double owned_elements() const { return count(local.owned_tokens, shape.hidden); }
};

inline bool drops_out(const Layer& layer) {
  return drops_out(layer.shape, layer.sharding.stack);
}

inline void add(BlockBuilder& block, MemoryKernel kernel, double elements, Traffic traffic) {
  block.elementwise(kernel, elements, traffic.forward, traffic.backward);
}

// Each adds one part of a layer, without the norm before it and the residual behind it. Attention and state
// space enter the tensor region and the caller leaves it; around the MLP the caller does both, experts do so
// themselves.
void add_attention(BlockBuilder&, const Layer&, bool causal);
void add_state_space(BlockBuilder&, const Layer&);

struct MlpSize {
  std::int64_t up_width, ffn;
};
void add_mlp(BlockBuilder&, const Layer&, const MlpSize&);
void add_experts(BlockBuilder&, const Layer&);

}  // namespace orrery
