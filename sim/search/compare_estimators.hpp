// Every analytical estimator against the replay, over many plans.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/statistics.hpp"
#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

// A plan that can be priced when its turn comes: thousands of priced plans would not fit in memory.
struct PlayablePlan {
  Topology topology;
  PricedPlan plan;
};
using PlanSource = std::function<PlayablePlan(std::size_t index)>;

struct EstimatorErrors {
  std::string name;
  ErrorSummary errors;
  double spearman = 0, kendall = 0;  // NaN where all plans take the same time
  double top1_regret = 0;            // of trusting it: 0.1 is ten per cent slower than the best plan
};

struct Comparison {
  std::vector<double> replay;                  // s, of one iteration, by plan
  std::vector<std::vector<double>> estimates;  // [estimator][plan], s
};

// Replays each plan in a process of its own, `jobs` at once; `done` hears how many are over.
Comparison compare_estimators(std::size_t plans, const PlanSource&, int jobs,
                              const std::function<void(std::size_t)>& done);
// In the order of estimators().
std::vector<EstimatorErrors> errors_of(const Comparison&);

std::string to_text(const std::vector<EstimatorErrors>&);
std::string comparison_json(const Comparison&, const std::vector<EstimatorErrors>&);

}  // namespace orrery
