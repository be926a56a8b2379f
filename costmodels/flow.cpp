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
  struct Load {
    Seconds busy;
    Seconds latency;  // the least of its flows': until then it is idle
  };
  std::map<int, Load> loads;  // of every link crossed
  Seconds longest;
  const bool shared = flows.size() > 1 && topology.cluster().contention == Contention::shared;
  for (const Flow& flow : flows) {
    if (flow.route.count > 0)
      longest = std::max(longest, flow.path.latency + flow.wire / flow.path.bandwidth);
    for (int i = 0; shared && i < flow.route.count; ++i) {
      const int link = flow.route.links[static_cast<std::size_t>(i)];
      Load& load = loads.try_emplace(link, Load{Seconds(0), flow.path.latency}).first->second;
      load.busy += flow.wire / topology.links()[static_cast<std::size_t>(link)].spec.bandwidth;
      load.latency = std::min(load.latency, flow.path.latency);
    }
  }
  for (const auto& [link, load] : loads) longest = std::max(longest, load.latency + load.busy);
  return longest;
}

}  // namespace orrery
