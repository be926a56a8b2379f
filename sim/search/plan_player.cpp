#include "sim/search/plan_player.hpp"

#include "costmodels/money/egress.hpp"
#include "costmodels/plans/folding.hpp"
#include "sim/bounds/plan_bound.hpp"

namespace orrery {

PlayedPlan PlanPlayer::play(ParallelStrategy strategy, std::vector<StageMemory> memory, Seconds most) {
  return within(estimate(std::move(strategy), std::move(memory), most), most);
}

EstimatedPlan PlanPlayer::estimate(ParallelStrategy strategy, std::vector<StageMemory> memory, Seconds most) {
  EstimatedPlan known;
  known.most = most;
  RatedPlan& plan = known.plan;
  plan.strategy = std::move(strategy);
  plan.memory = std::move(memory);
  const Topology& topology = topology_for(plan.strategy.nodes);
  const PricedPlan priced = book_.price(plan.strategy, topology);
  if (cut_route(priced, topology)) {
    known.is_cut = Infeasible{InfeasibleKind::shape, "a link that the plan needs is down"};
    return known;
  }
  if (plan.strategy.replicas.empty()) known.least = least_plan_time(book_, plan.strategy, priced.parts);
  if (known.least > most) return known;
  const PlanPrograms& programs = programs_for(priced, plan.strategy);
  if (splits_backward(plan.strategy.schedule)) {
    plan.memory = fitter_.memory_of(plan.strategy, programs);
    known.too_full = fitter_.too_full(plan.strategy, plan.memory);
    if (known.too_full) return known;
  }
  known.iteration = estimate_within(most, priced, programs, topology);
  if (!known.iteration) return known;
  plan.iteration = *known.iteration;
  const Seconds held = held_time(job_, plan.strategy, plan.iteration);
  plan.total_time = held * job_.iterations();
  plan.cost = job_cost(job_, plan.strategy, held, egress_of(priced, topology));
  return known;
}

PlayedPlan PlanPlayer::within(EstimatedPlan known, Seconds most) const {
  if (known.is_cut) return *known.is_cut;
  if (known.least > most) return TooSlow();
  if (known.too_full) return *known.too_full;
  if (!known.iteration || *known.iteration > most) return TooSlow();
  if (const auto obstacle = limit_obstacle(job_, known.plan.total_time, known.plan.cost))
    return Infeasible{InfeasibleKind::budget, *obstacle};
  return std::move(known.plan);
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
