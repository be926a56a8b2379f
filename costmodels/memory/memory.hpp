// Bytes one GPU of a stage holds (SEMANTICS 8).
#pragma once

#include <algorithm>
#include <vector>

#include "costmodels/operators/local_layer.hpp"
#include "costmodels/stacks/software_stack.hpp"
#include "platforms/units.hpp"
#include "strategies/model.hpp"
#include "strategies/schedule.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// Three figures, in the order of what counts them: tensors (torch.cuda.max_memory_allocated), what PyTorch
// holds of the card for them (max_memory_reserved), and all that nvidia-smi sees.
struct StageMemory {
  Bytes weights = {};
  Bytes gradients = {};
  Bytes optimizer = {};      // fp32 master weights and Adam states, sharded by use-distributed-optimizer
  Bytes activations = {};    // at the peak: sum over chunks of per-microbatch bytes x microbatches alive
  Bytes workspace = {};      // gradients of a layer in its backward, as far as no loss needs more
  Bytes logits = {};         // last stage
  Bytes communication = {};  // buffers of collectives and transfers
  Bytes cached = {};         // freed blocks that the allocator cannot use again: SoftwareStack::cached_share
  Bytes split = {};          // what blocks as large as the logits' need beside them where memory is short
  Bytes communicators = {};  // of NCCL, where the cluster is known (communicator_bytes)
  Bytes context = {};  // CUDA context, its kernels, workspaces of libraries: SoftwareStack::memory_reserve
  [[nodiscard]] Bytes allocated() const {
    return weights + gradients + optimizer + activations + workspace + logits + communication;
  }
  [[nodiscard]] Bytes reserved() const { return allocated() + cached; }
  [[nodiscard]] Bytes total() const { return reserved() + communicators + context; }  // on the card
  // What must find room: cached blocks are given back when memory runs out, what is split is not. And what a
  // card must have usable, for both.
  [[nodiscard]] Bytes must_fit() const { return total() - cached + split; }
  [[nodiscard]] Bytes needed() const { return std::max(total(), must_fit()); }
  // In the memory of the node, for each GPU, and in no sum of the above: what is offloaded of the optimizer.
  Bytes host = {};
  bool operator==(const StageMemory&) const = default;
};

// The one of its three figures.
Bytes counted(const StageMemory&, MemoryFigure);

// Parameters of a pipeline rank on one GPU (all its chunks, its embedding or head, divided by its tensor
// ways). With tied embeddings and a pipeline the last stage holds a copy of the word table, as Megatron-LM
// does.
double stage_parameters(const ModelSpec&, const ParallelStrategy&, int stage);

// Bytes of what a stage keeps in 8 or 4 bits of its layers' weights beside them, in rows and in columns for
// the backward, where the stack casts them once an iteration (Transformer Engine, module/linear.py,
// _fp8_workspaces; without Megatron-LM's --fp8-param-gather). Weights that are gathered are cast each time.
Bytes cast_weights(const ModelSpec&, const ParallelStrategy&, int stage, const SoftwareStack&);

// The same of one of its chunks; embedding and head count with the chunk that holds them, the head's where
// one rank holds both.
LocalParameters part_parameters(const ModelSpec&, const ParallelStrategy&, int stage, int chunk);

// Activation bytes one microbatch leaves on one GPU for one part, from its forward to its backward:
// Korthikanti et al. 2022 (arXiv 2205.05198, equations 1, 2 and 4, table 2), tensor by tensor, so that
// grouped queries, gated MLPs, flash attention, experts and models without dropout are counted too. Logits
// are not in it.
Bytes activation_bytes(const ModelSpec&, const ParallelStrategy&, int stage, int chunk,
                       const SoftwareStack& = {});

// Of those, and what the backward for the input adds: bytes held until the weight gradient where the schedule
// splits it off. Inputs and output gradients of the matrices, 32 sbh of a GPT layer in 16 bits (arXiv
// 2401.10241, table 1), whatever is recomputed. Nothing is freed within a pass, and tensors that a kernel
// could share are counted once each. The gradient of the logits is not in it.
Bytes weight_gradient_bytes(const ModelSpec&, const ParallelStrategy&, int stage, int chunk,
                            const SoftwareStack& = {});

// Parameters of the stage whose optimizer state this GPU keeps: all of them, or with
// use-distributed-optimizer its share: of those that all copies of the stage have alike one of so many, times
// the optimizer's instances; of the experts' one of those that have them. What optimizer_operators works on.
double optimizer_shard_parameters(const ModelSpec&, const ParallelStrategy&, int stage);

// Whether weights are sharded too, not gradients and optimizer alone.
bool shards_weights(const ParallelStrategy&, const SoftwareStack&);
// Bytes of the buckets of so many parameters' gradients, where the stack copies them; none without replicas,
// nor where anything is sharded over them.
Bytes gradient_buckets(const ParallelStrategy&, double parameters, const SoftwareStack&);
// Sharded weights are gathered in every pass; under a pipeline once a step (torchtitan turns
// reshard_after_forward off there).
bool gathered_in_passes(const ParallelStrategy&);
// Whether passes exchange weights or gradients of their layers: so, or as replicas of whole weights may.
bool exchanges_in_passes(const ParallelStrategy&);
// Whether every backward reduces the gradients of its layers, and nothing of them is left to the step.
bool reduced_in_passes(const ParallelStrategy&, const SoftwareStack&);

// Memory of one GPU of `stage`; `alive[c]` microbatches of chunk c are alive at the peak. What recomputation
// brings back for the microbatch in its backward counts as activations, as far as it is more than the logits
// in their loss: these are gone before the first layer is recomputed, and before gradients of its tensors are
// its workspace. With fully sharded weights two layers are whole at a time, the one at work and the next,
// beside the root unit, and the gradients of one; in a pipeline all are.
StageMemory stage_memory(const ModelSpec&, const ParallelStrategy&, int stage, const std::vector<int>& alive,
                         const SoftwareStack& = {});
// The same where microbatches wait for their weight gradients.
StageMemory stage_memory(const ModelSpec&, const ParallelStrategy&, int stage, const AliveState&,
                         const SoftwareStack& = {});
// In the state that takes the most of the card; `split` is such that what must fit is the most of any state.
StageMemory peak_memory(const ModelSpec&, const ParallelStrategy&, int stage, const std::vector<AliveState>&,
                        const SoftwareStack& = {});

}  // namespace orrery
