// A transformer layer, embedding, head and optimizer step as the operators one GPU runs for one microbatch
// (SEMANTICS 7).
#pragma once

#include <vector>

#include "costmodels/operators/local_layer.hpp"
#include "costmodels/operators/node_links.hpp"
#include "costmodels/operators/operator.hpp"
#include "costmodels/stacks/software_stack.hpp"
#include "strategies/model.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// How one stage shards a microbatch. Ranks are numbered tp-cp-ep-dp-pp, tensor fastest, and fill the nodes in
// order.
struct Sharding {
  int tensor = 1;
  int context = 1;
  int expert = 1;
  std::optional<int> expert_tensor = {};  // tensor ways of experts: 1, or absent: `tensor`
  std::int64_t micro_batch = 1;           // sequences
  std::int64_t sequence = 0;              // tokens a sequence, before the context split
  bool sequence_parallel = false;
  AttentionKernel attention = AttentionKernel::flash;
  DataType type = DataType::bf16;
  int gpus_per_node = 8;
  NodeLinks gpu_links = {};
  LinkSpec network = {};  // share of one GPU in its node's NICs
  int gpus_per_nic = 1;
  SoftwareStack stack = {};      // whose kernels run
  ExpertRouter router = {};      // of the model
  bool scaled_rotation = false;  // of the model (scales_rotation)
  bool power_limited = false;    // of the GPU (at_power_limit)
  bool lone_experts = false;     // of stack and GPU: LoneGathers
  int sharded = 0;               // copies that share the weights of a layer (FSDP); 0: nothing is sharded
  int instances = 1;             // sets of so many copies (HYBRID_SHARD)
  bool operator==(const Sharding&) const = default;
};

LayerSplit split_of(const Sharding&);
// Whether the tensor ranks of a stage share each expert; else each has experts of its own.
inline bool splits_experts(const Sharding& sharding) {
  return sharding.expert_tensor.value_or(sharding.tensor) == sharding.tensor;
}

// Where a collective stands among the compute operators of its pass.
struct CallPlace {
  RankGroup group = RankGroup::tensor;
  std::size_t after = 0;  // compute operators before it, in the order of the forward
  double beside = 0.0;    // share of the last of those that runs at the same time and hides it
  bool operator==(const CallPlace&) const = default;
};

// Compute operators of a pass, from `first` to before `end`, that the host launches for each of `count`
// experts apart.
struct ExpertSection {
  std::size_t first = 0, end = 0;
  int count = 0;
  bool operator==(const ExpertSection&) const = default;
};

// Forward and backward of one microbatch. `communication` are the collectives over the tensor, context and
// expert group that some of the compute waits for; `compute` is everything else. Both passes list operators
// in the order of the forward; a backward runs from the end to the start of its list. Recomputation repeats
// parts of `forward`: full all of it, selective the sections of its modules. Bytes of memory-bound operators
// are the least their kernel can move; how near to the data-sheet bandwidth that gets is the cost models' to
// say.
struct PassOperators {
  std::vector<Operator> compute;
  std::vector<Operator> communication;
  std::vector<CallPlace> places;  // of each of `communication`
  ExpertSection experts = {};     // empty in a dense layer
  double launched_layers = 0;     // as HostCost counts them: a mixer or an MLP alone is half of one
  double launched_matrices = 0;   // as Hugging Face's models have them, each a module; not of experts
  double ring_steps = 0;          // of the context group, after the first
};
// Compute operators of a forward, from `first` to before `end`, and the collectives among them, that belong
// to a module of selective recomputation.
struct ModuleSection {
  RecomputeModule module = RecomputeModule::core_attn;
  std::size_t first = 0, end = 0;
  std::size_t first_call = 0, end_call = 0;
  bool operator==(const ModuleSection&) const = default;
};
struct BlockOperators {
  PassOperators forward;
  PassOperators backward;
  // Which of backward.compute a schedule that splits the backward runs apart: the weight-gradient matrices,
  // their addition to the running sum, the embedding's gradient. Norms, attention and recomputation stay
  // where they are.
  std::vector<std::size_t> weight_gradient;
  std::vector<ModuleSection> modules;  // of the forward, in its order
  std::size_t unrepeated = 0;  // of forward.compute, the last ones, which full recomputation leaves out
};

BlockOperators layer_operators(const LayerShape&, bool causal, const Sharding&);
// Before the first layer, and after the last one (final norm, logits, loss). Empty for a model without
// vocabulary.
BlockOperators embedding_operators(const ModelSpec&, const Sharding&);
BlockOperators head_operators(const ModelSpec&, const Sharding&);

// What one tensor rank sends to the next part after layer `layer_before` (-1: the embedding), and gets back
// as its gradient: microbatch x sequence / context x hidden elements, divided by the tensor ways of the
// sending stage with sequence parallelism (SEMANTICS 2).
Bytes boundary_message(const ModelSpec&, const ParallelStrategy&, int layer_before);

// One optimizer step over a shard of `parameters` parameters held by one GPU: gradient scaling and clipping
// (fp16), Adam on fp32 states, cast of the weights. The fixed host cost of a step (3-5 ms) is not an
// operator.
std::vector<Operator> optimizer_operators(double parameters, DataType);

}  // namespace orrery
