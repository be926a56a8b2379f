// A pass of a block in the order it runs: what is computed, and the collectives between.
#pragma once

#include <optional>
#include <vector>

#include "costmodels/layers/block_cost.hpp"
#include "costmodels/layers/layer_operators.hpp"

namespace orrery {

// Predicted times of the operators of a pass, each list in the order of the operators.
struct PassTimes {
  std::vector<Seconds> compute;
  std::vector<Seconds> communication;
};

struct Work {
  Seconds time;
  Flops flops;
  Work& operator+=(const Work& other);
  friend Work operator*(Work work, double factor) { return {work.time * factor, work.flops * factor}; }
  bool operator==(const Work&) const = default;
};

// A collective over a group of the stage, and its predicted time.
struct PricedCall {
  RankGroup group = RankGroup::tensor;
  Collective collective;
  Seconds time;
  bool operator==(const PricedCall&) const = default;
};

// `compute`, then a collective, beside which `beside` is computed; both must be over before the next piece.
struct PassPiece {
  Work compute;
  Work beside;
  std::optional<PricedCall> call;
  Seconds slowdown;            // of what is computed beside the collective: added to `compute`
  bool has_attention = false;  // some of its compute is the attention core's
  bool operator==(const PassPiece&) const = default;
};

struct BlockPieces {
  std::vector<PassPiece> forward;
  std::vector<PassPiece> backward;
  std::vector<PassPiece> input_gradient;  // the backward of schedules that run weight gradients apart
  std::vector<PassPiece> repeated;        // of the forward, by full recomputation
  // Of the forward, what selective recomputation of each module repeats: of the attention core the work,
  // right before its backward; of the others pieces, before the layer's.
  Work attention_core;
  OfModules<std::vector<PassPiece>> modules;
};

struct Pass {
  PassOperators operators;
  PassTimes times;
};
// Of a block's forward what recomputing a module repeats; experts as a whole with all that belongs to them.
Pass module_pass(const BlockOperators&, const PassTimes& forward, RecomputeModule);
// What full recomputation repeats of it.
Pass repeated_pass(const BlockOperators&, const PassTimes& forward);
// The pass without some of its compute operators.
Pass without(const Pass&, const std::vector<std::size_t>& compute);

// Sums; communication counts as far as nothing is computed beside it.
PassCost cost_of(const PassOperators&, const PassTimes&);

// A backward runs from the end of its operators to their start.
enum class PassOrder { forward, backward };
std::vector<PassPiece> pieces_of(const PassOperators&, const PassTimes&, PassOrder);

}  // namespace orrery
