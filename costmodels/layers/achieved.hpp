// How flows are made to take the time that a cost model predicts.
#pragma once

#include "costmodels/collectives/collective_flows.hpp"
#include "costmodels/operators/operator.hpp"

namespace orrery {

// Bytes are played as bytes / efficiency, and the last phase ends `more` later: what whole bytes leave over.
struct Achieved {
  TransferEfficiency efficiency;
  Seconds more;
};

// What makes the flows of a collective take `predicted` alone on the nodes that the operator describes: its
// members and nobody else, each with its share of the NICs. Never above the bandwidth of a link: where the
// prediction is shorter than that allows, the efficiency is 1 and the flows take longer than predicted.
Achieved achieved(const Collective&, CollectiveAlgorithm, Seconds predicted);

}  // namespace orrery
