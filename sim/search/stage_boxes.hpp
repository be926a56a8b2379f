// Stage counts of some ways that may matter, found without looking at all of them.
#pragma once

#include <functional>
#include <vector>

#include "sim/bounds/time_bound.hpp"
#include "sim/search/best_plans.hpp"
#include "sim/search/candidates.hpp"

namespace orrery {

// Branch and bound over boxes of stage counts, from the least to the most stages of each group: a box is left
// out where none of the families could matter with the time of its most stages and the money of its cheapest
// ones, and else cut in two until it is one vector of counts.
class StageBoxes {
 public:
  // `bounds`: of each family of the case. What they are asked of must outlive them.
  StageBoxes(const SearchJob&, const WaysCase&, const std::vector<TimeBound>& bounds, const BestPlans&);

  // Calls visit(counts, families that may matter, as indices into WaysCase::families). In a fixed order.
  using Visit = std::function<void(const StageCounts&, const std::vector<std::uint32_t>&)>;
  void for_each(const Visit&);

 private:
  struct Box {
    StageCounts least, most;
  };
  void search(const Box&, const std::vector<std::uint32_t>& families, const Visit&);
  [[nodiscard]] Least least(const Box&, const TimeBound&) const;

  const SearchJob& job_;
  const WaysCase& case_;
  const std::vector<TimeBound>& bounds_;
  const BestPlans& best_;
  StageGrid grid_;
  std::vector<double> stage_rate_;  // [group] USD/s of a stage
  std::vector<double> fixed_rate_;  // [group] USD/s of the nodes that are paid for in any case
  bool priced_ = false;             // whether plans on the groups of the box have a price
};

}  // namespace orrery
