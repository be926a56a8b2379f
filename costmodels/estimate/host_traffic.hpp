// What the nodes of a plan send each other in an iteration, priced on any numbering of the hosts.
#pragma once

#include <utility>
#include <vector>

#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

// Flows that start together: the messages over one boundary of all replicas, a phase of the reduction of a
// part, a phase of a collective inside the parts of a stage.
struct TrafficClass {
  struct Hop {
    int from = 0, to = 0;  // GPUs where every node is its own host
    Bytes wire;            // as Flow::wire
    bool operator==(const Hop&) const = default;
  };
  std::vector<Hop> hops;
  double times = 1;  // an iteration
};

// All that the plan sends, none of it folded. The plan is one whose hosts are not numbered anew.
std::vector<TrafficClass> traffic_classes(const PricedPlan&, const PlanPrograms&, const Topology&);

// Of an iteration.
struct TrafficCost {
  // Of all classes, one after another: the longest latency of a class and its busiest link. What the estimate
  // adds up, were nothing hidden.
  Seconds communication;
  // Between nodes: bytes by the slowness of every link they cross, each link by itself. Time that links are
  // busy, in sum.
  Seconds crossing;
  Bytes between_nodes;  // the same for every numbering of hosts
};

// Follows the cost while hosts trade places. Only classes that a changed node sends or receives in are looked
// at again, each afresh: the cost does not depend on the way to a numbering.
class HostTraffic {
 public:
  // No link of the topology is down: any two GPUs may come to talk.
  HostTraffic(const std::vector<TrafficClass>&, const Topology&);

  [[nodiscard]] const std::vector<int>& hosts() const {
    return hosts_;
  }  // by node, as ParallelStrategy::hosts
  [[nodiscard]] bool sends(int node) const { return !classes_of_[static_cast<std::size_t>(node)].empty(); }
  [[nodiscard]] TrafficCost cost() const;
  void swap(int node, int other);
  // Several swaps, looked at once: no node in two of them.
  void swap(const std::vector<std::pair<int, int>>& nodes);
  void take_back();  // the last call of swap

 private:
  struct ClassCost {
    double seconds = 0, crossing = 0;
  };
  [[nodiscard]] int host_gpu(int gpu) const;
  ClassCost cost_of(const TrafficClass&);

  const std::vector<TrafficClass>& classes_;
  const Topology& topology_;
  bool shared_;
  std::vector<int> first_gpu_;  // [node]
  std::vector<int> hosts_;
  std::vector<std::vector<int>> classes_of_;         // [node]
  std::vector<ClassCost> costs_;                     // [class]
  std::vector<std::pair<int, int>> swapped_;         // by the last call
  std::vector<std::pair<int, ClassCost>> replaced_;  // of costs_, by it
  double bytes_ = 0;                                 // between nodes
  std::vector<double> busy_;                         // [link] s, all 0 between two classes
  std::vector<int> touched_;                         // links of the class that is looked at
};

}  // namespace orrery
