// The flows behind transfers and collectives, the same for the estimator and the replay.
#pragma once

#include <vector>

#include "costmodels/operator.hpp"
#include "costmodels/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

struct Flow {
  int from = 0;  // GPU
  int to = 0;
  Bytes wire;     // what the links carry
  Bytes payload;  // what the program sends
};

// One lane of a message between two stages.
Flow message_flow(const Topology&, const BoundaryMessage&, int from_gpu, int to_gpu);

// A collective as flows that run together: it ends `tail` after the last of them.
struct CollectiveFlows {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::vector<Flow> flows;
  Seconds tail;
};

// A ring over `gpus`, pipelined: every hop carries 2 (n-1)/n of an all-reduce's bytes, (n-1)/n of a reduce-scatter's
// or all-gather's, once. Between nodes the ring uses as many NICs as it has members in each node (NCCL's channels).
// The steps after the first add one hop latency each. `bytes` as in Collective. One member: no flow.
CollectiveFlows ring_flows(const Topology&, CollectiveKind, Bytes bytes, const TransferEfficiency&,
                           const std::vector<int>& gpus);

// The flows of lane `lane` of a message of `plan` over boundary b, from its sender in `replica`.
Flow lane_flow(const PricedPlan&, const Topology&, int replica, const Message&, int lane);

// What follows a rank's last backward: collectives with other ranks, and the optimizer step.
struct TailCollective {
  std::vector<int> ranks;               // replica * P + stage
  std::vector<CollectiveFlows> lanes;   // played together
};
struct TailStep {
  bool is_optimizer = false;
  int collective = 0;  // index into Tail::collectives, where it is not the optimizer step
};
struct Tail {
  std::vector<TailCollective> collectives;
  std::vector<std::vector<TailStep>> programs;  // [rank], in order
};

// Megatron-LM core/distributed/finalize_model_grads.py, then the optimizer: gradient reduction over replicas, word
// embedding between first and last stage, gradient norm over the stages of a replica, step, parameter all-gather.
Tail make_tail(const PricedPlan&, const Topology&, const std::vector<int>& lanes);

// Lanes that must be played: those of tensor rank 0 where the lanes of every other tensor rank cross links of their
// own, of equal latency and bandwidth, so that they do the same at the same time; all lanes otherwise.
std::vector<int> lanes_to_play(const PricedPlan&, const Topology&);

// Time from the common start of flows to the end of the last. Ideal links: each as if alone. Shared links: no link is
// faster than the sum of what crosses it, which is exact for flows that share evenly.
Seconds together(const Topology&, const std::vector<Flow>& flows);

}  // namespace orrery
