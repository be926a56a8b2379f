// The collectives that parts play inside their forwards and backwards: who takes part, and their flows.
#pragma once

#include <vector>

#include "costmodels/collectives/collective_flows.hpp"
#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

// GPUs of each group of a kind that a stage has in a replica, in rank order. Expert groups take in the other
// replicas that share the set of experts.
std::vector<std::vector<int>> group_members(const PricedPlan&, int replica, int stage, RankGroup);

int group_size(const PricedPlan&, int stage, RankGroup);  // GPUs

// Whether a group may share links with other traffic: where members are in several nodes (NICs, and what lies
// between), or behind PCIe switches, whose links carry what goes to the NICs too. Inside one NVSwitch domain
// groups are priced: every GPU has a link of its own there, and while it waits for a collective it sends
// nothing else but the last of a pipeline message or of an overlapped bucket. Unless one of these links is
// not as its node group says: prices are of those.
bool must_play(const Topology&, const std::vector<int>& members);

// The calls that the parts of a stage play in a replica, each once, in order.
std::vector<int> calls_of_stage(const PricedPlan&, int replica, int stage);
// Whether any part plays calls over groups of the kind.
bool plays_calls(const PricedPlan&, RankGroup);
// The kinds of groups that it plays calls of there.
std::vector<RankGroup> played_groups(const PricedPlan&, int replica, int stage);

// The flows of a call for all groups of the stage in a replica, side by side. `lanes`: those played; a group
// without any of them is left out. What a context group can send round a ring goes round one (keys and
// values; not a state space's all-to-all), and experts exchange directly, whatever the plan's algorithm,
// which is for tensor groups.
std::vector<FlowPhase> call_flows(const PricedPlan&, const Topology&, const GroupCall&, int replica,
                                  int stage, const std::vector<int>& lanes);
std::vector<int> all_lanes(const PricedPlan&, int stage);

// Of a forward, a backward or what it leaves for the weights; 0 of other steps.
Seconds pass_time(const PartTimes&, StepKind);
// The pieces of a pass; null where it is computed in one go.
const std::vector<PlayedPiece>* pieces_of(const PartTimes&, StepKind);

// What a part computes and plays of piece `index` of `count` of a pass that is cut where buckets of gradients
// are ready: pieces of equal compute.
std::vector<PlayedPiece> cut_pieces(const std::vector<PlayedPiece>&, int index, int count);

// The calls of all played ranks (replica * P + stage). Calls over tensor and context ranks are a rank's own;
// those over experts belong to the first replica of those that share them, its leader.
class GroupCalls {
 public:
  // `replicas`: the numbers in the plan of those that are played, 0, 1, ... where experts exchange. `images`:
  // played_images; what other GPUs send is left out.
  GroupCalls(const PricedPlan&, const Topology&, const std::vector<int>& replicas,
             const std::vector<int>& lanes, const std::vector<int>& images);

  [[nodiscard]] const GroupCall& call(int index) const {
    return plan_.calls[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] bool is_over_replicas(int index) const { return call(index).group == RankGroup::expert; }
  [[nodiscard]] int leader(int rank, int call) const;
  [[nodiscard]] std::vector<int> members(int leader, int call) const;  // ranks
  [[nodiscard]] std::size_t member_count(int call) const;
  [[nodiscard]] const std::vector<FlowPhase>& phases(int leader, int call) const;

 private:
  const PricedPlan& plan_;
  std::vector<std::vector<std::vector<FlowPhase>>> phases_;  // [rank][call]; empty where not played
};

}  // namespace orrery
