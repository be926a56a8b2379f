// A search with its replays, and the tables and files made from it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/table.hpp"
#include "sim/bounds/memory_outlook.hpp"
#include "sim/replay/plan_run.hpp"
#include "sim/search/search.hpp"

namespace orrery {

struct ReportedPlan {
  int rank = 0;  // by replayed time, from 1
  RatedPlan plan;
  Totals estimate;
  ErrorBand band;
  [[nodiscard]] TimeRange estimate_interval() const { return interval(band, estimate.iteration); }
  Totals replayed;
  ReplaySummary replay;
  MemoryOutlook memory;
  std::vector<std::string> extrapolated;  // reasons
  std::string trace;                      // path
};

struct SearchReport {
  const SearchJob* job = nullptr;
  const PriceBook* book = nullptr;
  SearchSpaceCounts counts;
  SearchTimes elapsed;
  Seconds replay_elapsed, total_elapsed;
  std::vector<ReportedPlan> plans;  // by rank
  std::vector<int> pareto;          // ranks, fastest first, by replayed time and money
  std::string cost_models;          // digest of the models that priced them
};

// "16xA100 T8 | 8xH100 T8": GPU kinds of the stages in order.
std::string stages_text(const ClusterSpec&, const ParallelStrategy&);
// "8x9,10,10": layers of each stage, repeats folded.
std::string layers_text(const ParallelStrategy&);
// "4", or "8/4" where stages differ, in their order.
std::string tensor_text(const ParallelStrategy&);
// "sp do re-full:4", as the legend of the search explains; "-" for none.
std::string switches_text(const ParallelStrategy&);

// Ranks of the plans that answer the two questions of a budget owner, among those within budget and deadline;
// equal ones: the first. Absent where no price is known.
struct Answers {
  int fastest = 1;
  std::optional<int> cheapest;
};
Answers answers(const SearchReport&);
// Both with their limits, time and money, interruptions, egress and energy in a few lines.
std::string answers_text(const SearchReport&);

// What the terminal shows, and plans.csv (of one plan at least).
Table terminal_table(const SearchReport&, const std::vector<int>& ranks);
Table csv_table(const SearchReport&);
// "2,276,736 candidates: ... rejected" in a few lines.
std::string counts_text(const SearchSpaceCounts&);

}  // namespace orrery
