// Orders of tasks made by playing a pipeline of given durations: whenever a rank is free, a policy says what
// it does next (list scheduling, with the freedoms of arXiv 2401.10241, section 3.1).
#pragma once

#include <vector>

#include "strategies/task_order.hpp"

namespace orrery {

// What a free rank does next. Backwards come before forwards come before weight gradients, but:
struct ListPolicy {
  bool alternate = false;  // after a backward a forward goes first, and the weight gradient it needs room for
  bool newest_first = false;  // of two chunks the one whose work began last goes first, not the most advanced
  double fill = 0;      // an idle rank starts a weight gradient if nothing else comes for this share of it
  int most_owed = 0;    // with more weight gradients than this to come, one goes before all else; 0: no limit
  double patience = 0;  // a forward is not started if a gradient comes within this share of it
};

// One order a rank, complete and without deadlock, in which no rank exceeds its limits. `layout`: the parts
// of a schedule that splits the backward, without programs. Deterministic.
std::vector<TaskOrder> list_orders(const Schedule& layout, const ScheduleTimes&,
                                   const std::vector<AliveLimits>&, const ListPolicy&);

}  // namespace orrery
