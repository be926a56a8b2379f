#include "sim/search/place_plans.hpp"

#include <algorithm>

#include "costmodels/estimate/anneal_hosts.hpp"
#include "costmodels/estimate/estimate.hpp"
#include "costmodels/money/egress.hpp"
#include "sim/search/found_plans.hpp"

namespace orrery {
namespace {

struct Laid {
  ParallelStrategy strategy;
  PricedPlan priced;
  Seconds iteration;
  TrafficCost cost;  // of the strategy's own hosts
};

// Of flows as they are in the priced plan: its hosts stand where they are.
TrafficCost cost_of(const PricedPlan& priced, const PlanPrograms& programs, const Topology& topology) {
  return HostTraffic(traffic_classes(priced, programs, topology), topology).cost();
}

Laid lay(const PriceBook& book, const ParallelStrategy& strategy, const Topology& topology) {
  Laid laid{strategy, book.price(strategy, topology), {}, {}};
  const PlanPrograms programs = make_programs(laid.priced);
  laid.iteration = estimate_iteration(laid.priced, programs, topology);
  laid.cost = cost_of(laid.priced, programs, topology);
  return laid;
}

bool is_better(const Laid& laid, const Laid& than, const Laid& given) {
  constexpr double kRounding = 1e-9;
  return laid.iteration < than.iteration * (1 - kRounding) &&
         laid.cost.between_nodes <= given.cost.between_nodes * (1 + kRounding) &&
         laid.cost.crossing <= given.cost.crossing * (1 + kRounding);
}

std::vector<int> annealed(const Laid& laid, const Topology& topology, std::uint64_t seed) {
  Annealing how;
  how.seed = seed;
  return anneal_hosts(traffic_classes(laid.priced, make_programs(laid.priced), topology), topology, how)
      .hosts;
}

// What Megatron-LM's arguments can say: experts want the default order.
std::vector<RankOrder> orders_to_try(const ParallelStrategy& strategy) {
  if (strategy.expert > 1 || strategy.data == 1 || strategy.pipeline == 1) return {strategy.order};
  const bool is_default = strategy.order == RankOrder::cp_dp_pp;
  return {strategy.order, is_default ? RankOrder::cp_pp_dp : RankOrder::cp_dp_pp};
}

Laid best_laid(const PriceBook& book, const ParallelStrategy& strategy, PlacementSearch how,
               std::uint64_t seed) {
  const Topology topology(book.cluster(), strategy.nodes);
  const Laid given = lay(book, strategy, topology);
  Laid best = given;
  const auto consider = [&](Laid laid) {
    if (is_better(laid, best, given)) best = std::move(laid);
  };
  for (const RankOrder order : orders_to_try(strategy)) {
    Laid laid = given;
    if (order != strategy.order) {
      laid.strategy.order = order;
      laid = lay(book, laid.strategy, topology);
    }
    ParallelStrategy renumbered = laid.strategy;
    if (how == PlacementSearch::anneal) renumbered.hosts = annealed(laid, topology, seed);
    consider(std::move(laid));
    if (!renumbered.hosts.empty()) consider(lay(book, renumbered, topology));
  }
  return best;
}

bool may_be_laid(const PriceBook& book, const ParallelStrategy& strategy, PlacementSearch how) {
  return how != PlacementSearch::as_given && strategy.hosts.empty() &&
         !Topology(book.cluster(), strategy.nodes).has_cut();
}

}  // namespace

ParallelStrategy best_placed(const PriceBook& book, const ParallelStrategy& strategy, PlacementSearch how,
                             std::uint64_t seed) {
  return may_be_laid(book, strategy, how) ? best_laid(book, strategy, how, seed).strategy : strategy;
}

SearchJob with_plans_to_place(SearchJob job) {
  constexpr int kPlaced = 30;
  if (job.placement != PlacementSearch::as_given) job.top = std::max(job.top, kPlaced);
  return job;
}

int place_plans(std::vector<RatedPlan>& plans, const SearchJob& job, const PriceBook& book,
                std::uint64_t seed) {
  if (job.placement == PlacementSearch::as_given) return 0;
  int changed = 0;
  for (RatedPlan& plan : plans) {
    if (!may_be_laid(book, plan.strategy, job.placement)) continue;
    Laid laid = best_laid(book, plan.strategy, job.placement, seed);
    if (laid.strategy == plan.strategy) continue;
    ++changed;
    plan.strategy = std::move(laid.strategy);
    plan.iteration = laid.iteration;
    const Seconds held = held_time(job, plan.strategy, plan.iteration);
    plan.total_time = held * job.iterations();
    plan.cost = job_cost(job, plan.strategy, held,
                         egress_of(laid.priced, Topology(job.cluster, plan.strategy.nodes)));
  }
  std::stable_sort(plans.begin(), plans.end(),
                   [](const RatedPlan& a, const RatedPlan& b) { return a.total_time < b.total_time; });
  std::vector<RatedPlan*> fastest_first;
  for (RatedPlan& plan : plans) fastest_first.push_back(&plan);
  mark_best(fastest_first, job.top);
  std::erase_if(plans, [](const RatedPlan& plan) { return !is_marked(plan); });
  return changed;
}

}  // namespace orrery
