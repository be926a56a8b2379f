// The flows behind messages and collectives, the same for the estimator and the replay, and who must be played.
#pragma once

#include <vector>

#include "costmodels/operator.hpp"
#include "costmodels/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

struct Flow {
  int from = 0;  // GPU
  int to = 0;
  Bytes wire;     // what the links carry
  Bytes payload;  // what the program sends
  Route route;
  LinkSpec path;  // latency and narrowest bandwidth of the route
};

Flow make_flow(const Topology&, int from, int to, Bytes payload, const TransferEfficiency&);

// A collective as flows that run together: it ends `tail` after the last of them.
struct CollectiveFlows {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::vector<Flow> flows;
  Seconds tail;
};

// A ring over `gpus`, pipelined: every hop carries 2 (n-1)/n of an all-reduce's bytes, (n-1)/n of a reduce-scatter's
// or all-gather's, once. Between nodes the ring uses as many NICs as it has members in each node (NCCL's channels).
// The steps after the first add one hop latency each. `bytes` as in Collective. One member: no flow.
CollectiveFlows ring_flows(const Topology&, CollectiveKind, Bytes bytes, const TransferEfficiency&,
                           const std::vector<int>& gpus);

// Time from the common start of flows to the end of the last. Ideal links: each as if alone. Shared links: no link is
// faster than the sum of what crosses it, which is exact for flows that share evenly.
Seconds together(const Topology&, const std::vector<Flow>& flows);

enum class Folding { on, off };

// Which replicas and lanes are played, and the flows of everything they do.
//
// Folding plays the first p of D replicas when shifting every replica by p maps the cluster onto itself: GPU links and
// NICs of one block of p replicas are shared with no other block, and every message and ring hop has the same path p
// replicas on. A hop of a ring that leaves the block then ends on the link where, by the same symmetry, a hop enters it.
// Lanes: those of tensor rank 0 alone when the other tensor ranks have links of their own that are alike.
class TrafficFlows {
 public:
  TrafficFlows(const PricedPlan&, const PlanPrograms&, const Topology&, Folding);

  [[nodiscard]] int replicas() const { return replicas_; }  // played
  [[nodiscard]] int ranks() const { return replicas_ * plan_.stages(); }
  [[nodiscard]] const std::vector<int>& lanes() const { return lanes_; }
  [[nodiscard]] int replicas_each() const { return plan_.replicas / replicas_; }  // that a played one stands for
  [[nodiscard]] double lanes_each() const;                                        // likewise

  // The flows, one a played lane, of a message over a boundary.
  [[nodiscard]] const std::vector<Flow>& message(int replica, int boundary, bool gradient) const;

  // Collectives are numbered slot * replicas() + replica; those over replicas have replica 0 only.
  [[nodiscard]] int instances() const;
  [[nodiscard]] int instance(int slot, int replica) const;
  // Played ranks (replica * P + stage) that take part, and the flows of all played lanes.
  [[nodiscard]] std::vector<int> members(int instance) const;
  [[nodiscard]] const CollectiveFlows& collective(int instance) const;

 private:
  void build_messages();
  void build_collectives();
  CollectiveFlows over_replicas(CollectiveKind, Bytes, const TransferEfficiency&, int stage) const;
  CollectiveFlows over_stages(Bytes, const std::vector<int>& stages, int replica, const std::vector<int>& lanes) const;
  std::vector<int> end_stages() const;
  std::vector<int> all_stages() const;
  Flow folded(Flow) const;
  const CollectiveSlot& slot_of(int instance) const;
  std::size_t flows_index(const CollectiveSlot&, int replica) const;

  const PricedPlan& plan_;
  const Schedule& schedule_;
  const Topology& topology_;
  int replicas_ = 1;
  std::vector<int> lanes_;
  std::vector<int> rank_of_gpu_;              // replica * P + stage; -1: not of the plan
  std::vector<int> image_;                    // the GPU of a played replica that a GPU is the image of
  std::vector<std::vector<Flow>> messages_;   // [(replica * boundaries + boundary) * 2 + gradient]
  std::vector<CollectiveFlows> collectives_;  // by flows_index
};

}  // namespace orrery
