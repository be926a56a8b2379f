// What a run costs: price of the rented nodes times the time they are held (SEMANTICS 9), interruptions
// included, and of the data that leaves a region.
#pragma once

#include <optional>
#include <vector>

#include "platforms/cluster.hpp"
#include "platforms/units.hpp"

namespace orrery {

struct RunCost {
  Dollars per_iteration;  // with its share of the time that interruptions take
  Dollars per_million_tokens;
  Dollars total;           // of the whole job
  Dollars egress;          // of which for data between regions
  Seconds total_time;      // whole iterations only: the last one is paid in full; interruptions included
  double gpu_hours = 0.0;  // of an iteration, every GPU of every paid node, interruptions included
  DollarsPerHour price;    // of all nodes together
  bool operator==(const RunCost&) const = default;
};

// `nodes[g]` nodes of group g are rented and paid for from the first iteration to the last, busy or idle.
// Absent when a group with nodes has no price. `held`: for one iteration, interruptions included. `egress`:
// of one iteration (egress.hpp).
std::optional<RunCost> run_cost(const ClusterSpec& cluster, const std::vector<int>& nodes, Seconds held,
                                double tokens_per_iteration, double total_tokens, Dollars egress = {});

}  // namespace orrery
