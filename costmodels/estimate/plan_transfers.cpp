#include "costmodels/estimate/plan_transfers.hpp"

#include <algorithm>

#include "costmodels/plans/folding.hpp"

namespace orrery {

PlanTransfers::PlanTransfers(const PricedPlan& plan, const PlanPrograms& programs, const Topology& topology,
                             const TrafficFlows& flows)
    : plan_(plan),
      topology_(topology),
      boundaries_(programs.programs.front().boundaries()),
      may_meet_(orrery::may_meet(plan, topology)) {
  for (int replica = 0; replica < flows.replicas(); ++replica) {
    for (int boundary = 0; boundary < boundaries_; ++boundary) {
      for (const bool gradient : {false, true})
        add(flows.message(replica, boundary, gradient), replica, true);
    }
  }
  const int slots = flows.instances() / flows.replicas();
  for (int slot = 0; slot < slots; ++slot) {
    const bool is_of_one = flows.replicas() > 1 && flows.instance(slot, 1) != flows.instance(slot, 0);
    for (int replica = 0; replica < (is_of_one ? flows.replicas() : 1); ++replica)
      add_phases(flows.collective(flows.instance(slot, replica)).phases, is_of_one ? replica : -1);
  }
  for (int rank = 0; rank < flows.ranks(); ++rank) {
    for (int call = 0; call < static_cast<int>(plan.calls.size()); ++call) {
      const bool over_replicas = flows.calls().is_over_replicas(call);
      add_phases(flows.calls().phases(rank, call), over_replicas ? -1 : rank / plan.stages());
    }
  }
}

int PlanTransfers::add(const std::vector<Flow>& flows, int replica, bool meets_itself) {
  const auto [at, is_new] = kinds_.try_emplace(&flows, static_cast<int>(all_.size()));
  if (is_new) all_.push_back({&flows, replica, meets_itself});
  return at->second;
}

void PlanTransfers::add_phases(const std::vector<FlowPhase>& phases, int replica) {
  for (const FlowPhase& phase : phases) add(phase.flows, replica, false);
}

double PlanTransfers::alone(int index) {
  Kind& kind = all_[static_cast<std::size_t>(index)];
  if (kind.alone < 0) kind.alone = together(topology_, *kind.flows).value();
  return kind.alone;
}

const std::vector<LinkDemand>& PlanTransfers::uses(std::size_t index) {
  Kind& kind = all_[index];
  if (!kind.uses) kind.uses = uses_of(topology_, *kind.flows);
  return *kind.uses;
}

double PlanTransfers::busiest(const std::vector<double>& counts) {
  std::vector<double> busy(topology_.links().size());
  for (std::size_t kind = 0; kind < all_.size(); ++kind) {
    if (counts[kind] == 0) continue;
    for (const LinkDemand& use : uses(kind))
      busy[static_cast<std::size_t>(use.link)] += counts[kind] * use.busy;
  }
  return *std::max_element(busy.begin(), busy.end());
}

std::optional<SharedLinks> PlanTransfers::shared_links() {
  if (!may_meet_) return std::nullopt;
  const int links = static_cast<int>(topology_.links().size());
  std::vector<TransferKind> kinds;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const Kind& kind = all_[i];
    kinds.push_back({uses(i), alone(static_cast<int>(i)), kind.meets_itself});
    if (!plan_.replicas_drift) continue;
    for (LinkDemand& use : kinds.back().uses) use.link += (kind.replica + 1) * links;  // as if its own
  }
  return SharedLinks(kinds);
}

}  // namespace orrery
