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

namespace {

using FlowSets = std::vector<const std::vector<Flow>*>;

// Of every link that flows share, by link: what comes to it after some latency is carried after it.
std::map<int, std::vector<LinkLoad>> shared_loads(const Topology& topology, const FlowSets& sets) {
  std::size_t count = 0;
  for (const std::vector<Flow>* set : sets) count += set->size();
  if (count < 2 || topology.cluster().contention != Contention::shared) return {};
  std::map<int, std::map<Seconds, Seconds>> busy_after;  // [link][latency of the flow]
  for (const std::vector<Flow>* set : sets) {
    for (const Flow& flow : *set) {
      for (int i = 0; i < flow.route.count; ++i) {
        const int link = flow.route.links[static_cast<std::size_t>(i)];
        busy_after[link][flow.path.latency] +=
            flow.wire / topology.links()[static_cast<std::size_t>(link)].spec.bandwidth;
      }
    }
  }
  std::map<int, std::vector<LinkLoad>> loads;
  for (const auto& [link, by_latency] : busy_after) {
    Seconds busy;
    for (auto late = by_latency.rbegin(); late != by_latency.rend(); ++late) {
      busy += late->second;
      loads[link].push_back({late->first, busy});
    }
  }
  return loads;
}

LinkLoad load_alone(const Flow& flow) {
  return {flow.path.latency, flow.wire / flow.path.bandwidth};
}

}  // namespace

std::vector<LinkLoad> loads_of(const Topology& topology, const std::vector<Flow>& flows) {
  std::vector<LinkLoad> loads;
  for (const Flow& flow : flows) {
    if (flow.route.count > 0) loads.push_back(load_alone(flow));
  }
  for (const auto& [link, shared] : shared_loads(topology, {&flows})) {
    loads.insert(loads.end(), shared.begin(), shared.end());
  }
  return loads;
}

Seconds together(const Topology& topology, const std::vector<Flow>& flows) {
  return each_together(topology, {&flows}).front();
}

std::vector<Seconds> each_together(const Topology& topology, const FlowSets& sets) {
  std::map<int, Seconds> ends;  // of the links
  for (const auto& [link, loads] : shared_loads(topology, sets)) {
    for (const LinkLoad& load : loads) ends[link] = std::max(ends[link], load.latency + load.busy);
  }
  std::vector<Seconds> times;
  for (const std::vector<Flow>* set : sets) {
    Seconds longest;
    for (const Flow& flow : *set) {
      if (flow.route.count == 0) continue;
      const LinkLoad alone = load_alone(flow);
      longest = std::max(longest, alone.latency + alone.busy);
      for (int i = 0; !ends.empty() && i < flow.route.count; ++i)
        longest = std::max(longest, ends[flow.route.links[static_cast<std::size_t>(i)]]);
    }
    times.push_back(longest);
  }
  return times;
}

}  // namespace orrery
