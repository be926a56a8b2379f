// Bytes one GPU of a stage holds (SEMANTICS 8).
#pragma once

#include <vector>

#include "platforms/units.hpp"
#include "strategies/model.hpp"
#include "strategies/schedule.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

struct StageMemory {
  Bytes weights;
  Bytes gradients;
  Bytes optimizer;             // fp32 master weights and Adam states, sharded by use-distributed-optimizer
  Bytes activations;           // at the peak: sum over chunks of per-microbatch bytes x microbatches alive
  Bytes logits;                // last stage
  Bytes communication;         // buffers of collectives and transfers
  Bytes reserve;               // CUDA context, NCCL, allocator slack: a stated rule
  [[nodiscard]] Bytes total() const {
    return weights + gradients + optimizer + activations + logits + communication + reserve;
  }
  bool operator==(const StageMemory&) const = default;
};

// Parameters of a pipeline rank on one GPU (all its chunks, its embedding or head, divided by its tensor ways).
double stage_parameters(const ModelSpec&, const ParallelStrategy&, int stage);

// Activation bytes one microbatch leaves on one GPU for one part, from its forward to its backward.
Bytes activation_bytes(const ModelSpec&, const ParallelStrategy&, int stage, int chunk);

// Memory of one GPU of `stage`; `alive[c]` microbatches of chunk c are alive at the peak.
StageMemory stage_memory(const ModelSpec&, const ParallelStrategy&, int stage, const std::vector<int>& alive);

// What of a card's memory a plan may use: a stated fraction (FIDELITY, part B 7 and 9.8).
Bytes usable_memory(Bytes card);

}  // namespace orrery
