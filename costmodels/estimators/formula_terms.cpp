#include "costmodels/estimators/formula_terms.hpp"

#include <algorithm>
#include <numeric>

#include "costmodels/collectives/collective_choice.hpp"

namespace orrery {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

double slowness(const PricedPlan& plan, int stage) {
  double slowest = plan.slowness.empty() ? 1.0 : 0.0;
  for (int replica = 0; replica < plan.replicas && !plan.slowness.empty(); ++replica) {
    slowest = std::max(slowest, plan.slowness[at(replica * plan.stages() + stage)]);
  }
  return slowest;
}

std::vector<Seconds> tails(const FormulaInput& input) {
  std::vector<Seconds> tail(at(input.plan.stages()));
  const Schedule& schedule = input.programs.of(0);
  const std::size_t slots = schedule.collectives.size() / at(schedule.iterations);  // those of one iteration
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const int instance = input.flows.instance(static_cast<int>(slot), 0);
    const Seconds alone = time_alone(input.topology, input.flows.collective(instance).phases);
    std::vector<int> stages = input.flows.members(instance);
    for (int& member : stages) member %= input.plan.stages();
    std::sort(stages.begin(), stages.end());
    stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
    for (const int stage : stages) tail[at(stage)] += alone;
  }
  for (std::size_t stage = 0; stage < input.plan.optimizer.size(); ++stage) {
    tail[stage] += input.plan.optimizer[stage];
  }
  return tail;
}

}  // namespace

FormulaTerms formula_terms(const FormulaInput& input) {
  const PricedPlan& plan = input.plan;
  FormulaTerms terms;
  terms.compute.resize(at(plan.stages()));
  terms.transfer.resize(at(plan.stages()));
  for (std::size_t part = 0; part < plan.parts.size(); ++part) {
    const PartTimes& times = plan.parts[part];
    const int stage = plan.rank_of_part(static_cast<int>(part));
    terms.compute[at(stage)] +=
        (times.forward + times.backward + times.weight_gradient) * slowness(plan, stage);
  }
  for (int boundary = 0; boundary + 1 < static_cast<int>(plan.parts.size()); ++boundary) {
    const auto alone = [&](bool gradient) {
      return together(input.topology, input.flows.message(0, boundary, gradient));
    };
    terms.transfer[at(plan.rank_of_part(boundary))] += alone(false);
    terms.transfer[at(plan.rank_of_part(boundary + 1))] += alone(true);
  }
  terms.microbatches = plan.schedule.microbatches;
  if (!plan.replica_microbatches.empty()) {
    terms.microbatches =
        *std::max_element(plan.replica_microbatches.begin(), plan.replica_microbatches.end());
  }
  terms.tail = largest(tails(input));
  return terms;
}

Seconds sum(const std::vector<Seconds>& times) {
  return std::accumulate(times.begin(), times.end(), Seconds(0));
}

Seconds largest(const std::vector<Seconds>& times) {
  return times.empty() ? Seconds(0) : *std::max_element(times.begin(), times.end());
}

}  // namespace orrery
