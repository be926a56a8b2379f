#include "sim/search/sample_plans.hpp"

#include <algorithm>
#include <random>

#include "costmodels/plans/folding.hpp"
#include "platforms/errors.hpp"
#include "sim/bounds/feasibility.hpp"
#include "sim/search/candidates.hpp"
#include "strategies/megatron.hpp"
#include "strategies/obstacles.hpp"

namespace orrery {
namespace {

// They are listed, unlike those of a search.
constexpr std::size_t kMostListed = 4'000'000;

// All candidates that have a shape, as the search sees them before it looks at memory.
std::vector<ParallelStrategy> shaped_candidates(const SearchJob& job, PriceBook& book) {
  SearchJob equal = job;  // the formulas that are compared know one tensor degree
  equal.space.tensor_by_group = false;
  const CandidateSpace space = candidate_space(equal);
  if (space.shaped > kMostListed) {
    throw InputError(
        "cluster " + job.cluster.name, std::to_string(space.shaped) + " plans to draw from",
        "at most four million: fewer node groups, lower counts, or a --space with fewer choices");
  }
  std::vector<ParallelStrategy> candidates;
  for (const WaysCase& at : space.cases) {
    for_each_stage_counts(job.cluster, job.space, job.mode, at.ways, [&](const StageCounts& stages) {
      for (const Allocation& allocation : orders(job.cluster, space.alike, at.ways, stages)) {
        for (const Setting& setting : space.settings) {
          if (shape_obstacle(job.model, job.cluster, allocation, setting, job.global_batch, job.sequence))
            continue;
          candidates.push_back(strategy_of(allocation, setting, job.global_batch, job.sequence, job.type));
          book.need(candidates.back());
        }
      }
    });
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
