// The plans of a search played event by event, ranked, with their traces written.
#pragma once

#include <string>
#include <vector>

#include "sim/replay/plan_run.hpp"
#include "sim/replay/progress.hpp"
#include "sim/search/search_report.hpp"

namespace orrery {

// "out/trace" 7 ".h5" -> "out/trace-07.h5".
std::string numbered(const std::string& stem, int rank, const std::string& extension);

struct ReplayOrder {
  const SearchJob& job;
  const PriceBook& book;
  const CostModels& costs;
  const RunOrigin& origin;
  std::string folder;  // of the traces: trace-01.h5 is that of the plan of rank 1
  int jobs = 1;        // processes at once
};

// Every plan in a child of its own. Plans whose replay is later than the deadline or over the budget are left
// out, and counted as rejected. Fastest first.
std::vector<ReportedPlan> replay_plans(const ReplayOrder&, std::vector<RatedPlan> plans,
                                       SearchSpaceCounts& counts, Progress&);

}  // namespace orrery
