#include "sim/search/search_job.hpp"

#include <cmath>

#include "costmodels/money/interruptions.hpp"
#include "strategies/placement.hpp"

namespace orrery {
namespace {

void off_unless_said(std::vector<std::optional<bool>>& choices) {
  for (std::optional<bool>& choice : choices) choice = choice.value_or(false);
}

// Groups that nobody has said the price of.
std::string unpriced(const ClusterSpec& cluster) {
  std::string names;
  for (const NodeGroup& group : cluster.groups) {
    if (!group.price) names += (names.empty() ? "group " : ", ") + group.name;
  }
  return names;
}

}  // namespace

double SearchJob::iterations() const {
  return std::ceil(total_tokens / tokens_per_iteration());
}

Seconds held_time(const SearchJob& job, const ParallelStrategy& strategy, Seconds iteration) {
  return iteration * interruptions(job.cluster, nodes_in_use(strategy, job.cluster)).stretch;
}

std::optional<RunCost> job_cost(const SearchJob& job, const ParallelStrategy& strategy, Seconds held,
                                Dollars egress) {
  return run_cost(job.cluster, strategy.nodes, held, job.tokens_per_iteration(), job.total_tokens, egress);
}

std::optional<std::string> limit_obstacle(const SearchJob& job, Seconds total_time,
                                          const std::optional<RunCost>& cost) {
  if (job.deadline && total_time > *job.deadline) return "later than the deadline";
  if (!job.budget || (cost && cost->total <= *job.budget)) return std::nullopt;
  return cost ? std::string("over the budget")
              : "no price, so the budget cannot be checked: " + unpriced(job.cluster);
}

SearchJob as_stack_can(SearchJob job, const SoftwareStack& stack) {
  if (!stack.overlap_grad_reduce) off_unless_said(job.space.overlap_grad_reduce);
  if (!stack.overlap_grad_reduce || !stack.overlap_param_gather)
    off_unless_said(job.space.overlap_param_gather);
  return job;
}

}  // namespace orrery
