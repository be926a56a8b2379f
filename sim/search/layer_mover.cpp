#include "sim/search/layer_mover.hpp"

#include <algorithm>

#include "sim/bounds/plan_bound.hpp"

namespace orrery {
namespace {

constexpr int kMostEstimates = 40, kFewEstimates = 4;
constexpr std::size_t kFirst = 10;
// Faster by less is the same time in another order of sums.
constexpr double kRounding = 1 - 1e-9;

using Counts = std::vector<int>;  // layers of each part

Counts counts_of(const ParallelStrategy& plan) {
  Counts counts;
  for (const LayerRange& part : plan.parts) counts.push_back(part.count);
  return counts;
}

ParallelStrategy with_counts(ParallelStrategy plan, const Counts& counts) {
  int next = 0;
  for (std::size_t part = 0; part < counts.size(); ++part) {
    plan.parts[part] = {next, counts[part]};
    next += counts[part];
  }
  return plan;
}

// Parts of each kind, in the order of the model.
std::vector<std::vector<std::size_t>> kinds_of(const ParallelStrategy& plan) {
  std::vector<std::vector<std::size_t>> kinds;
  const std::size_t last = plan.parts.size() - 1;
  const auto devices = [&](std::size_t part) {
    return plan.stages[static_cast<std::size_t>(plan.rank_of_part(static_cast<int>(part)))];
  };
  for (std::size_t part = 0; part <= last; ++part) {
    const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const std::vector<std::size_t>& kind) {
      return kind.front() > 0 && part < last && devices(kind.front()) == devices(part);
    });
    if (known == kinds.end())
      kinds.push_back({part});
    else
      known->push_back(part);
  }
  return kinds;
}

// `number` layers from the fullest parts of a kind, the first ones first, to the emptiest of another, the
// last ones first: those hold fewer microbatches.
Counts moved(Counts counts, const std::vector<std::size_t>& from, const std::vector<std::size_t>& to,
             int number) {
  const auto fewer = [&](std::size_t a, std::size_t b) { return counts[a] < counts[b]; };
  for (int layer = 0; layer < number; ++layer) {
    --counts[*std::max_element(from.begin(), from.end(), fewer)];
    ++counts[*std::min_element(to.rbegin(), to.rend(), fewer)];
  }
  return counts;
}

std::vector<Counts> moves(const ParallelStrategy& plan) {
  const Counts counts = counts_of(plan);
  const auto kinds = kinds_of(plan);
  std::vector<Counts> all;
  for (const auto& from : kinds) {
    int most = 0, fullest = 0;  // layers, and parts that have as many
    for (const std::size_t part : from) most = std::max(most, counts[part]);
    for (const std::size_t part : from) fullest += counts[part] == most ? 1 : 0;
    if (most < 2) continue;
    for (const auto& to : kinds) {
      if (Counts one = moved(counts, from, to, 1); one != counts) all.push_back(std::move(one));
      if (fullest > 1 && &from != &to) all.push_back(moved(counts, from, to, fullest));
    }
  }
  return all;
}

}  // namespace

int plans_to_move(const ClusterSpec& cluster) {
  constexpr int kOfSeveralGroups = 30;
  return cluster.groups.size() > 1 ? kOfSeveralGroups : static_cast<int>(kFirst);
}

RatedPlan LayerMover::improved(RatedPlan plan, std::size_t rank) {
  const ParallelStrategy& strategy = plan.strategy;
  if (strategy.pipeline == 1 || !strategy.replicas.empty()) return plan;
  const int of_step = rank < kFirst ? kMostEstimates : kFewEstimates;
  for (int left = kMostEstimates; left > 0;) {
    const int given = std::min(of_step, left);
    estimates_left_ = given;
    auto better = step(plan);
    if (!better) break;
    plan = std::move(*better);
    left -= given - estimates_left_;
  }
  return plan;
}

// Those with the least bound first: no other can be faster than what is found once it is not.
std::optional<RatedPlan> LayerMover::step(const RatedPlan& plan) {
  std::vector<std::pair<Seconds, ParallelStrategy>> tries;
  for (const Counts& counts : moves(plan.strategy)) {
    ParallelStrategy strategy = with_counts(plan.strategy, counts);
    const Seconds least = least_plan_time(book_, strategy);
    if (least < plan.iteration) tries.emplace_back(least, std::move(strategy));
  }
  std::stable_sort(tries.begin(), tries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::optional<RatedPlan> best;
  for (auto& [least, strategy] : tries) {
    const Seconds known = best ? best->iteration : plan.iteration;
    if (least >= known || estimates_left_ == 0) break;
    std::vector<StageMemory> memory = fitter_.memory_of(strategy);
    if (fitter_.too_full(strategy, memory) || rules_.dropping(strategy) != nullptr) continue;
    --estimates_left_;
    auto played = player_.play(std::move(strategy), std::move(memory), known);
    auto* rated = std::get_if<RatedPlan>(&played);
    if (rated != nullptr && rated->iteration < known * kRounding) best = std::move(*rated);
  }
  return best;
}

}  // namespace orrery
