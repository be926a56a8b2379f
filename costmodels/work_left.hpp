// What ranks have left to do of the last iteration at the least: whether it can still end in time.
#pragma once

#include <vector>

#include "costmodels/plan_transfers.hpp"
#include "costmodels/priced_plan.hpp"
#include "costmodels/traffic.hpp"

namespace orrery {

class WorkLeft {
 public:
  // `limit`: s, on what estimate() calls an iteration. Of a plan of one or two iterations.
  WorkLeft(const PricedPlan&, const PlanPrograms&, const TrafficFlows&, PlanTransfers&, double limit);

  // A rank is over with a step at `now`, the last of whose passes was of `iteration`. `before`: s, the end of
  // the iterations before the last, as far as it is known.
  void done(int rank, std::size_t step, int iteration, double now, double before);
  [[nodiscard]] bool is_beyond_limit() const { return beyond_; }

 private:
  struct RankWork {
    double left = 0;  // s, of the last iteration
    bool in_last = false;
  };
  [[nodiscard]] const std::vector<Step>& steps_of(int rank) const {
    return programs_.of(rank / plan_.stages()).programs[static_cast<std::size_t>(rank % plan_.stages())];
  }
  [[nodiscard]] std::vector<double> sent() const;
  [[nodiscard]] int iteration_of(int rank, std::size_t step, int current) const;
  double least_of_pass(const PartTimes&, StepKind, int rank);
  double least_of(int rank, std::size_t step, int iteration);
  void check(double least) { beyond_ = beyond_ || least > limit_; }

  const PricedPlan& plan_;
  const PlanPrograms& programs_;
  const TrafficFlows& flows_;
  PlanTransfers& transfers_;
  double limit_;
  std::vector<double> passes_;   // s, [(rank * chunks + chunk) * 3 + kind]; below 0: not yet known
  std::vector<RankWork> ranks_;  // [replica * P + stage]
  // Ranks that have not begun the last iteration. Until then nothing is known of it but its work: where
  // transfers meet, a first iteration can take longer than a second.
  std::size_t behind_ = 0;
  bool beyond_ = false;
};

}  // namespace orrery
