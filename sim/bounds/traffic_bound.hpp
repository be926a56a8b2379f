// The least time that the traffic of a plan can take, known before its flows are.
#pragma once

#include "costmodels/plans/price_book.hpp"
#include "strategies/enumerate.hpp"

namespace orrery {

// Seconds once an iteration, at least: of one layer, or of a part.
struct LeastTraffic {
  double reduced = 0;   // gradients, when a stage has done its last backward
  double gathered = 0;  // parameters of a single stage, when that is done; those of several go on meanwhile
};

// Gradients of one layer on a stage of a group: what any algorithm must send out of a node (N - 1 of N parts,
// twice for an all-reduce) over its NICs, at full bandwidth. 0 where overlaps may hide it or experts are
// spread.
LeastTraffic least_traffic(const PriceBook&, int group, const Ways&, const Setting&);

// The same of a part of a plan whose layers are split, at the bandwidth that its collectives reach.
LeastTraffic least_traffic(const PriceBook&, const ParallelStrategy&, int part);

// Seconds of a message over a boundary with nobody else on its links, at least; either way. 0 where single
// links are given.
double least_transfer(const PriceBook&, const ParallelStrategy&, int boundary);

}  // namespace orrery
