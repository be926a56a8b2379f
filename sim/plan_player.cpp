#include "sim/plan_player.hpp"

#include "costmodels/egress.hpp"
#include "costmodels/folding.hpp"
#include "sim/plan_bound.hpp"

namespace orrery {

PlayedPlan PlanPlayer::play(ParallelStrategy strategy, std::vector<StageMemory> memory, Seconds most) {
  RatedPlan plan;
  plan.strategy = std::move(strategy);
  plan.memory = std::move(memory);
  const Topology& topology = topology_for(plan.strategy.nodes);
  const PricedPlan priced = book_.price(plan.strategy, topology);
  if (cut_route(priced, topology))
    return Infeasible{InfeasibleKind::shape, "a link that the plan needs is down"};
  if (plan.strategy.replicas.empty() && least_plan_time(book_, plan.strategy, priced.parts) > most)
    return TooSlow();
  const PlanPrograms& programs = programs_for(priced, plan.strategy);
  if (splits_backward(plan.strategy.schedule)) {
    plan.memory = fitter_.memory_of(plan.strategy, programs);
    if (const auto trouble = fitter_.too_full(plan.strategy, plan.memory)) return *trouble;
  }
  const auto iteration = estimate_within(most, priced, programs, topology);
  if (!iteration) return TooSlow();
  plan.iteration = *iteration;
  const Seconds held = held_time(job_, plan.strategy, plan.iteration);
  plan.total_time = held * job_.iterations();
  plan.cost = job_cost(job_, plan.strategy, held, egress_of(priced, topology));
  if (const auto obstacle = limit_obstacle(job_, plan.total_time, plan.cost))
    return Infeasible{InfeasibleKind::budget, *obstacle};
  return plan;
}

const PlanPrograms& PlanPlayer::programs_for(const PricedPlan& plan, const ParallelStrategy& strategy) {
  const ProgramKey key{plan.schedule,
                       plan.replicas,
                       strategy.context > 1,
                       strategy.distributed_optimizer,
                       gathered_in_passes(strategy),
                       strategy.overlap_grad_reduce,
                       strategy.overlap_param_gather,
                       plan.replica_microbatches};
  // Buckets differ from plan to plan, and so do schedules that are built for the durations.
  if (key.overlap_grad_reduce || splits_backward(strategy.schedule)) programs_.clear();
  for (const auto& [known, programs] : programs_) {
    if (known == key) return programs;
  }
  if (programs_.size() >= 16) programs_.erase(programs_.begin());
  programs_.emplace_back(key, make_programs(plan));
  return programs_.back().second;
}

const Topology& PlanPlayer::topology_for(const std::vector<int>& nodes) {
  const auto found = topologies_.find(nodes);
  if (found != topologies_.end()) return found->second;
  return topologies_.emplace(nodes, Topology(job_.cluster, nodes)).first->second;
}

}  // namespace orrery
