// AMP's cost model on plain numbers, for plans of ours and for the logs that AMP published.
#pragma once

#include <vector>

#include "platforms/topology.hpp"
#include "platforms/units.hpp"

namespace orrery {

struct AmpBoundary {
  int from = 0, to = 0;  // stages
  Bytes bytes;           // activation of one microbatch, of one lane
};

struct AmpPlan {
  double microbatches = 1;
  int replicas = 1;
  std::vector<Seconds> times;  // [stage], forward and backward of one microbatch
  std::vector<AmpBoundary> boundaries;
  std::vector<Bytes> gradients;        // [stage], of one lane
  std::vector<std::vector<int>> gpus;  // [replica * stages + stage][lane]
};

// sum(t) + sum(e) + (M - 1) max(t) + max(d), see amp_estimate. A single replica reduces nothing.
Seconds amp_iteration(const AmpPlan&, const Topology&);

}  // namespace orrery
