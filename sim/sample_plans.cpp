#include "sim/sample_plans.hpp"

#include <algorithm>
#include <random>

#include "costmodels/folding.hpp"
#include "sim/feasibility.hpp"
#include "strategies/megatron.hpp"

namespace orrery {
namespace {

// All candidates that have a shape, as the search sees them before it looks at memory.
std::vector<ParallelStrategy> shaped_candidates(const SearchJob& job, PriceBook& book) {
  std::vector<ParallelStrategy> candidates;
  const std::vector<Setting> all_settings = settings(job.space);
  for (const Allocation& allocation : allocations(job.cluster, job.space, job.mode, job.global_batch)) {
    for (const Setting& setting : all_settings) {
      if (shape_obstacle(job.model, job.cluster, allocation, setting, job.global_batch, job.sequence))
        continue;
      candidates.push_back(strategy_of(allocation, setting, job.global_batch, job.sequence, job.type));
      book.need(candidates.back());
    }
  }
  return candidates;
}

bool dropped(std::vector<Rule>& rules, const ModelSpec& model, const ParallelStrategy& plan) {
  if (rules.empty()) return false;
  const ArgumentTable arguments = megatron_arguments(model, plan);
  return std::any_of(rules.begin(), rules.end(), [&](Rule& rule) { return rule.matches(arguments); });
}

}  // namespace

std::vector<ParallelStrategy> sample_plans(const SearchJob& job, std::vector<Rule>& rules,
                                           const CostModels& models, PriceBook& book,
                                           const PlanSample& sample) {
  std::vector<ParallelStrategy> candidates = shaped_candidates(job, book);
  static_cast<void>(book.predict(models));
  StageFitter fitter(book);
  std::mt19937_64 random(sample.seed);
  std::vector<ParallelStrategy> plans;
  // Fisher and Yates, one draw at a time; a remainder of 64 bits favours nothing that could be seen.
  for (std::size_t left = candidates.size(); left > 0 && plans.size() < sample.count; --left) {
    std::swap(candidates[random() % left], candidates[left - 1]);
    ParallelStrategy& plan = candidates[left - 1];
    if (std::holds_alternative<Infeasible>(fitter.fit(plan)) || dropped(rules, job.model, plan)) continue;
    const Topology topology(job.cluster, plan.nodes);
    if (!cut_route(book.price(plan, topology), topology)) plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace orrery
