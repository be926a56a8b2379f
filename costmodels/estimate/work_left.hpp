// What ranks have left to do of the last iteration at the least: whether it can still end in time.
#pragma once

#include <vector>

#include "costmodels/estimate/paths_left.hpp"
#include "costmodels/estimate/plan_transfers.hpp"
#include "costmodels/estimate/traffic.hpp"
#include "costmodels/plans/priced_plan.hpp"

namespace orrery {

class WorkLeft {
 public:
  // `limit`: s, on what estimate() calls an iteration. Of a plan of one or two iterations.
  WorkLeft(const PricedPlan&, const PlanPrograms&, const TrafficFlows&, PlanTransfers&, double limit);

  // A rank is over with a step at `now`. `before`: s, the end of the iterations before the last, as far as it
  // is known.
  void done(int rank, std::size_t step, double now, double before);
  [[nodiscard]] bool is_beyond_limit() const { return beyond_; }

 private:
  [[nodiscard]] const std::vector<Step>& steps_of(int rank) const {
    return programs_.of(rank / plan_.stages()).programs[static_cast<std::size_t>(rank % plan_.stages())];
  }
  [[nodiscard]] std::vector<double> sent() const;
  [[nodiscard]] double least_path() const;
  void check(double least) { beyond_ = beyond_ || least > limit_; }

  const PricedPlan& plan_;
  const PlanPrograms& programs_;
  const TrafficFlows& flows_;
  PlanTransfers& transfers_;
  PathsLeft paths_;
  double limit_;
  std::vector<char> in_last_;  // [replica * P + stage]
  // Ranks that have not begun the last iteration. Until then nothing is known of it but its paths: where
  // transfers meet, a first iteration can take longer than a second.
  std::size_t behind_ = 0;
  bool beyond_ = false;
};

}  // namespace orrery
