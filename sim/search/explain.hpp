// Why a plan ranks where it does among those of a search, or why it cannot run and what would let it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/search/search.hpp"

namespace orrery {

// A plan as the search would have judged it.
struct PlanVerdict {
  ParallelStrategy strategy;
  std::vector<StageMemory> memory;           // [kind * P + stage], of one GPU; empty without a shape
  std::optional<InfeasibleKind> infeasible;  // absent: it can run
  std::string reason;                        // when infeasible, in words
  std::optional<Seconds> iteration;          // estimated; absent where there is nothing to play
};

// One or two changes to a plan and what became of it; GPUs and batch stay.
struct TriedChange {
  std::string change;  // "recompute_granularity full"
  PlanVerdict verdict;
};

struct BetterPlan {
  RatedPlan plan;
  std::vector<std::string> differences;  // "tensor_model_parallel_size 4 instead of 8"
};

struct Explanation {
  PlanVerdict plan;
  // Of a plan that can run: how many candidates are faster by estimate (`at_least`: more than were looked
  // at), of how many feasible ones; the first few of them.
  std::size_t faster = 0;
  bool at_least = false;
  std::size_t feasible = 0;
  std::vector<BetterPlan> better;
  // Of a plan that cannot: all single changes, and where none of them helps all pairs of changes that do.
  // Those that can run come first, fastest first.
  std::vector<TriedChange> tried;
};

// `book` has not predicted yet; afterwards it prices the plan and what was tried.
Explanation explain(const SearchJob&, std::vector<Rule>&, const CostModels&, PriceBook& book,
                    const ParallelStrategy& plan, const SearchProgress&);

}  // namespace orrery
