// Which algorithm a collective takes, and how long it takes alone.
#pragma once

#include "costmodels/collectives/collective_flows.hpp"

namespace orrery {

// What NCCL's tuner would take: direct for all-to-all, ring for reduce-scatter and all-gather, for an
// all-reduce whichever of ring and tree its model gives less time. The model is latency + bytes / bandwidth,
// the least over NCCL's protocols LL, LL128 and Simple (NVIDIA/nccl src/graph/tuning.cc @ 5067397,
// ncclTopoTuneModel and ncclTopoGetAlgoTime); latencies are NCCL's own, bandwidths those of the collective.
// Left out: NVLS, CollNet, PAT, limits per channel and generation. Mind that NCCL's trees are for all-reduce
// only and a chain inside one node.
CollectiveAlgorithm nccl_choice(const Collective&);
CollectiveAlgorithm nccl_choice(const Topology&, const CollectiveCall&);

// The call as the cost models see it, alone: the narrowest GPU link and share of a NIC among its members.
// Nodes with unequal numbers of members count with their mean, rounded up.
Collective as_operator(const Topology&, const CollectiveCall&);

// The same collective `times` over as one: every flow carries that many times the bytes, and the tails make
// up for the latencies, so that alone it takes `times` as long.
std::vector<FlowPhase> repeated(const Topology&, std::vector<FlowPhase>, int times);

// Phases one after another on an otherwise empty topology: `together` (traffic.hpp) and the tail of each.
Seconds time_alone(const Topology&, const std::vector<FlowPhase>&);

}  // namespace orrery
