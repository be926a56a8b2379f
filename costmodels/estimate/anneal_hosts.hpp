// Which host stands for which node of a plan: seeded simulated annealing.
#pragma once

#include <cstdint>
#include <vector>

#include "costmodels/estimate/host_traffic.hpp"

namespace orrery {

struct Annealing {
  std::uint64_t seed = 1;
  int rounds = 4;           // from the first numbering; each goes on from the best so far, with other draws
  int steps_of_round = 60;  // times the nodes
  // Hops that are looked at, at most, were all of them at every step: large plans take fewer steps.
  double most_hops = 1e7;
};

struct NumberedHosts {
  std::vector<int> hosts;  // as ParallelStrategy::hosts; empty: none is better than the first
  TrafficCost before, after;
  int looked_at = 0;  // numberings
};

// Looks for hosts, each within its node group, that make TrafficCost::communication least; of none that cross
// more than the first numbering does. Two nodes or two runs of them trade hosts, nodes that nothing stands on
// among them; what is worse is taken with probability exp(-loss / temperature), and at the end every pair is
// tried until none helps. The same seed gives the same hosts. With a link that is down, or
// where all nodes of a group are alike to the network, nothing is looked for.
NumberedHosts anneal_hosts(const std::vector<TrafficClass>&, const Topology&, const Annealing&);

}  // namespace orrery
