#include "costmodels/money/money.hpp"

#include <cmath>

#include "platforms/errors.hpp"

namespace orrery {

std::optional<RunCost> run_cost(const ClusterSpec& cluster, const std::vector<int>& nodes, Seconds held,
                                double tokens_per_iteration, double total_tokens, Dollars egress) {
  ORRERY_ENSURE(nodes.size() == cluster.groups.size());
  ORRERY_ENSURE(tokens_per_iteration > 0);
  DollarsPerHour price;
  double gpus = 0.0;
  for (std::size_t g = 0; g < nodes.size(); ++g) {
    if (nodes[g] == 0) continue;
    const NodeGroup& group = cluster.groups[g];
    if (!group.price) return std::nullopt;
    price += *group.price * nodes[g];
    gpus += static_cast<double>(nodes[g]) * group.gpus_per_node;
  }
  RunCost cost;
  cost.price = price;
  const double iterations = std::ceil(total_tokens / tokens_per_iteration);
  cost.per_iteration = price * held + egress;
  cost.per_million_tokens = cost.per_iteration * (1e6 / tokens_per_iteration);
  cost.total_time = held * iterations;
  cost.egress = egress * iterations;
  cost.total = price * cost.total_time + cost.egress;
  cost.gpu_hours = gpus * to_hours(held);
  return cost;
}

}  // namespace orrery
