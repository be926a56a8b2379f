// What one GPU sends another, as the links see it.
#pragma once

#include <vector>

#include "platforms/topology.hpp"
#include "platforms/units.hpp"

namespace orrery {

// Achieved share of the bandwidth of the narrowest link for transfers inside a node and between nodes; 1 is
// the data sheet. A flow of b bytes is played as b / efficiency bytes, so that alone it takes what the cost
// model says.
struct TransferEfficiency {
  double inside = 1.0;
  double between = 1.0;
  bool operator==(const TransferEfficiency&) const = default;
};

struct Flow {
  int from = 0;  // GPU
  int to = 0;
  Bytes wire;     // what the links carry
  Bytes payload;  // what the program sends
  Route route;
  LinkSpec path;  // latency and narrowest bandwidth of the route
};

// Bytes a flow occupies its links with: payload / efficiency, a whole number, at least one.
Bytes wire_bytes(Bytes payload, double efficiency);

Flow make_flow(const Topology&, int from, int to, Bytes payload, const TransferEfficiency&);

// What keeps one link, or one flow on all of its links, busy: `latency` after the start for that long.
struct LinkLoad {
  Seconds latency;
  Seconds busy;
};

// Of every link that flows share, what comes to it after each latency and is carried after it; and of every
// flow by itself.
std::vector<LinkLoad> loads_of(const Topology&, const std::vector<Flow>& flows);

// Time from the common start of flows to the end of the last. Ideal links: each as if alone. Shared links: no
// link is faster than the sum of what crosses it from any latency on, which is exact for flows that share
// evenly.
Seconds together(const Topology&, const std::vector<Flow>& flows);

}  // namespace orrery
