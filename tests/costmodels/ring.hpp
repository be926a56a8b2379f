// The one phase of a ring collective.
#pragma once

#include <vector>

#include "costmodels/collectives/collective_flows.hpp"

namespace orrery {

inline FlowPhase ring_of(const Topology& topology, CollectiveKind kind, Bytes bytes,
                         const TransferEfficiency& efficiency, const std::vector<int>& gpus) {
  auto phases = collective_flows(topology, {kind, CollectiveAlgorithm::ring, bytes, efficiency, gpus});
  return phases.empty() ? FlowPhase{} : std::move(phases.front());
}

}  // namespace orrery
