#include "costmodels/collectives/flow.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery {

Bytes wire_bytes(Bytes payload, double efficiency) {
  return Bytes(std::max(1.0, std::round(payload.value() / efficiency)));
}

Flow make_flow(const Topology& topology, int from, int to, Bytes payload,
               const TransferEfficiency& efficiency) {
  const double reached = topology.same_node(from, to) ? efficiency.inside : efficiency.between;
  const Route route = topology.route(from, to);
  return {from, to, wire_bytes(payload, reached), payload, route, topology.path(route)};
}

namespace {

struct LoadOfLink {
  int link = 0;
  LinkLoad load;
};

// Of every link that flows share, the first links first: what comes to it after some latency is carried after
// it, the longest latency first.
std::vector<LoadOfLink> shared_loads(const Topology& topology, const std::vector<Flow>& flows) {
  if (flows.size() < 2 || topology.cluster().contention != Contention::shared) return {};
  std::vector<LoadOfLink> loads;  // of each flow
  loads.reserve(3 * flows.size());
  for (const Flow& flow : flows) {
    for (int i = 0; i < flow.route.count; ++i) {
      const int link = flow.route.links[static_cast<std::size_t>(i)];
      loads.push_back(
          {link,
           {flow.path.latency, flow.wire / topology.links()[static_cast<std::size_t>(link)].spec.bandwidth}});
    }
  }
  // Flows of one link and latency stay in their order: sums are then the same whatever else is there.
  std::stable_sort(loads.begin(), loads.end(), [](const LoadOfLink& a, const LoadOfLink& b) {
    return std::pair(a.link, b.load.latency) < std::pair(b.link, a.load.latency);
  });
  std::size_t merged = 0;
  Seconds before;  // busy with what comes later
  for (std::size_t i = 0; i < loads.size();) {
    LoadOfLink sum = loads[i];
    std::size_t next = i + 1;
    for (;
         next < loads.size() && loads[next].link == sum.link && loads[next].load.latency == sum.load.latency;
         ++next)
      sum.load.busy += loads[next].load.busy;
    if (merged == 0 || loads[merged - 1].link != sum.link) before = Seconds(0);
    before += sum.load.busy;
    loads[merged++] = {sum.link, {sum.load.latency, before}};
    i = next;
  }
  loads.resize(merged);
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
  for (const LoadOfLink& shared : shared_loads(topology, flows)) loads.push_back(shared.load);
  return loads;
}

Seconds together(const Topology& topology, const std::vector<Flow>& flows) {
  Seconds longest;
  for (const LinkLoad& load : loads_of(topology, flows))
    longest = std::max(longest, load.latency + load.busy);
  return longest;
}

}  // namespace orrery
