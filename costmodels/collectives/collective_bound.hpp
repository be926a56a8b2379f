// How short a collective could be at best.
#pragma once

#include "costmodels/collectives/collective_flows.hpp"

namespace orrery {

// No algorithm that moves whole bytes between members takes less: the largest, over all levels at which the
// members fall into blocks (GPUs, nodes, leaves, regions), of
// * what must enter or leave one block / the bandwidth into or out of it, and
// * what must cross between blocks in all / the bandwidth into all of them,
// and one hop of latency. With N blocks, k of the n members in one, in shares of the vector:
//   kind            into a block   out of it     between all blocks
//   all-reduce      1              1             2 (N-1): each byte is gossip, 2 (N-1) one-way messages
//   reduce-scatter  k/n            (n-k)/n       N-1: each result takes N-1 messages
//   all-gather      (n-k)/n        k/n           N-1
//   all-to-all      k (n-k)/n      k (n-k)/n     the sum of those
//   broadcast       1 (not root)   1 (root)      N-1
// On equal links that is the known 2 (n-1)/n and (n-1)/n of bytes / bandwidth (Patarasuk and Yuan, Bandwidth
// optimal all-reduce algorithms, JPDC 69, 2009); on unequal ones a tree may beat 2 (n-1)/n of the narrowest
// link, since a leaf moves every byte only once each way. Reductions inside a switch (NVLS, SHARP) may beat
// all of it. Members with a GPU link and a NIC may use both. Time grows with the square of the members.
Seconds least_time(const Topology&, const CollectiveCall&);
Seconds least_time(const Topology&, const BroadcastCall&);

}  // namespace orrery
