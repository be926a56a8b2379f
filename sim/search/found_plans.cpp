#include "sim/search/found_plans.hpp"

#include <algorithm>

#include "analysis/pareto.hpp"
#include "sim/search/layer_mover.hpp"

namespace orrery {
namespace {

constexpr int kNearMisses = 10;  // plans beyond a limit that are looked at

// Plans beyond the limits by less are looked at too: moving layers may bring them within. More than 5 % was
// seen of a model of eight layers.
constexpr double kMostGained = 1.1;

SearchJob with_wider_limits(SearchJob job) {
  if (job.deadline) *job.deadline *= kMostGained;
  if (job.budget) *job.budget *= kMostGained;
  return job;
}

// How far a plan is beyond the job's limits, as a factor.
double excess(const SearchJob& job, const RatedPlan& plan) {
  const double late = job.deadline ? plan.total_time / *job.deadline : 0;
  return job.budget && plan.cost ? std::max(late, plan.cost->total / *job.budget) : late;
}

// What --explain counts it under.
std::string memory_reason(const Infeasible& trouble) {
  return trouble.reason.ends_with(to_text(MemoryVerdict::risky))
             ? "memory risky: published runs as full ran out"
             : "out of memory";
}

// Of an iteration that the job's limits leave; a little more, since theirs are sums of all.
Least most_of_iteration(const SearchJob& job) {
  constexpr double kRounding = 1 + 1e-9;
  const double any = std::numeric_limits<double>::infinity();
  const double iterations = job.iterations();
  return {job.deadline ? job.deadline->value() / iterations * kRounding : any,
          job.budget ? job.budget->value() / iterations * kRounding : any};
}

}  // namespace

void mark_best(const std::vector<RatedPlan*>& fastest_first, int top) {
  std::vector<ParetoPoint> points;
  for (const RatedPlan* plan : fastest_first) {
    // A plan without a price is worse than any that has one: NaN keeps it off the front.
    const double dollars = plan->cost ? plan->cost->total.value() : std::numeric_limits<double>::quiet_NaN();
    points.push_back({to_hours(plan->total_time), dollars});
  }
  for (std::size_t i = 0; i < fastest_first.size(); ++i) {
    fastest_first[i]->among_fastest = i < static_cast<std::size_t>(top);
    fastest_first[i]->on_front = false;
  }
  for (const std::size_t index : pareto_front(points)) fastest_first[index]->on_front = true;
}

FoundPlans::FoundPlans(const SearchJob& job, const PriceBook& book, StageFitter& fitter, RuleBook& rules,
                       SearchResult& result)
    : job_(job),
      wider_(with_wider_limits(job)),
      book_(book),
      fitter_(fitter),
      rules_(rules),
      result_(result),
      player_(wider_, book, fitter),
      ahead_(wider_, book, job.jobs > 1 ? job.jobs : 0),
      best_(std::max(job.top, plans_to_move(job.cluster)), most_of_iteration(wider_)) {}

void FoundPlans::reject(InfeasibleKind kind, const std::string& reason, std::size_t count) {
  result_.counts.rejected[kind] += count;
  result_.counts.reasons[reason] += count;
}

void FoundPlans::reject(const Infeasible& trouble) {
  const bool memory = trouble.kind == InfeasibleKind::memory;
  reject(trouble.kind, memory ? memory_reason(trouble) : trouble.reason);
}

std::vector<ParallelStrategy> FoundPlans::left_by_rules(std::vector<ParallelStrategy> choices) {
  const Rule* first = nullptr;
  const auto dropped = [&](const ParallelStrategy& choice) {
    const Rule* rule = rules_.dropping(choice);
    if (first == nullptr) first = rule;
    return rule != nullptr;
  };
  choices.erase(std::remove_if(choices.begin(), choices.end(), dropped), choices.end());
  if (choices.empty()) reject(InfeasibleKind::rule, "rule: " + first->text());
  return choices;
}

// Of a plan whose iteration takes so long at least.
std::optional<std::string> FoundPlans::limit_obstacle_of(const SearchJob& job, const ParallelStrategy& plan,
                                                         Seconds least) {
  const Seconds held = held_time(job, plan, least);
  return limit_obstacle(job, held * job.iterations(), job_cost(job, plan, held));
}

bool FoundPlans::beyond_limits(const ParallelStrategy& plan, Seconds least) {
  const auto obstacle = limit_obstacle_of(wider_, plan, least);
  if (obstacle)
    reject(InfeasibleKind::budget, *obstacle);
  else
    ++result_.counts.evaluated;
  return obstacle.has_value();
}

Least FoundPlans::least(const ParallelStrategy& plan, Seconds time) const {
  const Seconds held = held_time(job_, plan, time);
  const auto cost = job_cost(job_, plan, held);
  return {held.value(), cost ? cost->per_iteration.value() : 0};
}

// Seconds of an iteration beyond which a plan that may matter no longer does.
Seconds FoundPlans::most_that_matters(const ParallelStrategy& plan, Seconds least) const {
  constexpr int kHalvings = 24;
  Seconds matters = least, most = least * 2;
  for (; may_matter(plan, most); most *= 2) {
    if (most.value() > std::numeric_limits<float>::max()) return most;
    matters = most;
  }
  for (int i = 0; i < kHalvings; ++i) {
    const Seconds middle = (matters + most) / 2;
    (may_matter(plan, middle) ? matters : most) = middle;
  }
  return most;
}

void FoundPlans::begin(std::vector<Split> splits, const CandidatePlace& place) {
  std::erase_if(splits, [this](const Split& split) { return rules_.dropping(split.plan) != nullptr; });
  if (splits.empty()) return;
  const Split& soonest = splits[soonest_first(splits).front()];
  const Least least_of_all = least(soonest.plan, soonest.least);
  if (!may_matter(least_of_all)) return;
  constexpr double kRounding = 1 + 1e-6;  // of the bisection, which begins elsewhere for other splits
  const Seconds most = most_that_matters(soonest.plan, soonest.least) * kRounding;
  ahead_.begin(place, std::move(splits), most, least_of_all);
}

void FoundPlans::drop_begun() {
  ahead_.drop_if([this](const Least& least) { return !may_matter(least); });
}

void FoundPlans::play(std::vector<Split> splits, const CandidatePlace& place) {
  std::optional<PlayedPlan> best;
  std::size_t best_index = 0;
  for (const std::size_t index : soonest_first(splits)) {
    Split& split = splits[index];
    const auto* known = best ? std::get_if<RatedPlan>(&*best) : nullptr;
    if (known != nullptr && known->iteration <= split.least) break;
    if (!may_matter(split.plan, split.least) || rules_.dropping(split.plan) != nullptr) continue;
    const Seconds most = most_that_matters(split.plan, split.least);
    auto played = play(std::move(split), known != nullptr ? std::min(most, known->iteration) : most);
    const auto* plan = std::get_if<RatedPlan>(&played);
    const bool better = plan != nullptr && (known == nullptr || std::pair(plan->iteration, index) <
                                                                    std::pair(known->iteration, best_index));
    if (best && !better) continue;
    best = std::move(played);
    best_index = index;
  }
  if (best) take(std::move(*best), place);
}

PlayedPlan FoundPlans::play(Split split, Seconds most) {
  const ParallelStrategy plan = split.plan;
  const bool is_known = split.known && (split.known->iteration || split.known->most >= most);
  EstimatedPlan estimated = is_known ? std::move(*split.known)
                                     : player_.estimate(std::move(split.plan), std::move(split.memory), most);
  PlayedPlan played = player_.within(std::move(estimated), most);
  if (!std::holds_alternative<TooSlow>(played)) return played;
  if (const auto found = limit_obstacle_of(job_, plan, most))
    return Infeasible{InfeasibleKind::budget, *found};
  return played;
}

void FoundPlans::take(PlayedPlan played, const CandidatePlace& place) {
  if (const auto* trouble = std::get_if<Infeasible>(&played)) {
    if (trouble->kind == InfeasibleKind::budget) ++result_.counts.estimated;
    reject(*trouble);
    --result_.counts.evaluated;
    return;
  }
  ++result_.counts.estimated;
  if (std::holds_alternative<TooSlow>(played)) return;
  auto& rated = std::get<RatedPlan>(played);
  const Seconds held = held_time(job_, rated.strategy, rated.iteration);
  if (!limit_obstacle(job_, rated.total_time, rated.cost)) {
    best_.add({held.value(),
               rated.cost ? rated.cost->per_iteration.value() : std::numeric_limits<double>::infinity()});
  }
  rated_.push_back({std::move(rated), held, place});
}

std::vector<RatedPlan> FoundPlans::take_best() {
  std::vector<Rated> near_misses = take_near_misses();
  select(std::max(job_.top, plans_to_move(job_.cluster)));
  move_layers(rated_);
  move_layers(near_misses);
  std::move(near_misses.begin(), near_misses.end(), std::back_inserter(rated_));
  std::erase_if(rated_, [this](const Rated& rated) {
    const auto obstacle = limit_obstacle(job_, rated.plan.total_time, rated.plan.cost);
    if (obstacle) reject_evaluated(*obstacle);
    return obstacle.has_value();
  });
  select(job_.top);
  std::vector<RatedPlan> plans;
  for (Rated& rated : rated_) plans.push_back(std::move(rated.plan));
  rated_.clear();
  return plans;
}

void FoundPlans::reject_evaluated(const std::string& reason) {
  reject(InfeasibleKind::budget, reason);
  --result_.counts.evaluated;
}

// Out of what was rated: of the plans beyond a limit the nearest to it that would be among the best; the
// others are rejected.
std::vector<FoundPlans::Rated> FoundPlans::take_near_misses() {
  const auto obstacle = [this](const Rated& rated) {
    return limit_obstacle(job_, rated.plan.total_time, rated.plan.cost);
  };
  const auto first = std::stable_partition(rated_.begin(), rated_.end(),
                                           [&](const Rated& rated) { return !obstacle(rated); });
  std::vector<Rated> beyond(std::make_move_iterator(first), std::make_move_iterator(rated_.end()));
  rated_.erase(first, rated_.end());
  std::sort(beyond.begin(), beyond.end(), [this](const Rated& a, const Rated& b) {
    return std::pair(excess(job_, a.plan), a.place) < std::pair(excess(job_, b.plan), b.place);
  });
  std::vector<Rated> nearest;
  for (Rated& rated : beyond) {
    if (nearest.size() < kNearMisses && may_matter(rated.plan.strategy, rated.plan.iteration))
      nearest.push_back(std::move(rated));
    else
      reject_evaluated(*obstacle(rated));
  }
  return nearest;
}

// So far the splits were the better of two.
void FoundPlans::move_layers(std::vector<Rated>& plans) {
  LayerMover mover(book_, fitter_, player_, rules_);
  const auto most = static_cast<std::size_t>(plans_to_move(job_.cluster));
  for (std::size_t i = 0; i < std::min(most, plans.size()); ++i) {
    Rated& rated = plans[i];
    rated.plan = mover.improved(std::move(rated.plan), i);
    rated.held = held_time(job_, rated.plan.strategy, rated.plan.iteration);
  }
}

// Keeps the fastest and the front, fastest first; equal times stay in the order of enumeration.
void FoundPlans::select(int top) {
  std::sort(rated_.begin(), rated_.end(), [](const Rated& a, const Rated& b) {
    return std::pair(a.held, a.place) < std::pair(b.held, b.place);
  });
  std::vector<RatedPlan*> plans;
  for (Rated& rated : rated_) plans.push_back(&rated.plan);
  mark_best(plans, top);
  std::erase_if(rated_, [](const Rated& rated) { return !is_marked(rated.plan); });
}

}  // namespace orrery
