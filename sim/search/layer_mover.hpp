// Layers moved between the parts of a plan, its stages or virtual stages, for as long as its estimate falls.
#pragma once

#include "sim/bounds/feasibility.hpp"
#include "sim/search/plan_player.hpp"
#include "strategies/rule_book.hpp"

namespace orrery {

// How many of the fastest plans of a search are worth moving: ten, of several node groups, whose parts
// differ, thirty. In 44 searches of those no plan further back came out first.
int plans_to_move(const ClusterSpec&);

// The split of the layers with the least pipeline time knows nothing of transfers and reductions; the
// estimate does.
class LayerMover {
 public:
  LayerMover(const PriceBook& book, StageFitter& fitter, PlanPlayer& player, RuleBook& rules)
      : book_(book), fitter_(fitter), player_(player), rules_(rules) {}

  // Local search, steepest descent: parts on the same devices are one kind, the first and the last are kinds
  // of their own; a step moves one layer from the fullest part of one kind to the emptiest of another or of
  // its own, or one from each of the fullest. Every plan on the way fits, and no rule drops it. At most 40
  // estimates, of plans after the tenth four a step; the plan itself where none is faster, and with unlike
  // replicas. `rank`: of the plan as it is, from 0.
  RatedPlan improved(RatedPlan, std::size_t rank = 0);

 private:
  std::optional<RatedPlan> step(const RatedPlan&);

  const PriceBook& book_;
  StageFitter& fitter_;
  PlanPlayer& player_;
  RuleBook& rules_;
  int estimates_left_ = 0;
};

}  // namespace orrery
