// The longest path from every step of the last iteration to its end, as long as nothing contends.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "costmodels/estimate/plan_transfers.hpp"
#include "costmodels/estimate/traffic.hpp"
#include "costmodels/plans/priced_plan.hpp"

namespace orrery {

// Goes through the programs from their ends: a step is followed by the next one of its rank, by what awaits
// its messages, and by the end of the collectives that it launches, each of which runs after the one before
// it. That a collective waits for its other members is left out.
class PathsLeft {
 public:
  PathsLeft(const PricedPlan&, const PlanPrograms&, const TrafficFlows&, PlanTransfers&);

  // Whether a step, or one before it, is a pass or a message of the last iteration.
  [[nodiscard]] bool has_begun(int rank, std::size_t step) const { return step >= of(rank).first; }
  // s, from the end of a compute or optimizer step that has begun it.
  [[nodiscard]] double after(int rank, std::size_t step) const {
    return of(rank).after[step - of(rank).first];
  }
  // s, from before the first step.
  [[nodiscard]] double whole(int rank) const { return of(rank).tail; }

 private:
  static constexpr double kNothing =
      -std::numeric_limits<double>::infinity();  // that the iteration lasts for

  struct RankPaths {
    std::size_t first = 0, next = 0;  // steps; `next` and those behind it have been passed
    double tail = kNothing;           // s, from before `next`
    double collectives = kNothing;    // s, from before the first of those that run behind `next`
    bool has_met = false;             // the exchange before `next`, from its other side
    std::map<int, double> awaited;    // [slot] s, from the end of a collective that is awaited behind `next`
    std::vector<double> after;        // [step - first] s
  };
  [[nodiscard]] const RankPaths& of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Schedule& schedule(int rank) const { return programs_.of(rank / plan_.stages()); }
  [[nodiscard]] const std::vector<Step>& steps_of(int rank) const {
    return schedule(rank).programs[static_cast<std::size_t>(rank % plan_.stages())];
  }
  [[nodiscard]] std::size_t first_of_last(int rank) const;
  void go_back(int rank);
  bool pass(int rank, std::size_t step);
  bool pass_compute(int rank, std::size_t step);
  bool pass_exchange(int rank, const Step&);
  void pass_collective(int rank, const Step&);
  double& arrival(int rank, MessageId);
  void wake_ends(int rank, MessageId);
  double sent_in(int rank, MessageId);
  double collective_in(int rank, const Step&);
  double computed_in(int rank, std::size_t step);
  double pass_in(const PartTimes&, StepKind, int rank);

  const PricedPlan& plan_;
  const PlanPrograms& programs_;
  const TrafficFlows& flows_;
  PlanTransfers& transfers_;
  std::vector<RankPaths> ranks_;            // [replica * P + stage]
  std::vector<std::size_t> first_message_;  // [replica]
  std::vector<double> arrivals_;            // [message] s, from its arrival; unknown: not yet known
  std::vector<std::uint8_t> met_;           // [message]: sides of an exchange that have been passed
  std::vector<double> passes_;              // s, [(rank * chunks + chunk) * 3 + kind]; below 0: not yet known
  std::vector<int> ready_;
};

}  // namespace orrery
