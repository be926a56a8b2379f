#include <algorithm>

#include "costmodels/layers/layer_parts.hpp"

namespace orrery {
namespace {

// Of a Mamba-2 mixer. The convolution streams its channels; backward it is run again and reads gradient and
// input and writes the input's gradient. The gated norm reads the scan and the gate. The states of the chunks
// are in fp32: written, passed on (read and written) and read; backward they are made again, and their
// gradients passed back.
constexpr Traffic kConvolution{4.0, 4.0 + 6.0};
constexpr Traffic kGatedNorm{6.0, 10.0};
constexpr Traffic kStates{16.0, 16.0 + 16.0};

// The scan as state space duality computes it (arXiv 2405.21060, section 6; mamba_ssm ssd_combined.py): in
// each chunk C B' for each group, then for each head its product with the values, the state the chunk leaves,
// and what the state before the chunk gives. Backward makes C B' and the states again.
void add_scan(BlockBuilder& block, const Layer& layer, std::int64_t tokens) {
  const StateSpace& space = layer.local.state_space;
  const DataType type = outside_fp8(layer.sharding.type);
  const std::int64_t length = std::min(space.chunk, tokens);
  const std::int64_t chunks = divide_up(tokens, length);
  const std::int64_t heads = chunks * space.heads;
  block.scan_product(
      {.m = length, .n = length, .k = space.state, .batch = chunks * space.groups, .type = type},
      Recomputed::yes);
  block.scan_product({.m = space.head_dim, .n = space.state, .k = length, .batch = heads, .type = type},
                     Recomputed::yes);
  add(block, MemoryKernel::copy, count(heads * space.head_dim, space.state), kStates);
  block.scan_product({.m = length, .n = space.head_dim, .k = length, .batch = heads, .type = type},
                     Recomputed::no);
  block.scan_product({.m = length, .n = space.head_dim, .k = space.state, .batch = heads, .type = type},
                     Recomputed::no);
}
}  // namespace

// Megatron-LM core/ssm/mamba_mixer.py: tensor ranks split heads and groups; context ranks exchange tokens for
// heads before the convolution and back after the scan (core/ssm/mamba_context_parallel.py).
void add_state_space(BlockBuilder& block, const Layer& layer) {
  const LocalLayer& local = layer.local;
  const LayerShape& shape = layer.shape;
  const StateSpace& space = local.state_space;
  const DataType type = layer.sharding.type;
  block.enter_tensor_region(layer.hidden_elements(), TensorInput::of_matrix);
  block.linear({.m = local.tokens, .n = space.projected(), .k = shape.hidden, .type = type},
               InputCast::after_norm);
  block.context_heads_exchange(count(local.tokens, space.projected()));
  add(block, MemoryKernel::copy, count(local.tokens, space.convolved()), kConvolution);
  add_scan(block, layer, local.tokens);
  add(block, MemoryKernel::norm, count(local.tokens, space.inner()), kGatedNorm);
  block.context_heads_exchange(count(local.tokens, space.inner()));
  block.linear({.m = local.tokens, .n = shape.hidden, .k = space.inner(), .type = type}, InputCast::separate,
               InputCast::own_tokens);
}

}  // namespace orrery
