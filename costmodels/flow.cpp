#include "costmodels/flow.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery {

Bytes wire_bytes(Bytes payload, double efficiency) {
  return Bytes(std::max(1.0, std::round(payload.value() / efficiency)));
}

Flow make_flow(const Topology& topology, int from, int to, Bytes payload,
               const TransferEfficiency& efficiency) {
  const double reached = topology.same_node(from, to) ? efficiency.inside : efficiency.between;
  return {from, to, wire_bytes(payload, reached), payload, topology.route(from, to), topology.path(from, to)};
}

Seconds together(const Topology& topology, const std::vector<Flow>& flows) {
  std::map<int, std::map<Seconds, Seconds>> loads;  // of every link crossed: busy by latency of the flow
  Seconds longest;
  const bool shared = flows.size() > 1 && topology.cluster().contention == Contention::shared;
  for (const Flow& flow : flows) {
    if (flow.route.count > 0)
      longest = std::max(longest, flow.path.latency + flow.wire / flow.path.bandwidth);
    for (int i = 0; shared && i < flow.route.count; ++i) {
      const int link = flow.route.links[static_cast<std::size_t>(i)];
      loads[link][flow.path.latency] +=
          flow.wire / topology.links()[static_cast<std::size_t>(link)].spec.bandwidth;
    }
  }
  // What comes to a link after some latency is carried after it.
  for (const auto& [link, load] : loads) {
    Seconds busy;
    for (auto late = load.rbegin(); late != load.rend(); ++late) {
      busy += late->second;
      longest = std::max(longest, late->first + busy);
    }
  }
  return longest;
}

}  // namespace orrery
