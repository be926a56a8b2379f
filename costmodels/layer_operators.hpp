// A transformer layer, embedding, head and optimizer step as the operators one GPU runs for one microbatch
// (SEMANTICS 7).
#pragma once

#include <vector>

#include "costmodels/operator.hpp"
#include "strategies/model.hpp"

namespace orrery {

// How one stage shards a microbatch. Tensor and context groups live on GPUs joined as `tensor_group` says.
struct Sharding {
  int tensor = 1;
  int context = 1;
  int expert = 1;
  std::int64_t micro_batch = 1;  // sequences
  std::int64_t sequence = 0;     // tokens a sequence, before the context split
  bool sequence_parallel = false;
  AttentionKernel attention = AttentionKernel::flash;
  DataType type = DataType::bf16;
  int gpus_per_node = 8;
  LinkSpec gpu_link;
  LinkSpec network;  // share of one GPU in its node's NICs
  bool operator==(const Sharding&) const = default;
};

// Forward and backward of one microbatch. `communication` are the exposed collectives over the tensor (and context,
// expert) group; `compute` is everything else. Recomputation repeats parts of `forward`:
// full all of it, selective `attention_core`.
struct PassOperators {
  std::vector<Operator> compute;
  std::vector<Operator> communication;
};
struct BlockOperators {
  PassOperators forward;
  PassOperators backward;
  std::vector<Operator> attention_core;
};

BlockOperators layer_operators(const LayerShape&, bool causal, const Sharding&);
BlockOperators embedding_operators(const ModelSpec&, const Sharding&);  // before the first layer
BlockOperators head_operators(const ModelSpec&, const Sharding&);       // final norm, logits, loss

// One optimizer step over a shard of `parameters` parameters held by one GPU: gradient scaling and clipping, Adam on
// fp32 states, cast of the weights.
std::vector<Operator> optimizer_operators(double parameters, DataType);

}  // namespace orrery
