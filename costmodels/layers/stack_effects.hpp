// What a software stack makes of operator times: overlaps, the host's pace, sharded weights.
#pragma once

#include "costmodels/collectives/flow.hpp"
#include "costmodels/layers/block_cost.hpp"
#include "costmodels/layers/layer_operators.hpp"
#include "costmodels/layers/pass_pieces.hpp"
#include "costmodels/operators/local_layer.hpp"

namespace orrery {

// Sums of a pass. Tensor collectives and exchanges with experts count as far as the stack's overlap leaves
// them exposed, experts at least as long as the host takes to launch them.
PassCost cost_under(const PassOperators&, const PassTimes&, PassOrder, const Sharding&);

// Adds an operator's `time` to those of its cost's sums that it belongs to: PassCost::matrices, at_limit.
void add_kinds(PassCost&, const Operator&, Seconds time, const Sharding&);

// The pass in pieces. A collective has its share of the compute that the stack runs beside its kind.
std::vector<PassPiece> pieces_under(const PassOperators&, const PassTimes&, PassOrder, const Sharding&);

// What selective recomputation of each module repeats; a stack with a policy of its own has it in the
// attention core's place, which is repeated where nobody names modules.
OfModules<PassCost> module_costs(const BlockOperators&, const PassTimes& forward, const Sharding&);

// Times of a stack's kernels over those of the kernels that were measured, and of its collectives over those
// expected.
struct KernelFactors {
  double gemm = 1.0, scan_gradient = 1.0, attention = 1.0, elementwise = 1.0, norm = 1.0, residual = 1.0;
  double narrow = 1.0;   // matrices in 8 bits, besides `gemm`
  double compute = 1.0;  // all of these and every other kernel
  NetworkShare network = {};
  [[nodiscard]] double of(const Operator&) const;

 private:
  [[nodiscard]] double of_kernel(const Operator&) const;
};

// A link gives no more than its bandwidth, whatever a stack was calibrated to.
TransferEfficiency under_network(const TransferEfficiency&, const NetworkShare&);

// Of tensor collectives that the stack splits into as many chunks as there are ranks and computes beside
// (user buffers, asynchronous tensor parallelism): the first chunk, what the GEMMs are too short for, and how
// much slower these get meanwhile (FIDELITY B 9.5).
Seconds exposed_collectives(Seconds collectives, Seconds gemms, int ranks, const SoftwareStack&);

// Gathering the weights of a block and reducing its gradients, where they are sharded (FSDP); without the
// gathering where the stack keeps weights whole. Empty operators where nothing is sharded.
// `unpack` and `pack` are the kernels that copy what is gathered and what is scattered, of a single GPU's own
// shard too.
struct WeightTraffic {
  std::vector<Operator> gather, reduce, unpack, pack;
};
// As one, or each matrix of a forward for itself where the stack gathers so; what those leave of `parameters`
// (norms, biases) stays on every GPU (DeepSpeed's stage3_param_persistence_threshold), a table is one matrix.
// Experts that are spread over copies have fewer of them, which gather and reduce for themselves; where each
// has one, nothing (torchtitan, distributed/fsdp.py: edp_mesh; Megatron-FSDP: expt_dp_group).
WeightTraffic weight_traffic(const Sharding&, const LocalParameters&, const PassOperators& forward);
// What the host adds to collectives of matrices.
Seconds gathering_host(const Sharding&, std::size_t collectives);

// A pass over a part of the model.
struct LaunchedPass {
  PassCost cost;
  PassCost
      last;  // of `cost`, what comes after the layers: the head of a forward, the embedding of a backward
  int layers = 0;
};

// Time of a pass: compute and exposed collectives, or what runs beside them and takes longer: the host
// launching kernels, or the weights of the next layer on their way. The host runs ahead of what comes first;
// where it is the slower of the two, nothing of it is left to hide what comes last.
struct PassTime {
  Seconds time;
  bool host_bound = false;
};
PassTime time_under(const LaunchedPass&, const SoftwareStack&);

}  // namespace orrery
