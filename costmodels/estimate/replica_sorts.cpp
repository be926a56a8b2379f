#include "costmodels/estimate/replica_sorts.hpp"

#include <compare>
#include <set>
#include <unordered_map>

#include "costmodels/estimate/shared_links.hpp"

namespace orrery {
namespace {

// Of a link, by a phase of a collective.
struct Ask {
  std::size_t collective, phase;
  double busy, flows, latency;
  auto operator<=>(const Ask&) const = default;
};
using Asks = std::vector<Ask>;

std::unordered_map<int, Asks> asks_by_link(const Topology& topology,
                                           const std::vector<const std::vector<FlowPhase>*>& collectives) {
  std::unordered_map<int, Asks> asks;
  for (std::size_t collective = 0; collective < collectives.size(); ++collective) {
    const std::vector<FlowPhase>& phases = *collectives[collective];
    for (std::size_t phase = 0; phase < phases.size(); ++phase) {
      for (const LinkDemand& use : uses_of(topology, phases[phase].flows))
        asks[use.link].push_back({collective, phase, use.busy, use.flows, use.latency});
    }
  }
  return asks;
}

// The four links of every lane of a replica, stage by stage.
std::vector<int> links_of(const PricedPlan& plan, const Topology& topology, const std::vector<int>& lanes,
                          int replica) {
  std::vector<int> links;
  for (int stage = 0; stage < plan.stages(); ++stage) {
    const std::vector<int>& gpus = plan.lanes(replica, stage);
    for (const int lane : lanes) {
      if (lane >= static_cast<int>(gpus.size())) continue;
      const int gpu = gpus[static_cast<std::size_t>(lane)];
      for (const int up : {topology.gpu_link_up(gpu), topology.nic_up(gpu)}) {
        links.push_back(up);
        links.push_back(up + 1);  // down
      }
    }
  }
  return links;
}

}  // namespace

std::vector<int> one_of_each_sort(const PricedPlan& plan, const Topology& topology,
                                  const std::vector<int>& lanes,
                                  const std::vector<const std::vector<FlowPhase>*>& collectives) {
  const auto asks = asks_by_link(topology, collectives);
  std::set<std::vector<Asks>> sorts;
  std::vector<int> firsts;
  for (int replica = 0; replica < plan.replicas; ++replica) {
    std::vector<Asks> of_replica;
    for (const int link : links_of(plan, topology, lanes, replica)) {
      const auto found = asks.find(link);
      of_replica.push_back(found == asks.end() ? Asks() : found->second);
    }
    if (sorts.insert(std::move(of_replica)).second) firsts.push_back(replica);
  }
  return firsts;
}

}  // namespace orrery
