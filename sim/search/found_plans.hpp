// What a search has found: plans played and the best of them, every other candidate counted under a reason.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "sim/search/best_plans.hpp"
#include "sim/search/play_ahead.hpp"
#include "sim/search/search.hpp"
#include "strategies/rule_book.hpp"

namespace orrery {

// Marks, of plans in the order of their times, the first `top` as among the fastest, and those on the front
// of time and money.
void mark_best(const std::vector<RatedPlan*>& fastest_first, int top);
inline bool is_marked(const RatedPlan& plan) {
  return plan.among_fastest || plan.on_front;
}

class FoundPlans {
 public:
  // Counts in the result, which outlives this, as all that is given does.
  FoundPlans(const SearchJob&, const PriceBook&, StageFitter&, RuleBook&, SearchResult&);

  void reject(InfeasibleKind, const std::string& reason, std::size_t count = 1);
  void reject(const Infeasible&);
  // Those of a candidate that no rule drops; counts it where none is left.
  [[nodiscard]] std::vector<ParallelStrategy> left_by_rules(std::vector<ParallelStrategy>);
  // Whether a feasible candidate that takes so long at least is beyond a limit, by more than moving its
  // layers may gain; counts it either way.
  [[nodiscard]] bool beyond_limits(const ParallelStrategy&, Seconds least);

  // Of an iteration on the nodes of a plan.
  [[nodiscard]] Least least(const ParallelStrategy&, Seconds) const;
  // False only for a plan that is so far beyond the limits, or that can be neither among the fastest nor on
  // the front; and then for what takes longer and costs more too.
  [[nodiscard]] bool may_matter(const Least& least) const { return best_.may_matter(least); }
  [[nodiscard]] bool may_matter(const ParallelStrategy& plan, Seconds time) const {
    return best_.may_matter(least(plan, time));
  }

  [[nodiscard]] const BestPlans& best() const { return best_; }

  // Plays the splits of a candidate that may matter and that no rule drops, and takes the fastest, of equally
  // fast ones the first.
  void play(std::vector<Split>, const CandidatePlace&);

  // Candidates whose turn comes soon are played on other threads meanwhile, a few at a time; what is found
  // does not depend on it.
  [[nodiscard]] bool plays_ahead() const { return ahead_.is_on(); }
  [[nodiscard]] bool may_begin() const { return ahead_.may_begin(); }
  [[nodiscard]] bool has_begun(const CandidatePlace& place) const { return ahead_.has(place); }
  void begin(std::vector<Split>, const CandidatePlace&);
  void drop_begun();  // those that no longer matter
  // The splits of one, as they are then known; absent where it was not begun.
  std::optional<std::vector<Split>> begun(const CandidatePlace& place) { return ahead_.take(place); }

  // The fastest, with their layers moved on, and the front; fastest first. Leaves nothing behind.
  [[nodiscard]] std::vector<RatedPlan> take_best();

 private:
  struct Rated {
    RatedPlan plan;
    Seconds held;  // for one iteration, interruptions included
    CandidatePlace place;
  };
  [[nodiscard]] static std::optional<std::string> limit_obstacle_of(const SearchJob&, const ParallelStrategy&,
                                                                    Seconds least);
  [[nodiscard]] Seconds most_that_matters(const ParallelStrategy&, Seconds least) const;
  PlayedPlan play(Split, Seconds most);
  void take(PlayedPlan, const CandidatePlace&);
  void reject_evaluated(const std::string& reason);
  std::vector<Rated> take_near_misses();
  void move_layers(std::vector<Rated>&);
  void select(int top);

  const SearchJob& job_;
  const SearchJob wider_;  // its limits, with what moving layers may gain
  const PriceBook& book_;
  StageFitter& fitter_;
  RuleBook& rules_;
  SearchResult& result_;
  PlanPlayer player_;
  PlayAhead ahead_;
  BestPlans best_;
  std::vector<Rated> rated_;
};

}  // namespace orrery
