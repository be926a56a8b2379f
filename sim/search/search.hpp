// The search: candidates in, the best plans out, every rejection counted.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "costmodels/memory/memory.hpp"
#include "costmodels/models/cost_models.hpp"
#include "costmodels/money/money.hpp"
#include "costmodels/plans/price_book.hpp"
#include "platforms/errors.hpp"
#include "sim/search/search_job.hpp"
#include "strategies/rules.hpp"

namespace orrery {

struct RatedPlan {
  ParallelStrategy strategy;
  std::vector<StageMemory> memory;  // [kind * P + stage], of one GPU
  Seconds iteration;                // by the exact recurrence
  Seconds total_time;               // of the whole job, interruptions included
  std::optional<RunCost> cost;      // absent where a price is not known
  bool on_front = false;            // of (total time, total money)
  bool among_fastest = false;       // of SearchJob::top
};

struct SearchSpaceCounts {
  std::size_t enumerated = 0;
  std::map<InfeasibleKind, std::size_t> rejected;
  std::map<std::string, std::size_t> reasons;  // of the rejected, in words
  // Cannot be among the best, or within the limits, whatever their memory, by a bound that asks neither how
  // their layers are split nor how their groups are ordered. With any of these the counts of rules, memory
  // and budget are of the others alone.
  std::size_t pruned = 0;
  std::size_t evaluated = 0;  // feasible: priced and bounded from below
  std::size_t estimated = 0;  // of which the exact recurrence was played: the others cannot be among the best
  std::size_t operators = 0;  // operator shapes priced in the one batch
  bool operator==(const SearchSpaceCounts&) const = default;
};

struct SearchTimes {
  Seconds enumerate, predict, estimate;
};

// A candidate that memory rejects.
struct NearMiss {
  ParallelStrategy plan;
  Infeasible trouble;
  double excess = 0;  // StageFitter::excess
};

struct SearchResult {
  std::vector<RatedPlan> plans;  // the fastest and the Pareto front together, fastest first
  SearchSpaceCounts counts;
  SearchTimes elapsed;
  std::optional<NearMiss> nearest;  // to fitting, of a search whose candidates all lack a shape or memory
};

// Says what the search does now, and how many of how many are done.
using SearchProgress = std::function<void(const std::string& phase, std::size_t done, std::size_t total)>;

// Deterministic. The book it fills prices the plans again for their replay. Of every candidate the layers are
// split in two ways (StageFitter::fit, fit_equal), and overlaps that the space leaves open are off, or on
// where the stack knows them; what rules leave, fits and is within the limits is estimated, and the fastest
// of it is the candidate's plan. Found are the fastest of these plans and their front, the layers of the
// fastest ten moved on (layer_mover.hpp); pruning changes none of that.
SearchResult search(const SearchJob&, std::vector<Rule>& rules, const CostModels&, PriceBook& book,
                    const SearchProgress&);

}  // namespace orrery
