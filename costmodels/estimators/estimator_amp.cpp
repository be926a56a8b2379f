#include <algorithm>

#include "costmodels/estimators/amp.hpp"
#include "costmodels/estimators/estimators.hpp"

namespace orrery {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

const std::vector<int>& lanes(const AmpPlan& plan, int replica, int stage) {
  return plan.gpus[at(replica) * plan.times.size() + at(stage)];
}

// Lane i of the stage above to lane i below; where the stages differ in width, a lane sends to its
// counterpart.
Seconds boundary_time(const AmpPlan& plan, const Topology& topology, const AmpBoundary& boundary) {
  Seconds total;
  for (int replica = 0; replica < plan.replicas; ++replica) {
    const std::vector<int>& from = lanes(plan, replica, boundary.from);
    const std::vector<int>& to = lanes(plan, replica, boundary.to);
    Seconds slowest;
    for (std::size_t lane = 0; lane < from.size(); ++lane) {
      const int peer = to[lane * to.size() / from.size()];
      if (peer == from[lane]) continue;
      slowest = std::max(slowest, boundary.bytes / topology.path(from[lane], peer).bandwidth);
    }
    total += slowest;
  }
  return total / plan.replicas;
}

Seconds reduction_time(const AmpPlan& plan, const Topology& topology, int stage) {
  Seconds longest;
  const double ways = plan.replicas;
  for (std::size_t lane = 0; lane < lanes(plan, 0, stage).size(); ++lane) {
    for (int replica = 0; replica < plan.replicas; ++replica) {
      const int from = lanes(plan, replica, stage)[lane];
      const int to = lanes(plan, (replica + 1) % plan.replicas, stage)[lane];
      if (from == to) continue;
      const Seconds link = plan.gradients[at(stage)] / topology.path(from, to).bandwidth;
      longest = std::max(longest, link * (2 * (ways - 1) / ways));
    }
  }
  return longest;
}

}  // namespace

Seconds amp_iteration(const AmpPlan& plan, const Topology& topology) {
  Seconds time = sum(plan.times) + largest(plan.times) * (plan.microbatches - 1);
  for (const AmpBoundary& boundary : plan.boundaries) time += boundary_time(plan, topology, boundary);
  Seconds reduction;
  for (int stage = 0; stage < static_cast<int>(plan.gradients.size()); ++stage) {
    reduction = std::max(reduction, reduction_time(plan, topology, stage));
  }
  return time + reduction;
}

Seconds amp_estimate(const FormulaInput& input) {
  const PricedPlan& plan = input.plan;
  const FormulaTerms terms = formula_terms(input);
  AmpPlan amp{terms.microbatches, plan.replicas, terms.compute, {}, {}, plan.gpus};
  for (int boundary = 0; boundary < static_cast<int>(plan.boundaries.size()); ++boundary) {
    amp.boundaries.push_back(
        {plan.rank_of_part(boundary), plan.rank_of_part(boundary + 1), plan.boundaries[at(boundary)].bytes});
  }
  if (!plan.reductions.empty()) amp.gradients.resize(at(plan.stages()));
  for (std::size_t part = 0; part < plan.reductions.size(); ++part) {
    amp.gradients[at(plan.rank_of_part(static_cast<int>(part)))] += plan.reductions[part].gradients;
  }
  return amp_iteration(amp, input.topology);
}

}  // namespace orrery
