// Everything that a plan sends, by kind of transfer.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "costmodels/estimate/shared_links.hpp"
#include "costmodels/estimate/traffic.hpp"
#include "costmodels/plans/priced_plan.hpp"

namespace orrery {

class PlanTransfers {
 public:
  PlanTransfers(const PricedPlan&, const PlanPrograms&, const Topology&, const TrafficFlows&);

  [[nodiscard]] int of_message(int replica, int boundary, bool gradient) const {
    return (replica * boundaries_ + boundary) * 2 + (gradient ? 1 : 0);
  }
  [[nodiscard]] int of_phase(const FlowPhase& phase) const { return kinds_.at(&phase.flows); }

  double alone(int kind);  // s

  // Whether any is played as meeting another.
  [[nodiscard]] bool may_meet() const { return may_meet_; }

  // Seconds that the busiest link needs for so many transfers of each kind.
  [[nodiscard]] double busiest(const std::vector<double>& counts);
  [[nodiscard]] std::size_t kinds() const { return all_.size(); }

  // Absent unless they may meet.
  [[nodiscard]] std::optional<SharedLinks> shared_links();

 private:
  struct Kind {
    const std::vector<Flow>* flows = nullptr;
    int replica = -1;                                  // that sends alone; -1: several
    bool meets_itself = false;                         // see TransferKind
    double alone = -1;                                 // s; below 0: not yet known
    std::optional<std::vector<LinkDemand>> uses = {};  // absent: not yet known
  };
  [[nodiscard]] const std::vector<LinkDemand>& uses(std::size_t kind);
  void add_phases(const std::vector<FlowPhase>&, int replica);
  int add(const std::vector<Flow>&, int replica, bool meets_itself);

  const PricedPlan& plan_;
  const Topology& topology_;
  int boundaries_ = 0;
  bool may_meet_ = true;
  std::vector<Kind> all_;
  std::unordered_map<const std::vector<Flow>*, int> kinds_;
};

}  // namespace orrery
