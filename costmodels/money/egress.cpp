#include "costmodels/money/egress.hpp"

#include <algorithm>
#include <vector>

#include "costmodels/estimate/traffic.hpp"

namespace orrery {
namespace {

DollarsPerGigabyte price_between(const ClusterSpec& cluster, const std::string& a, const std::string& b) {
  const RegionLink* link = link_between(cluster.fabric.regions, a, b);
  return link ? link->price : DollarsPerGigabyte();  // none: the network is given link by link
}

Dollars price_of(const std::vector<Flow>& flows, const Topology& topology) {
  Dollars sum;
  for (const Flow& flow : flows) {
    if (topology.same_region(flow.from, flow.to)) continue;
    const auto price = price_between(topology.cluster(), topology.group_of(flow.from).region,
                                     topology.group_of(flow.to).region);
    sum += price * flow.payload;
  }
  return sum;
}

Dollars price_of(const PlayedCollective& collective, const Topology& topology) {
  Dollars sum;
  for (const FlowPhase& phase : collective.phases) sum += price_of(phase.flows, topology);
  return sum;
}

}  // namespace

bool has_egress_price(const ClusterSpec& cluster) {
  return std::any_of(cluster.fabric.regions.begin(), cluster.fabric.regions.end(),
                     [](const RegionLink& link) { return link.price.value() > 0; });
}

Dollars egress_of(const PricedPlan& plan, const Topology& topology) {
  Dollars sum;
  if (!has_egress_price(topology.cluster())) return sum;
  const PlanPrograms programs = make_programs(plan);
  const TrafficFlows traffic(plan, programs, topology, Folding::off);
  for (int replica = 0; replica < plan.replicas; ++replica) {
    const Schedule& program = programs.of(replica);
    for (int boundary = 0; boundary < program.boundaries(); ++boundary) {
      for (const bool gradient : {false, true}) {
        sum += price_of(traffic.message(replica, boundary, gradient), topology) * program.all_microbatches();
      }
    }
  }
  std::vector<bool> seen(static_cast<std::size_t>(traffic.instances()), false);
  const int slots = traffic.instances() / plan.replicas;
  for (int slot = 0; slot < slots; ++slot) {
    for (int replica = 0; replica < plan.replicas; ++replica) {
      const int instance = traffic.instance(slot, replica);
      if (seen[static_cast<std::size_t>(instance)]) continue;
      seen[static_cast<std::size_t>(instance)] = true;
      sum += price_of(traffic.collective(instance), topology);
    }
  }
  return sum / plan.iterations;
}

}  // namespace orrery
