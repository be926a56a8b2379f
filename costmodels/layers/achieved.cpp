#include "costmodels/layers/achieved.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "costmodels/collectives/collective_choice.hpp"

namespace orrery {
namespace {

Topology nodes_of(const Collective& op) {
  NodeGroup group;
  group.name = "members";
  group.gpus_per_node = group.nics_per_node = std::max(1, op.ranks_per_node);
  const int nodes = (op.ranks + group.gpus_per_node - 1) / group.gpus_per_node;
  group.count = {nodes, nodes};
  group.gpu_link = op.gpu_link;
  group.nic = op.network;
  ClusterSpec cluster;
  cluster.groups = {group};
  return {cluster, {nodes}};
}

// A phase that carries `scale` times the bytes takes the largest of latency + scale x busy over its lines.
struct Line {
  double latency, busy;  // s
  auto operator<=>(const Line&) const = default;
};

struct Lines {
  std::vector<std::set<Line>> phases;
  double tails = 0;  // s
};

Lines lines_of(const Topology& topology, const std::vector<FlowPhase>& phases) {
  Lines lines;
  for (const FlowPhase& phase : phases) {
    lines.phases.emplace_back();
    for (const LinkLoad& load : loads_of(topology, phase.flows)) {
      lines.phases.back().insert({load.latency.value(), load.busy.value()});
    }
    lines.tails += phase.tail.value();
  }
  return lines;
}

// The scale at which the phases take `target` seconds, at least 1: Newton's method, which reaches the root of
// a convex function of straight lines in as many steps as it has lines.
double scale_for(const Lines& lines, double target) {
  double scale = 1.0;
  for (int step = 0; step < 100; ++step) {
    double time = lines.tails, slope = 0;
    for (const std::set<Line>& phase : lines.phases) {
      Line slowest{0, 0};
      for (const Line& line : phase) {
        if (line.latency + line.busy * scale >= slowest.latency + slowest.busy * scale) slowest = line;
      }
      time += slowest.latency + slowest.busy * scale;
      slope += slowest.busy;
    }
    const double next = slope > 0 ? scale + (target - time) / slope : scale;
    if (next <= 1.0) return 1.0;
    if (next == scale) break;
    scale = next;
  }
  return scale;
}

}  // namespace

Achieved achieved(const Collective& op, CollectiveAlgorithm algorithm, Seconds predicted) {
  if (op.ranks < 2) return {};
  const Topology topology = nodes_of(op);
  CollectiveCall call{op.kind, algorithm, op.bytes, {}, std::vector<int>(static_cast<std::size_t>(op.ranks))};
  std::iota(call.gpus.begin(), call.gpus.end(), 0);
  const Lines lines = lines_of(topology, collective_flows(topology, call));
  // Bytes are whole: aim a little lower until the rounded flows are not late.
  double target = predicted.value();
  for (int attempt = 0; attempt < 8; ++attempt) {
    const double efficiency = 1.0 / scale_for(lines, target);
    call.efficiency = {efficiency, efficiency};
    const double late = time_alone(topology, collective_flows(topology, call)).value() - predicted.value();
    if (late <= 0) return {call.efficiency, Seconds(-late)};
    if (efficiency == 1.0) break;
    target -= 2 * late;
  }
  return {call.efficiency, Seconds(0)};
}

}  // namespace orrery
