// A collective as flows between its GPUs, by the algorithm that NCCL or a user picks.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "costmodels/collectives/flow.hpp"
#include "costmodels/operators/operator.hpp"
#include "platforms/topology.hpp"

namespace orrery {

// `ring`: one pipelined ring (of a broadcast: chain) through all members. `double_binary_tree`: two trees
// over the nodes with half the bytes each, chains inside the nodes. `hierarchical`: reduce inside each node,
// exchange between nodes, gather inside. `direct`: every pair exchanges its share in one step.
enum class CollectiveAlgorithm { ring, double_binary_tree, hierarchical, direct };
std::string_view to_text(CollectiveAlgorithm);
// `place` names the option or file and line in the message. Throws InputError.
CollectiveAlgorithm parse_collective_algorithm(std::string_view text, const std::string& place);

// Whether the algorithm is defined for the kind: ring all but all-to-all, tree all-reduce, hierarchical all
// but all-to-all, direct everything.
bool can_run(CollectiveAlgorithm, CollectiveKind);
// The same for a broadcast: all but hierarchical.
bool can_broadcast(CollectiveAlgorithm);

// Flows that start together. The phase is over `tail` after the last of them: the latency of later steps.
struct FlowPhase {
  std::vector<Flow> flows;
  Seconds tail;
};

// Adds phases that are played at the same time as `all`, first with first.
void add_side_by_side(std::vector<FlowPhase>& all, std::vector<FlowPhase> more);

// `gpus`: distinct members; a ring takes them in this order. `bytes`: the whole vector of one rank, as in
// Collective. Without an algorithm the one NCCL would take (collective_choice.hpp).
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::optional<CollectiveAlgorithm> algorithm;
  Bytes bytes;
  TransferEfficiency efficiency;
  std::vector<int> gpus;
  bool one_channel = false;  // of a ring over nodes; else one for each member of a node
};

// `gpus.front()` sends `bytes` to all others.
struct BroadcastCall {
  std::optional<CollectiveAlgorithm> algorithm;  // ring where absent, NCCL's only one
  Bytes bytes;
  TransferEfficiency efficiency;
  std::vector<int> gpus;
};

// Phases played one after another: the flows of a phase start when the phase before is over. Steps inside a
// phase are pipelined: a flow carries all rounds of its hop once. At most one flow from one GPU to another in
// a phase. One member: no phase. No bytes: flows without payload, one byte on the wire each. ENSUREs can_run.
// With `images`, by GPU, only those flows that leave GPUs which are their own (played_images), with the tails
// of all.
std::vector<FlowPhase> collective_flows(const Topology&, const CollectiveCall&,
                                        const std::vector<int>* images = nullptr);
std::vector<FlowPhase> broadcast_flows(const Topology&, const BroadcastCall&);

}  // namespace orrery
