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

std::vector<LinkLoad> loads_of(const Topology& topology, const std::vector<Flow>& flows) {
  std::vector<LinkLoad> loads;
  std::map<int, std::map<Seconds, Seconds>> of_links;  // busy by latency of the flow
  const bool shared = flows.size() > 1 && topology.cluster().contention == Contention::shared;
  for (const Flow& flow : flows) {
    if (flow.route.count > 0) loads.push_back({flow.path.latency, flow.wire / flow.path.bandwidth});
    for (int i = 0; shared && i < flow.route.count; ++i) {
      const int link = flow.route.links[static_cast<std::size_t>(i)];
      of_links[link][flow.path.latency] +=
          flow.wire / topology.links()[static_cast<std::size_t>(link)].spec.bandwidth;
    }
  }
  for (const auto& [link, by_latency] : of_links) {
    Seconds busy;
    for (auto late = by_latency.rbegin(); late != by_latency.rend(); ++late) {
      busy += late->second;
      loads.push_back({late->first, busy});
    }
  }
  return loads;
}

Seconds together(const Topology& topology, const std::vector<Flow>& flows) {
  return each_together(topology, {&flows}).front();
}

std::vector<Seconds> each_together(const Topology& topology, const std::vector<const std::vector<Flow>*>& sets) {
  std::size_t count = 0;
  for (const std::vector<Flow>* set : sets) count += set->size();
  const bool shared = count > 1 && topology.cluster().contention == Contention::shared;
  std::map<int, std::map<Seconds, Seconds>> loads;  // of every link crossed: busy by latency of the flow
  for (const std::vector<Flow>* set : sets) {
    for (const Flow& flow : *set) {
      for (int i = 0; shared && i < flow.route.count; ++i) {
        const int link = flow.route.links[static_cast<std::size_t>(i)];
        loads[link][flow.path.latency] +=
            flow.wire / topology.links()[static_cast<std::size_t>(link)].spec.bandwidth;
      }
    }
  }
  // What comes to a link after some latency is carried after it.
  std::map<int, Seconds> ends;
  for (const auto& [link, load] : loads) {
    Seconds busy;
    for (auto late = load.rbegin(); late != load.rend(); ++late) {
      busy += late->second;
      ends[link] = std::max(ends[link], late->first + busy);
    }
  }
  std::vector<Seconds> times;
  for (const std::vector<Flow>* set : sets) {
    Seconds longest;
    for (const Flow& flow : *set) {
      if (flow.route.count > 0)
        longest = std::max(longest, flow.path.latency + flow.wire / flow.path.bandwidth);
      for (int i = 0; shared && i < flow.route.count; ++i)
        longest = std::max(longest, ends[flow.route.links[static_cast<std::size_t>(i)]]);
    }
    times.push_back(longest);
  }
  return times;
}

}  // namespace orrery
