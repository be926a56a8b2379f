// One plan of a search: estimated, its money, and whether it is within the job's limits.
#pragma once

#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "costmodels/estimate/estimate.hpp"
#include "sim/bounds/feasibility.hpp"
#include "sim/search/search.hpp"

namespace orrery {

// An iteration takes longer than what was asked about.
struct TooSlow {};
using PlayedPlan = std::variant<RatedPlan, Infeasible, TooSlow>;

// What is known of a plan that was played as far as an iteration takes no longer than `most`.
struct EstimatedPlan {
  RatedPlan plan;  // rated where `iteration` is there
  Seconds most;
  std::optional<Infeasible> is_cut;    // a link that it needs is down
  Seconds least;                       // of an iteration, by the prices of its parts
  std::optional<Infeasible> too_full;  // its stages, by the programs of a schedule built for the durations
  std::optional<Seconds> iteration;    // absent: it takes longer than `most`
};

class PlanPlayer {
 public:
  PlanPlayer(const SearchJob& job, const PriceBook& book, StageFitter& fitter)
      : job_(job), book_(book), fitter_(fitter) {}

  // By the exact recurrence, which stops where the iteration is known to take longer than `most`. `memory`:
  // as the fitter found it. Infeasible of kind budget where the plan was estimated and is beyond a limit of
  // the job.
  PlayedPlan play(ParallelStrategy, std::vector<StageMemory> memory, Seconds most);
  // The same in two steps: what costs the time, and what it means for a `most` that is no longer.
  EstimatedPlan estimate(ParallelStrategy, std::vector<StageMemory> memory, Seconds most);
  [[nodiscard]] PlayedPlan within(EstimatedPlan, Seconds most) const;

 private:
  // Programs of one shape serve many plans: bytes and seconds are not in them.
  struct ProgramKey {
    ScheduleShape shape;
    int replicas;
    bool context, distributed_optimizer, gathered_in_passes, overlap_grad_reduce, overlap_param_gather;
    std::vector<int> replica_microbatches;
    bool operator==(const ProgramKey&) const = default;
  };
  const PlanPrograms& programs_for(const PricedPlan&, const ParallelStrategy&);
  const Topology& topology_for(const std::vector<int>& nodes);

  const SearchJob& job_;
  const PriceBook& book_;
  StageFitter& fitter_;
  std::vector<std::pair<ProgramKey, PlanPrograms>> programs_;  // a few, oldest first
  std::map<std::vector<int>, Topology> topologies_;
};

}  // namespace orrery
