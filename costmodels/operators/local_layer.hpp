// What one GPU holds of a layer once tensor, context and expert parallelism have split it. Operators and
// memory are both counted from here, so that they can never disagree on a shape.
#pragma once

#include <cstdint>
#include <optional>

#include "costmodels/operators/expert_load.hpp"
#include "platforms/gpu.hpp"
#include "platforms/units.hpp"
#include "strategies/model.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

struct LayerSplit {
  int tensor = 1;
  int context = 1;
  int expert = 1;
  std::optional<int> expert_tensor = {};  // tensor ways of experts: 1, or absent: `tensor`
  std::int64_t micro_batch = 1;           // sequences
  std::int64_t sequence = 0;              // tokens, before the context split
  bool sequence_parallel = false;
  ExpertLoad expert_load = {};  // of the stack's experts (software_stack.hpp)
  bool operator==(const LayerSplit&) const = default;
};

// How `stage` of a strategy splits the layers it holds. A strategy without a sequence takes the model's.
LayerSplit layer_split(const ModelSpec&, const ParallelStrategy&, int stage, const ExpertLoad& = {});

// Counts that do not divide are rounded up: the busiest rank decides.
struct LocalLayer {
  std::int64_t sequence = 0;         // of this layer, before the context split
  std::int64_t query_tokens = 0;     // sequence / context
  std::int64_t attended_tokens = 0;  // keys within reach of a query: the sequence, or its attention window
  std::int64_t tokens = 0;           // micro_batch x query_tokens: rows of the dense GEMMs
  std::int64_t owned_tokens = 0;     // rows of norms and residuals: tokens / tensor with sequence parallelism
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // replicated where there are fewer than tensor ranks
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t query_width = 0;   // heads x head_dim
  std::int64_t key_width = 0;     // of K
  std::int64_t value_width = 0;   // of V
  std::int64_t output_width = 0;  // of the attention output: heads x value_dim
  StateSpace state_space = {};    // heads and groups of this GPU
  std::int64_t joined_width = 0;  // output width of the projection that joins an embedding: hidden / tensor
  std::int64_t ffn = 0;           // input width of the down GEMM
  std::int64_t up_width = 0;      // output width of the up GEMM: twice ffn where gated
  std::int64_t shared_ffn = 0;
  std::int64_t shared_up_width = 0;
  std::int64_t experts = 1;        // on this GPU
  double busiest_load = 1.0;       // tokens of the experts on the busiest GPU over the mean (expert_load.hpp)
  OneHotMatrices one_hot = {};     // of the tokens this GPU routes
  std::int64_t routed_tokens = 0;  // rows one expert of that GPU multiplies; = tokens when dense
  [[nodiscard]] std::int64_t qkv_width() const { return query_width + key_width + value_width; }
};
LocalLayer local_layer(const LayerShape&, const LayerSplit&);

// Of latent attention, what this GPU projects keys and values up to: the rotary part of keys is not in it.
std::int64_t latent_up_width(const LayerShape&, const LocalLayer&);

// Parameters of one layer on one GPU. Norms, the router and the biases of row-parallel matrices are on every
// tensor rank; experts are apart because data parallelism copies them D / EP times only.
struct LocalParameters {
  double dense = 0.0;
  double expert = 0.0;
  bool operator==(const LocalParameters&) const = default;
};
LocalParameters local_parameters(const LayerShape&, const LocalLayer&);

// Bytes of a stored weight or activation. Transformer Engine computes in fp8 and stores in bf16 between
// operators.
double stored_bytes(DataType);
// Type of what stays in 16 bits when the GEMMs of the layers run in fp8 or fp4: attention, router, head.
DataType outside_fp8(DataType);
bool is_cast_from_16_bits(DataType);  // fp8 or fp4

// 16-bit gradients are kept in fp16 for fp16 training, in fp32 otherwise (Megatron-LM forces
// --accumulate-allreduce-grads-in-fp32 for bf16 only).
double gradient_bytes(DataType);

std::int64_t norm_parameters(NormKind,
                             std::int64_t width);  // LayerNorm has a weight and a bias, RMSNorm a weight

// Models with biases everywhere are the GPT-2 and GPT-3 line, which trains with dropout; Llama and later do
// not, gpt-oss with its biases and RMSNorm among them.
inline bool has_dropout(const LayerShape& shape) {
  return shape.linear_bias && shape.norm == NormKind::layer_norm;
}
inline bool has_qkv_bias(const LayerShape& shape) {
  return shape.linear_bias || shape.qkv_bias;
}
inline bool has_projection_bias(const LayerShape& shape) {
  return shape.linear_bias || shape.projection_bias;
}
inline bool has_mlp_bias(const LayerShape& shape) {
  return shape.linear_bias || shape.mlp_bias;
}

constexpr std::int64_t divide_up(std::int64_t value, std::int64_t parts) {
  return (value + parts - 1) / parts;
}

}  // namespace orrery
