// A GPT of equal layers and plans for it, for tests of memory.
#pragma once

#include "strategies/model.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// A GPT without embedding: what Korthikanti et al. count for a layer is all there is.
inline ModelSpec gpt_layers(int layers) {
  ModelSpec model;
  model.shapes = {{.hidden = 6144, .heads = 48, .kv_heads = 48, .head_dim = 128, .ffn = 4 * 6144}};
  model.layers.assign(static_cast<std::size_t>(layers), 0);
  model.default_sequence = 2048;
  return model;
}

struct GptWays {
  int tensor = 1, pipeline = 1, data = 1, chunks = 1;
};

inline ParallelStrategy spread(const ModelSpec& model, GptWays ways) {
  ParallelStrategy strategy;
  strategy.pipeline = ways.pipeline;
  strategy.data = ways.data;
  strategy.chunks = ways.chunks;
  strategy.micro_batch = 2;
  strategy.sequence = 2048;
  strategy.stages.assign(static_cast<std::size_t>(ways.pipeline),
                         StageDevices{.group = 0, .tensor = ways.tensor});
  const int parts = strategy.part_count();
  for (int part = 0, first = 0; part < parts; ++part) {
    const int count = model.layer_count() / parts + (part < model.layer_count() % parts ? 1 : 0);
    strategy.parts.push_back({.first = first, .count = count});
    first += count;
  }
  return strategy;
}

}  // namespace orrery
