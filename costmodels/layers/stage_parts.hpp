// What memory.cpp, stage_parameters.cpp and part_activations.cpp share: a pipeline rank and its parts.
#pragma once

#include "costmodels/operators/local_layer.hpp"
#include "costmodels/stacks/software_stack.hpp"
#include "strategies/model.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// Calls visit(shape, layers) for each stretch of equal layers of a range: most models have one or two.
template <class Visit>
void for_each_run(const ModelSpec& model, const LayerRange& range, Visit visit) {
  const int end = range.first + range.count;
  for (int layer = range.first; layer < end;) {
    const int first = layer;
    const int shape = model.layers[static_cast<std::size_t>(first)];
    while (layer < end && model.layers[static_cast<std::size_t>(layer)] == shape) ++layer;
    visit(model.shapes[static_cast<std::size_t>(shape)], layer - first);
  }
}

// Of a table of so many words, the rows of one tensor rank where they are padded.
inline std::int64_t padded_rows(std::int64_t words, int tensor) {
  return padded_vocabulary(words, tensor) / tensor;
}
inline bool holds_embedding(const ModelSpec& model, int stage) {
  return model.vocabulary > 0 && stage == 0;
}
inline bool holds_last_part(const ParallelStrategy& strategy, int stage) {
  return stage == strategy.rank_of_part(strategy.part_count() - 1);
}
inline bool holds_head(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  return model.vocabulary > 0 && holds_last_part(strategy, stage);
}

// Of a pipeline rank on one GPU: all its chunks, its embedding and head.
LocalParameters stage_split_parameters(const ModelSpec&, const ParallelStrategy&, int stage);
// Of one layer on this GPU, before fully sharded data parallelism divides it.
double largest_layer_parameters(const ModelSpec&, const ParallelStrategy&, int stage);
// Of what fully sharded weights keep whole beside layers.
double root_parameters(const ModelSpec&, const ParallelStrategy&, int stage, RootUnit);
double optimizer_shard(const ParallelStrategy&, const LocalParameters&);

// Bytes.
struct PartActivations {
  double kept = 0.0;        // by each microbatch from its forward to its backward
  double recomputed = 0.0;  // what the backward of one microbatch brings back at most
  double gradients = 0.0;   // of one layer in its backward
};

PartActivations part_activations(const ModelSpec&, const ParallelStrategy&, int stage, int chunk,
                                 const SoftwareStack&);

// Bytes.
struct LogitBytes {
  double kept = 0.0;  // of the microbatches that wait for their backward or weight gradients
  double peak = 0.0;  // of the one in its loss
};
// Of the rank that holds the head: `alive` microbatches between forward and backward, `for_weights` that wait
// for their weight gradients.
LogitBytes logit_bytes(const ModelSpec&, const ParallelStrategy&, int stage, int alive, int for_weights,
                       const SoftwareStack&);

// Tensors of `SoftwareStack::records_streams` that a pass may leave behind, two of a layer and pass, those of
// the recomputed forward too: as many as have been launched and not yet run, of 1,024 launches that CUDA
// queues (30 of a layer forward, 60 backward: counted in Megatron-LM 8aa4619f, a fusion more or less).
Bytes recorded_bytes(const ModelSpec&, const ParallelStrategy&, int stage, const SoftwareStack&);

// Four gathered tensors of sequence parallelism (or the user buffers in their place), messages of the
// pipeline (two in flight, or those of `receives_ahead`), two K/V blocks of the ring, or all of them where
// they are gathered.
Bytes communication_bytes(const ModelSpec&, const ParallelStrategy&, int stage, const SoftwareStack&);

}  // namespace orrery
