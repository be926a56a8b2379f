#include <algorithm>

#include "costmodels/layers/stage_parts.hpp"
#include "costmodels/memory/memory.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

// Whether a layer of the rank starts from the embedding again (multi-token prediction), of which Megatron-LM
// then keeps a copy there (megatron/core/models/gpt/gpt_model.py, mtp_process).
bool joins_embedding(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  bool joins = false;
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
    for_each_run(model, strategy.part(stage, chunk),
                 [&](const LayerShape& shape, int) { joins |= shape.joins_embedding; });
  }
  return joins;
}

double table(const ModelSpec& model, std::int64_t words, int tensor) {
  return static_cast<double>(padded_rows(words, tensor) * model.hidden);
}
double word_table(const ModelSpec& model, int tensor) {
  return table(model, model.vocabulary, tensor);
}

// Embedding of the first stage and head of the last one.
double boundary_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  const int tensor = strategy.tensor(stage);
  double sum = stage == 0 ? static_cast<double>(model.input_parameters) : 0.0;
  if (holds_embedding(model, stage)) {
    sum += word_table(model, tensor) + static_cast<double>(model.learned_positions * model.hidden);
  }
  if (holds_embedding(model, stage) && model.embedding_norm) {
    sum += static_cast<double>(norm_parameters(model.final_norm, model.hidden));
  }
  if (holds_head(model, strategy, stage)) {
    sum += static_cast<double>(norm_parameters(model.final_norm, model.hidden));
    const bool shares_table = model.tied_embeddings && holds_embedding(model, stage);
    if (!shares_table) sum += table(model, model.head_width(), tensor);
    if (!model.tied_embeddings && !holds_embedding(model, stage) && joins_embedding(model, strategy, stage))
      sum += word_table(model, tensor);
    if (model.head_bias) sum += static_cast<double>(padded_rows(model.head_width(), tensor));
  }
  return sum;
}

LocalParameters chunk_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                                 int chunk) {
  const LayerSplit split = layer_split(model, strategy, stage);
  LocalParameters sum;
  for_each_run(model, strategy.part(stage, chunk), [&](const LayerShape& shape, int layers) {
    const LocalParameters one = local_parameters(shape, local_layer(shape, split));
    sum.dense += layers * one.dense;
    sum.expert += layers * one.expert;
  });
  return sum;
}

}  // namespace

LocalParameters stage_split_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  LocalParameters sum{.dense = boundary_parameters(model, strategy, stage), .expert = 0.0};
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
    const LocalParameters one = chunk_parameters(model, strategy, stage, chunk);
    sum.dense += one.dense;
    sum.expert += one.expert;
  }
  return sum;
}

double largest_layer_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  const LayerSplit split = layer_split(model, strategy, stage);
  double most = 0.0;
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
    for_each_run(model, strategy.part(stage, chunk), [&](const LayerShape& shape, int) {
      const LocalParameters one = local_parameters(shape, local_layer(shape, split));
      most = std::max(most, one.dense + one.expert);
    });
  }
  return most;
}

double root_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage, RootUnit unit) {
  switch (unit) {
    case RootUnit::embedding_and_head:
      return boundary_parameters(model, strategy, stage);
    case RootUnit::head:
      return holds_head(model, strategy, stage) ? word_table(model, strategy.tensor(stage)) : 0.0;
    case RootUnit::none:
      return 0.0;
    case RootUnit::all: {
      const LocalParameters all = stage_split_parameters(model, strategy, stage);
      return all.dense + all.expert;
    }
  }
  ORRERY_ENSURE(false);
}

double optimizer_shard(const ParallelStrategy& strategy, const LocalParameters& parameters) {
  if (!strategy.distributed_optimizer) return parameters.dense + parameters.expert;
  const double copies = strategy.copies_of_instance();
  const double expert_copies = std::max(1.0, copies / strategy.copies_sharing_experts());
  return parameters.dense / copies + parameters.expert / expert_copies;
}

Bytes cast_weights(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                   const SoftwareStack& stack) {
  const DataType type = strategy.type;
  if (!stack.casts_weights_once || !is_cast_from_16_bits(type) || strategy.fully_sharded) return Bytes(0);
  const LayerSplit split = layer_split(model, strategy, stage);
  double parameters = 0;
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
    for_each_run(model, strategy.part(stage, chunk), [&](const LayerShape& shape, int layers) {
      const LocalParameters one = local_parameters(shape, local_layer(shape, split));
      if (!shape.sixteen_bit) parameters += layers * (one.dense + one.expert);
    });
  }
  return Bytes(2 * narrow_bytes(type, stack.fp8_recipe) * parameters);
}

double stage_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  const LocalParameters parameters = stage_split_parameters(model, strategy, stage);
  return parameters.dense + parameters.expert;
}

LocalParameters part_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage,
                                int chunk) {
  LocalParameters sum = chunk_parameters(model, strategy, stage, chunk);
  // What lies before the layers belongs to the first part of the stage, what comes after them to its last.
  const int keeper = holds_head(model, strategy, stage) ? strategy.chunks - 1 : 0;
  if (chunk == keeper) sum.dense += boundary_parameters(model, strategy, stage);
  return sum;
}

double optimizer_shard_parameters(const ModelSpec& model, const ParallelStrategy& strategy, int stage) {
  return optimizer_shard(strategy, stage_split_parameters(model, strategy, stage));
}

}  // namespace orrery
