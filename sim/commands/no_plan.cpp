// What a search says when it has no plan: why, and what would change that.
#include "sim/commands/no_plan.hpp"

#include <algorithm>

#include "sim/commands/inputs.hpp"
#include "sim/commands/plan_file.hpp"

namespace orrery {
namespace {

// The groups that no budget can be held against.
std::string without_price(const SearchJob& job) {
  std::string names;
  for (const NodeGroup& group : job.cluster.groups) {
    if (!group.price) names += (names.empty() ? "" : ", ") + group.name;
  }
  return names.empty() ? "" : "a budget needs `price` in the cluster file for: " + names + "\n";
}

std::string listed(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

// Why there is not even one candidate.
std::string no_candidate(const SearchJob& job) {
  std::string nodes;
  for (const NodeGroup& group : job.cluster.groups) {
    nodes += (nodes.empty() ? "" : ", ") + group.name + ": " + std::to_string(group.count.maximum) + " of " +
             std::to_string(group.gpus_per_node) + " GPUs";
  }
  return "no number of stages fills whole nodes (" + nodes +
         "). A stage has T x C x D GPUs; --space leaves T: " + listed(job.space.tensor) +
         ", C: " + listed(job.space.context) + " and " +
         (job.space.stages.empty() ? "at most " + std::to_string(job.space.most_stages)
                                   : listed(job.space.stages)) +
         " stages, --global-batch the divisors of " + std::to_string(job.global_batch) + " as D\n";
}

// What the cheapest and the fastest plan would take if there were no limits on money and time.
std::string without_limits(SearchJob job, std::vector<Rule>& rules, const CostModels& costs,
                           const CommandLine& line) {
  job.budget = std::nullopt;
  job.deadline = std::nullopt;
  job.top = 1;
  PriceBook book(job.model, job.cluster, {job.type, true, job.sequence, read_stack_option(line)});
  use_layer_profiles(line, book);
  const SearchResult result =
      search(job, rules, costs, book, [](const std::string&, std::size_t, std::size_t) {});
  if (result.plans.empty()) return "";
  const auto describe = [&](const RatedPlan& plan) {
    std::string text = fixed(to_hours(plan.total_time), 2) + " h";
    if (plan.cost) text += " and " + fixed(plan.cost->total.value(), 2) + " USD";
    return text + " on " + stages_text(job.cluster, plan.strategy);
  };
  std::string text = "without limits the fastest plan takes " + describe(result.plans.front()) + "\n";
  const auto cheapest =
      std::min_element(result.plans.begin(), result.plans.end(), [](const RatedPlan& a, const RatedPlan& b) {
        return a.cost && (!b.cost || a.cost->total < b.cost->total);
      });
  if (cheapest->cost) text += "and the cheapest " + describe(*cheapest) + "\n";
  return text;
}

// The rule that dropped most, where rules dropped all that was left.
std::string blamed_rule(const SearchSpaceCounts& counts) {
  if (counts.rejected.count(InfeasibleKind::budget) > 0) return "";
  const std::pair<const std::string, std::size_t>* worst = nullptr;
  for (const auto& reason : counts.reasons) {
    if (reason.first.rfind("rule: ", 0) == 0 && (worst == nullptr || reason.second > worst->second))
      worst = &reason;
  }
  if (worst == nullptr) return "";
  return "every plan that fits was dropped by a rule; most of them by " + worst->first.substr(6) + "\n";
}

std::string near_miss_text(const SearchJob& job, const NearMiss& miss) {
  const ParallelStrategy& plan = miss.plan;
  return "nearest to fitting: " + stages_text(job.cluster, plan) + ", T " + tensor_text(plan) + ", C " +
         std::to_string(plan.context) + ", D " + std::to_string(plan.data) + ", v " +
         std::to_string(plan.chunks) + ", mbs " + std::to_string(plan.micro_batch) + ", " +
         switches_text(plan) + ":\n" + miss.trouble.reason + "\n";
}

}  // namespace

std::string no_plan_text(const SearchReport& report, const SearchResult& result, std::vector<Rule>& rules,
                         const CostModels& costs, const CommandLine& line) {
  const SearchJob& job = *report.job;
  const auto& rejected = report.counts.rejected;
  const bool limited = rejected.count(InfeasibleKind::budget) > 0 || report.counts.pruned > 0;
  std::string text = "No feasible plan.\n" + counts_text(report.counts) + blamed_rule(report.counts);
  if (report.counts.enumerated == 0) text += no_candidate(job);
  if (limited) text += without_limits(job, rules, costs, line);
  if (limited && job.budget) text += without_price(job);
  if (result.nearest) text += near_miss_text(job, *result.nearest);
  return text;
}

}  // namespace orrery
