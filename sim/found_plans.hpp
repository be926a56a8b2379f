// What a search has found: plans played and the best of them, every other candidate counted under a reason.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "sim/best_plans.hpp"
#include "sim/plan_player.hpp"
#include "sim/search.hpp"
#include "strategies/rule_book.hpp"

namespace orrery {

// The place in the enumeration: ways or mix, stage counts, order of the groups, setting.
using CandidatePlace = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t, std::uint32_t>;

// A candidate with its layers split in some way that fits and its overlaps chosen.
struct Split {
  ParallelStrategy plan;
  std::vector<StageMemory> memory;
  Seconds least;  // of an iteration
};

class FoundPlans {
 public:
  // Counts in the result, which outlives this, as all that is given does.
  FoundPlans(const SearchJob&, const PriceBook&, StageFitter&, RuleBook&, SearchResult&);

  void reject(InfeasibleKind, const std::string& reason, std::size_t count = 1);
  void reject(const Infeasible&);
  // Those of a candidate that no rule drops; counts it where none is left.
  [[nodiscard]] std::vector<ParallelStrategy> left_by_rules(std::vector<ParallelStrategy>);
  // Whether a feasible candidate that takes so long at least is beyond a limit; counts it either way.
  [[nodiscard]] bool beyond_limits(const ParallelStrategy&, Seconds least);

  // Of an iteration on the nodes of a plan.
  [[nodiscard]] Least least(const ParallelStrategy&, Seconds) const;
  // False only for a plan that is beyond the limits, or can be neither among the fastest nor on the front;
  // and then for what takes longer and costs more too.
  [[nodiscard]] bool may_matter(const Least& least) const { return best_.may_matter(least); }
  [[nodiscard]] bool may_matter(const ParallelStrategy& plan, Seconds time) const {
    return best_.may_matter(least(plan, time));
  }

  [[nodiscard]] const BestPlans& best() const { return best_; }

  // Plays the splits of a candidate that may matter and that no rule drops, and takes the fastest, of equally
  // fast ones the first.
  void play(std::vector<Split>, const CandidatePlace&);

  // The fastest, with their layers moved on, and the front; fastest first. Leaves nothing behind.
  [[nodiscard]] std::vector<RatedPlan> take_best();

 private:
  struct Rated {
    RatedPlan plan;
    Seconds held;  // for one iteration, interruptions included
    CandidatePlace place;
  };
  [[nodiscard]] std::optional<std::string> limit_obstacle_of(const ParallelStrategy&, Seconds least) const;
  [[nodiscard]] Seconds most_that_matters(const ParallelStrategy&, Seconds least) const;
  PlayedPlan play(Split, Seconds most);
  void take(PlayedPlan, const CandidatePlace&);
  void move_layers();
  void select(int top);

  const SearchJob& job_;
  const PriceBook& book_;
  StageFitter& fitter_;
  RuleBook& rules_;
  SearchResult& result_;
  PlanPlayer player_;
  BestPlans best_;
  std::vector<Rated> rated_;
};

}  // namespace orrery
