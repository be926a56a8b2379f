// A plan with a price on every operation: all that the estimator and the replay need to play one iteration.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "costmodels/collectives/collective_flows.hpp"
#include "costmodels/collectives/flow.hpp"
#include "costmodels/operators/operator.hpp"
#include "platforms/topology.hpp"
#include "platforms/units.hpp"
#include "strategies/schedule.hpp"

namespace orrery {

// A collective inside a forward or backward whose flows are played, because they can contend with others or a
// link was changed.
struct GroupCall {
  RankGroup group = RankGroup::tensor;
  CollectiveKind kind = CollectiveKind::all_reduce;
  Bytes bytes;  // of one rank, as in Collective
  TransferEfficiency efficiency;
  Seconds more;              // after the flows
  int times = 1;             // so many in a row, played as one
  bool one_channel = false;  // as in CollectiveCall
  bool operator==(const GroupCall&) const = default;
};

// `compute`, then a collective, beside which `beside` is computed; both must be over before the next piece.
struct PlayedPiece {
  Seconds compute = {};
  Seconds tensor = {};  // of compute: exposed communication that is priced and not played
  Seconds beside = {};
  Flops flops = {};              // of compute and beside
  std::optional<int> call = {};  // index into PricedPlan::calls
  bool operator==(const PlayedPiece&) const = default;
};

// Durations of one microbatch in one part (a chunk of a pipeline rank), on every GPU of the part alike.
struct PartTimes {
  Seconds forward = {};
  Seconds backward = {};         // for the input and, where the schedule does not split it, for the weights
  Seconds weight_gradient = {};  // 0 unless the schedule splits the backward
  Seconds forward_tensor = {};   // of which exposed tensor-parallel communication
  Seconds backward_tensor = {};
  Flops forward_flops = {};  // of one GPU, recomputation included
  Flops backward_flops = {};
  Flops weight_gradient_flops = {};  // as weight_gradient
  bool host_bound = false;           // the host launches kernels more slowly than the GPU runs them
  // In order; empty: the pass is computed in one go. The times above are then those of the pieces when
  // nothing contends, in the first replica of the kind.
  std::vector<PlayedPiece> forward_pieces = {};
  std::vector<PlayedPiece> backward_pieces = {};  // without what is in weight_gradient
};

struct BoundaryMessage {
  Bytes bytes;  // of one lane of the stage before
  TransferEfficiency efficiency;
  // Each lane has its share of the message (sequence parallelism, scatter and gather), not all of it.
  bool in_shards = false;
  bool whole_gradients = false;  // `in_shards` holds for activations alone
};

// What one lane sends to a lane of the next stage, or of the stage before: `share` of BoundaryMessage::bytes.
struct LaneMessage {
  int from = 0, to = 0;
  double share = 1;
};

// Data-parallel traffic of one model part.
struct PartReduction {
  Bytes gradients = {};  // of one lane
  Bytes gathered = {};   // parameters all-gathered after the step; 0 without the distributed optimizer
  TransferEfficiency efficiency = {};         // of the gradients
  TransferEfficiency gather_efficiency = {};  // of the parameters
  TransferEfficiency across_efficiency = {};  // of gradients over optimizer instances
  bool operator==(const PartReduction&) const = default;
};

// What differs between kinds of unlike replicas; as in PricedPlan.
struct KindPrices {
  std::vector<PartTimes> parts;
  std::vector<BoundaryMessage> boundaries;
  std::vector<Seconds> optimizer;
};

// Of gradients over replicas: each keeps its share with the distributed optimizer, unless the program reduces
// all of them for all.
inline CollectiveKind gradient_collective(bool distributed_optimizer, bool all_reduces) {
  return distributed_optimizer && !all_reduces ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
}

// Lanes are the GPUs of a stage in one replica: lane c * T + t is context rank c, tensor rank t. A lane sends
// to the same lane of the next stage, or to those that lane_messages says where the stages have unequal
// tensor ways; gradients are reduced over the lanes of equal t of all replicas.
struct PricedPlan {
  ScheduleShape schedule;
  std::optional<Schedule> given_schedule;  // from a file, in place of the one that `schedule` names
  int iterations = 1;
  int replicas = 1;
  int context = 1;                          // context ranks a stage has
  std::vector<PartTimes> parts;             // P * v, in model order
  std::vector<BoundaryMessage> boundaries;  // P * v - 1
  std::vector<Seconds> transfers;           // P * v - 1, or empty: free. What the schedule is built for
  std::vector<std::vector<int>> gpus;       // [replica * P + stage][lane] -> GPU of the topology
  std::vector<PartReduction> reductions;    // P * v, or empty: nothing is reduced
  int expert = 1;                           // replicas in a row that share one set of experts
  int expert_context = 1;                   // of their context ranks, that do
  int expert_tensor = 1;                    // of their tensor ranks, all or 1, that have experts of their own
  // P * v, or empty: of the experts, reduced over every `expert_context`-th context rank of every `expert`-th
  // replica after those of all.
  std::vector<PartReduction> expert_reductions = {};
  std::vector<GroupCall> calls = {};   // what the pieces of parts play
  bool distributed_optimizer = false;  // parameters are gathered
  bool all_reduces_gradients = false;  // even so, over all copies, in place of a reduce-scatter
  bool broadcasts_parameters = false;  // each share by its owner in turn, in place of an all-gather
  int optimizer_instances = 1;         // as in ParallelStrategy
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  Bytes bucket;                             // of gradients, for the overlaps; 0: one a part
  std::optional<Bytes> embedding_gradient;  // of the word table, where first and last stage have it; one lane
  bool gradient_norm = false;      // the norm is reduced over all stages: nobody steps before all are there
  std::vector<Seconds> optimizer;  // P, or empty
  // Compute is slower by this factor while a collective runs on the same GPU (1.189 in the mean of A100,
  // H100, MI250 and MI210: arXiv 2507.03114).
  double overlap_slowdown = 1.0;
  std::optional<CollectiveAlgorithm> algorithm;  // of collectives, where it can; absent: NCCL's choice
  // Unequal replicas: microbatches of each (empty: all as in `schedule`); the kind of each (empty: all 0),
  // where `parts`, `boundaries` and `optimizer` are the prices of kind 0 and `other_kinds` those of kind 1
  // and up.
  std::vector<int> replica_microbatches;
  std::vector<int> kind_of_replica;
  std::vector<KindPrices> other_kinds;
  // A factor on the durations of each [replica * P + stage] (empty: all 1) from iteration `slow_from` on.
  std::vector<double> slowness;
  int slow_from = 0;
  // Replicas are not in step: what one sends never meets what another does. Of estimates; a replay plays
  // noise.
  bool replicas_drift = false;
  // Log-normal noise of every duration: deviation of its logarithm, and what draws it.
  double jitter = 0.0;
  std::uint64_t seed = 1;

  [[nodiscard]] int stages() const { return schedule.ranks; }
  [[nodiscard]] int rank_of_part(int part) const {
    return given_schedule ? given_schedule->rank_of_part[static_cast<std::size_t>(part)]
                          : rank_holding(schedule.kind, schedule.ranks, part);
  }
  [[nodiscard]] int kind_of(int replica) const {
    return kind_of_replica.empty() ? 0 : kind_of_replica[static_cast<std::size_t>(replica)];
  }
  // Prices of a replica's kind; absent: those of the plan itself.
  [[nodiscard]] const KindPrices* other_prices(int replica) const {
    const int kind = kind_of(replica);
    return kind == 0 ? nullptr : &other_kinds[static_cast<std::size_t>(kind - 1)];
  }
  [[nodiscard]] const PartTimes& part_times(int replica, int part) const {
    const KindPrices* other = other_prices(replica);
    return (other ? other->parts : parts)[static_cast<std::size_t>(part)];
  }
  [[nodiscard]] const BoundaryMessage& boundary(int replica, int boundary) const {
    const KindPrices* other = other_prices(replica);
    return (other ? other->boundaries : boundaries)[static_cast<std::size_t>(boundary)];
  }
  [[nodiscard]] Seconds optimizer_step(int replica, int stage) const {
    const KindPrices* other = other_prices(replica);
    return (other ? other->optimizer : optimizer)[static_cast<std::size_t>(stage)];
  }
  [[nodiscard]] const std::vector<int>& lanes(int replica, int stage) const {
    return gpus[static_cast<std::size_t>(replica * stages() + stage)];
  }
};

// The programs of a plan: one for each number of microbatches that a replica has.
struct PlanPrograms {
  std::vector<Schedule> programs;
  std::vector<int> of_replica;  // index into programs
  [[nodiscard]] const Schedule& of(int replica) const {
    return programs[static_cast<std::size_t>(of_replica[static_cast<std::size_t>(replica)])];
  }
};
// Schedules that split the backward are built for the plan's durations, without slowness, noise and
// collectives: as one would build them before a run.
PlanPrograms make_programs(const PricedPlan&);

// Equal buckets that a part's gradients, or those of its experts, go in. Each of the two fills buckets of its
// own (Megatron-LM core/distributed/distributed_data_parallel.py: a list of buffers for either).
int bucket_count(const PricedPlan&, const PartReduction&);

int tensor_ways(const PricedPlan&, int stage);

// Whose shares of one whole overlap: the lanes of two stages, context rank by context rank, each of which
// holds a T-th of it. `share`: of what one lane of the first stage holds; 1 from lane to lane where T is
// equal.
std::vector<LaneMessage> overlaps_of_lanes(const PricedPlan&, int first_stage, int second_stage);

// The messages of one replica over a boundary, with the activations or (`gradient`) back. Shards go where
// their sequence positions are needed, each once, so that nothing has to be gathered after; a whole message
// goes from one lane to each that has no other to get it from.
std::vector<LaneMessage> lane_messages(const PricedPlan&, int boundary, bool gradient);

// What a message over each boundary takes from replica 0 when all lanes send at once; 0 within a rank.
std::vector<Seconds> transfer_times(const PricedPlan&, const Topology&);

// Factor on the duration of a step: the slowness of the rank in that iteration, and its noise.
double duration_factor(const PricedPlan&, int rank, int iteration, std::size_t step);

}  // namespace orrery
