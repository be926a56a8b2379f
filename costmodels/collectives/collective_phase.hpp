// The parts collectives are put together from: one phase's flows, and members node by node.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "costmodels/collectives/collective_flows.hpp"

namespace orrery {

using Members = std::vector<int>;  // GPUs

// What every flow of a call needs to know.
struct FlowSetting {
  const Topology& topology;
  TransferEfficiency efficiency;
  const std::vector<int>* images = nullptr;  // as collective_flows
};

// Collects what one GPU sends another into one flow, in the order of first mention.
class PhaseBuilder {
 public:
  explicit PhaseBuilder(const FlowSetting& setting) : setting_(setting) {}

  // Returns the latency of the hop.
  Seconds add(int from, int to, Bytes payload);
  // `steps` hops one after another, each as slow as the slowest; a flow brings the latency of one along.
  FlowPhase finish(double steps);
  // The longest chain of hops has this latency in all.
  FlowPhase finish(Seconds latency);
  [[nodiscard]] Seconds latency(int from, int to) const;  // of one hop

 private:
  FlowPhase finish_after(Seconds tail);
  std::size_t& place_of(int from, int to);
  void grow();

  const FlowSetting& setting_;
  // Open addressing by a hash of both ends; a place holds the index of a flow plus one, or 0.
  std::vector<std::size_t> places_;
  std::vector<Flow> flows_;
  Seconds slowest_hop_;
};

// Of a piece that takes so many steps round a ring of these hops, wherever it begins: who has a piece passes
// it on, so that a slow hop is waited for when pieces cross it, not in every step.
Seconds chain_latency(const std::vector<Seconds>& ring, std::size_t steps);

// All members of each node, nodes and members in order of first mention but spread over NICs. The first
// `heads` of every node speak to other nodes, each to those of its index.
struct NodeGrid {
  std::vector<Members> nodes;
  std::size_t heads = 0;
};
NodeGrid by_node(const Topology&, const Members& gpus);
std::size_t largest_node(const NodeGrid&);
// Index, in its node, of the NIC a GPU uses.
int nic_of(const Topology&, int gpu);

// Inside a node, round the ring of its members; one member: nothing. `bytes` is the whole vector, of which
// each of the first `heads` members holds a piece before (gather) or after (reduce).
void gather_from_heads(PhaseBuilder&, const Members& local, std::size_t heads, Bytes bytes);
void reduce_to_heads(PhaseBuilder&, const Members& local, std::size_t heads, Bytes bytes);
// The chains of gather_from_heads the other way: what a tree sends up before it sends it down.
void chain_to_heads(PhaseBuilder&, const Members& local, std::size_t heads, Bytes bytes);

}  // namespace orrery
