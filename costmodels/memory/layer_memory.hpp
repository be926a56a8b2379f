// Bytes one layer keeps of one microbatch on one GPU (SEMANTICS 8).
#pragma once

#include "costmodels/operators/local_layer.hpp"
#include "costmodels/stacks/software_stack.hpp"
#include "strategies/model.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// Bytes that stay of a logit until its backward: its softmax in fp32 (Megatron-LM, fused_cross_entropy.py and
// tensor_parallel/cross_entropy.py, save_for_backward).
inline constexpr double kLogitKept = 4.0;

// Bytes one layer keeps for its backward, by what recomputation can drop.
struct LayerActivations {
  double input = 0.0;  // of the layer, all that full recomputation keeps
  double rest = 0.0;
  double scores = 0.0;  // softmax and dropout of unfused attention
  // Of `rest`, what torchtitan's policies keep (SelectiveRecompute): the attention output, and every second
  // GEMM's or every one's that a gradient or a recomputation reads.
  double outputs = 0.0;
  double gradients = 0.0;  // beside these in its backward, where they are most; not in `all`
  // What selective recomputation of each module drops: the scores, or of `rest`.
  OfModules<double> modules = {};
  [[nodiscard]] double all() const { return input + rest + scores; }
};

LayerActivations layer_activations(const LayerShape&, const LocalLayer&, const ParallelStrategy&,
                                   const SoftwareStack&);

double dropped_by(const LayerActivations&, const RecomputeModules&);

// What the weight gradients of one layer need: the inputs and the output gradients of its matrices,
// of `element` bytes.
double weight_gradient_inputs(const LayerShape&, const LocalLayer&, double element);

}  // namespace orrery
