#include "sim/search.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "analysis/pareto.hpp"
#include "costmodels/estimate.hpp"
#include "costmodels/folding.hpp"
#include "sim/feasibility.hpp"
#include "strategies/megatron.hpp"
#include "strategies/placement.hpp"

namespace orrery {
namespace {

Seconds clock_now() {
  return Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

Seconds total_time(const SearchJob& job, Seconds iteration) {
  return iteration * std::ceil(job.total_tokens / job.tokens_per_iteration());
}

// A candidate that has a shape: its place in the two lists it is made of.
struct Candidate {
  std::uint32_t allocation = 0;
  std::uint32_t setting = 0;
};

// A feasible candidate with the least time and money it can take.
struct Bounded {
  Candidate candidate;
  Seconds least_time;      // of one iteration
  double least_money = 0;  // USD of one iteration; 0 where a price is not known
};

// Plans of the fastest and of the front so far.
class Best {
 public:
  explicit Best(int top) : top_(static_cast<std::size_t>(top)) {}

  // False only for a plan that can be neither among the fastest nor on the front.
  [[nodiscard]] bool may_matter(const Bounded& bounded) const {
    if (times_.size() < top_ || bounded.least_time <= times_.back()) return true;
    for (const auto& [time, money] : front_) {
      if (time <= bounded.least_time && money <= bounded.least_money) return false;
    }
    return bounded.least_money > 0;
  }

  void add(Seconds time, double money) {
    times_.insert(std::upper_bound(times_.begin(), times_.end(), time), time);
    if (times_.size() > top_) times_.pop_back();
    const auto dominates = [&](const auto& point) { return point.first <= time && point.second <= money; };
    if (std::any_of(front_.begin(), front_.end(), dominates)) return;
    const auto dominated = [&](const auto& point) { return time <= point.first && money <= point.second; };
    front_.erase(std::remove_if(front_.begin(), front_.end(), dominated), front_.end());
    front_.emplace_back(time, money);
  }

 private:
  std::size_t top_;
  std::vector<Seconds> times_;  // the fastest, ascending
  std::vector<std::pair<Seconds, double>>
      front_;  // (time, money) of one iteration; same order as for the whole job
};

class Searcher {
 public:
  Searcher(const SearchJob& job, std::vector<Rule>& rules, const CostModels& models, PriceBook& book,
           const SearchProgress& progress)
      : job_(job), rules_(rules), models_(models), book_(book), progress_(progress), fitter_(book) {}

  SearchResult run() {
    Seconds before = clock_now();
    const auto lap = [&before] {
      const Seconds now = clock_now();
      const Seconds elapsed = now - before;
      before = now;
      return elapsed;
    };
    enumerate();
    result_.elapsed.enumerate = lap();
    progress_("pricing operators", 0, 1);
    result_.counts.operators = book_.predict(models_);
    result_.elapsed.predict = lap();
    bound_candidates();
    estimate_candidates();
    select();
    result_.elapsed.estimate = lap();
    return std::move(result_);
  }

 private:
  void reject(InfeasibleKind kind, const std::string& reason) {
    ++result_.counts.rejected[kind];
    ++result_.counts.reasons[reason];
  }

  void enumerate() {
    progress_("enumerating", 0, 1);
    allocations_ = allocations(job_.cluster, job_.space, job_.mode, job_.global_batch);
    settings_ = settings(job_.space);
    for (std::size_t a = 0; a < allocations_.size(); ++a) {
      for (std::size_t s = 0; s < settings_.size(); ++s) consider(a, s);
    }
  }

  void consider(std::size_t a, std::size_t s) {
    const Allocation& allocation = allocations_[a];
    const Setting& setting = settings_[s];
    ++result_.counts.enumerated;
    if (const auto obstacle =
            shape_obstacle(job_.model, job_.cluster, allocation, setting, job_.global_batch, job_.sequence)) {
      reject(InfeasibleKind::shape, *obstacle);
      return;
    }
    for (const auto& [group, stages] : allocation.runs) {
      book_.need(ShardKey{group, allocation.tensor, allocation.context, allocation.expert,
                          setting.micro_batch, setting.sequence_parallel});
      book_.need_rings(group, allocation.tensor, allocation.data * allocation.context, allocation.expert);
    }
    candidates_.push_back({static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(s)});
  }

  ParallelStrategy strategy(const Candidate& candidate) const {
    return strategy_of(allocations_[candidate.allocation], settings_[candidate.setting], job_.global_batch,
                       job_.sequence, job_.type);
  }

  bool dropped_by_rule(const ParallelStrategy& strategy) {
    if (rules_.empty()) return false;
    const ArgumentTable arguments = megatron_arguments(job_.model, strategy);
    for (const Rule& rule : rules_) {
      if (!rule.matches(arguments)) continue;
      reject(InfeasibleKind::rule, "rule: " + rule.text());
      return true;
    }
    return false;
  }

  void bound_candidates() {
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (i % 4096 == 0) progress_("fitting plans", i, candidates_.size());
      ParallelStrategy plan = strategy(candidates_[i]);
      const auto fitted = fitter_.fit(plan);
      if (const auto* trouble = std::get_if<Infeasible>(&fitted)) {
        if (trouble->kind == InfeasibleKind::memory) note_nearest(*trouble);
        reject(trouble->kind, trouble->kind == InfeasibleKind::memory ? "out of memory" : trouble->reason);
        continue;
      }
      if (dropped_by_rule(plan)) continue;
      Bounded bounded{candidates_[i], least_time(plan), 0};
      const auto cost = cost_of(plan, bounded.least_time);
      if (cost) bounded.least_money = cost->per_iteration.value();
      if (over_budget(bounded.least_time, cost)) continue;
      bounded_.push_back(bounded);
    }
    result_.counts.evaluated = bounded_.size();
    std::stable_sort(bounded_.begin(), bounded_.end(),
                     [](const Bounded& a, const Bounded& b) { return a.least_time < b.least_time; });
  }

  void note_nearest(const Infeasible& trouble) {
    if (!result_.nearest) result_.nearest = trouble;
  }

  // No stage can end before the stages above it have passed it a microbatch, it has done all of its own, and
  // its gradients have gone back through them and its parameters are updated. Weight gradients that are split
  // off may come after those; where ranks go on by themselves the next iteration begins while a stage is at
  // work.
  Seconds least_time(const ParallelStrategy& plan) const {
    const Backward pass = backward_of(plan.schedule);
    Seconds lead, most;
    for (int stage = 0; stage < plan.pipeline; ++stage) {
      Seconds busy, first_chunk;
      for (int chunk = 0; chunk < plan.chunks; ++chunk) {
        PartTimes times =
            book_.part_times(book_.shard(shard_key(plan, stage)), plan.part(stage, chunk), plan.recompute);
        if (may_beat_its_price(plan, stage)) {
          times.forward -= times.forward_tensor;
          times.backward -= times.backward_tensor;
        }
        if (chunk == 0) first_chunk = times.forward + (pass == Backward::whole ? times.backward : Seconds(0));
        busy += (times.forward + times.backward) * static_cast<double>(plan.microbatches());
      }
      most = std::max(most, lead + busy);
      if (!validates_later(plan.schedule)) lead += first_chunk;
    }
    return most;
  }

  // Prices assume that all GPUs of a node use its NICs. Collectives that are played have those to themselves
  // that other stages leave alone.
  bool may_beat_its_price(const ParallelStrategy& plan, int stage) const {
    const NodeGroup& group = group_of_stage(job_.cluster, plan, stage);
    const bool leaves_node = group.gpus_per_node % (plan.gpus_of_stage(stage) * plan.expert) != 0;
    return leaves_node && group.nics_per_node < group.gpus_per_node;
  }

  std::optional<RunCost> cost_of(const ParallelStrategy& plan, Seconds iteration) const {
    return run_cost(job_.cluster, plan.nodes, iteration, job_.tokens_per_iteration(), job_.total_tokens);
  }

  bool over_budget(Seconds iteration, const std::optional<RunCost>& cost) {
    const auto obstacle = limit_obstacle(job_, iteration, cost);
    if (obstacle) reject(InfeasibleKind::budget, *obstacle);
    return obstacle.has_value();
  }

  // Programs of one shape serve many plans: bytes and seconds are not in them.
  const PlanPrograms& programs_for(const PricedPlan& plan, const ParallelStrategy& strategy) {
    const ProgramKey key{plan.schedule,
                         plan.replicas,
                         strategy.context > 1,
                         strategy.distributed_optimizer,
                         strategy.overlap_grad_reduce,
                         strategy.overlap_param_gather};
    // Buckets differ from plan to plan, and so do schedules that are built for the durations.
    if (key.overlap_grad_reduce || splits_backward(strategy.schedule)) programs_.clear();
    for (const auto& [known, programs] : programs_) {
      if (known == key) return programs;
    }
    if (programs_.size() >= 16) programs_.erase(programs_.begin());
    programs_.emplace_back(key, make_programs(plan));
    return programs_.back().second;
  }

  const Topology& topology_for(const std::vector<int>& nodes) {
    const auto found = topologies_.find(nodes);
    if (found != topologies_.end()) return found->second;
    return topologies_.emplace(nodes, Topology(job_.cluster, nodes)).first->second;
  }

  void estimate_candidates() {
    Best best(job_.top);
    for (std::size_t i = 0; i < bounded_.size(); ++i) {
      if (i % 256 == 0) progress_("estimating plans", i, bounded_.size());
      if (!best.may_matter(bounded_[i])) continue;
      RatedPlan plan;
      plan.strategy = strategy(bounded_[i].candidate);
      auto fitted = fitter_.fit(plan.strategy);
      plan.memory = std::move(std::get<FittedStages>(fitted).memory);
      const Topology& topology = topology_for(plan.strategy.nodes);
      const PricedPlan priced = book_.price(plan.strategy, topology);
      if (cut_route(priced, topology)) {
        reject(InfeasibleKind::shape, "a link that the plan needs is down");
        --result_.counts.evaluated;
        continue;
      }
      const PlanPrograms& programs = programs_for(priced, plan.strategy);
      if (splits_backward(plan.strategy.schedule)) {
        plan.memory = fitter_.memory_of(plan.strategy, programs);
        if (fitter_.too_full(plan.strategy, plan.memory)) {
          reject(InfeasibleKind::memory, "out of memory");
          --result_.counts.evaluated;
          continue;
        }
      }
      plan.iteration = estimate_iteration(priced, programs, topology);
      ++result_.counts.estimated;
      plan.total_time = total_time(job_, plan.iteration);
      plan.cost = cost_of(plan.strategy, plan.iteration);
      if (over_budget(plan.iteration, plan.cost)) {
        --result_.counts.evaluated;
        continue;
      }
      best.add(plan.iteration,
               plan.cost ? plan.cost->per_iteration.value() : std::numeric_limits<double>::infinity());
      rated_.push_back(std::move(plan));
    }
  }

  // Keeps the fastest and the front, fastest first; equal times stay in the order of enumeration.
  void select() {
    std::stable_sort(rated_.begin(), rated_.end(),
                     [](const RatedPlan& a, const RatedPlan& b) { return a.iteration < b.iteration; });
    std::vector<ParetoPoint> points;
    for (const RatedPlan& plan : rated_) {
      // A plan without a price is worse than any that has one: NaN keeps it off the front.
      const double dollars = plan.cost ? plan.cost->total.value() : std::numeric_limits<double>::quiet_NaN();
      points.push_back({to_hours(plan.total_time), dollars});
    }
    for (const std::size_t index : pareto_front(points)) rated_[index].on_front = true;
    for (std::size_t i = 0; i < rated_.size(); ++i) {
      RatedPlan& plan = rated_[i];
      plan.among_fastest = i < static_cast<std::size_t>(job_.top);
      if (plan.among_fastest || plan.on_front) result_.plans.push_back(std::move(plan));
    }
  }

  const SearchJob& job_;
  std::vector<Rule>& rules_;
  const CostModels& models_;
  PriceBook& book_;
  const SearchProgress& progress_;
  StageFitter fitter_;
  SearchResult result_;
  std::vector<Allocation> allocations_;
  std::vector<Setting> settings_;
  std::vector<Candidate> candidates_;
  std::vector<Bounded> bounded_;
  std::vector<RatedPlan> rated_;
  struct ProgramKey {
    ScheduleShape shape;
    int replicas;
    bool context, distributed_optimizer, overlap_grad_reduce, overlap_param_gather;
    bool operator==(const ProgramKey&) const = default;
  };
  std::vector<std::pair<ProgramKey, PlanPrograms>> programs_;  // a few, oldest first
  std::map<std::vector<int>, Topology> topologies_;
};

}  // namespace

std::optional<std::string> limit_obstacle(const SearchJob& job, Seconds iteration,
                                          const std::optional<RunCost>& cost) {
  if (job.deadline && total_time(job, iteration) > *job.deadline) return "later than the deadline";
  if (!job.budget || (cost && cost->total <= *job.budget)) return std::nullopt;
  return cost ? "over the budget" : "no price, so the budget cannot be checked";
}

SearchResult search(const SearchJob& job, std::vector<Rule>& rules, const CostModels& models, PriceBook& book,
                    const SearchProgress& progress) {
  return Searcher(job, rules, models, book, progress).run();
}

}  // namespace orrery
