// How training is split: one candidate of the search, in Megatron-LM's terms.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platforms/gpu.hpp"
#include "strategies/model.hpp"
#include "strategies/recompute.hpp"

namespace orrery {

// User buffers, beside whose transfers matrices are multiplied, hold 16 or 8 bits (Transformer Engine,
// UserBufferQuantizationMode); recipes in NVFP4 turn --tp-comm-overlap off (Megatron-Bridge v0.2.0 to v0.5.0,
// scripts/performance/configs/llama).
constexpr bool user_buffers_take(DataType type) {
  return type != DataType::fp4;
}

enum class ScheduleKind { gpipe, one_f_one_b, interleaved, zb_h1, zb_h2, zb_v, from_file };
enum class TransferMode { eager, blocking, overlapped };  // SEMANTICS 2

std::string_view to_text(ScheduleKind);  // "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "file"
std::string_view to_text(TransferMode);

// The model part that is chunk `chunk` of pipeline rank `rank`. Parts go round the ranks chunk after chunk, c
// P + s; in zb-v they go down and come back: s, then 2 P - 1 - s.
constexpr int part_of(ScheduleKind kind, int ranks, int rank, int chunk) {
  return kind == ScheduleKind::zb_v && chunk % 2 == 1 ? (chunk + 1) * ranks - 1 - rank : chunk * ranks + rank;
}
constexpr int rank_holding(ScheduleKind kind, int ranks, int part) {
  return kind == ScheduleKind::zb_v && (part / ranks) % 2 == 1 ? ranks - 1 - part % ranks : part % ranks;
}

// Layers first .. first + count - 1 of the model. The first part has the embedding, the last one norm, head
// and loss; either may have no layer beside them (Megatron-LM's --account-for-embedding-in-pipeline-split and
// its twin for the loss).
struct LayerRange {
  int first = 0;
  int count = 0;
  // Its layers are the model's first, or last, and a part without layers has the embedding, or the head.
  bool without_embedding = false, without_head = false;

  [[nodiscard]] bool has_embedding() const { return first == 0 && !without_embedding; }
  [[nodiscard]] bool has_head(int layers_of_model) const {
    return first + count == layers_of_model && !without_head;
  }
  bool operator==(const LayerRange&) const = default;
};
// Tells the parts, in model order, beside those without layers what they are without.
void mark_ends(std::vector<LayerRange>& parts);

// The GPUs of one pipeline rank (stage): in every data-parallel replica, or where replicas are unlike, in the
// first kind of them.
struct StageDevices {
  int group = 0;   // index into ClusterSpec::groups
  int tensor = 1;  // tensor-parallel ways of this stage
  bool operator==(const StageDevices&) const = default;
};

// Data-parallel replicas that are alike, where others of the plan are not: their GPUs, and their share of the
// batch. Layers and tensor ways are those of all replicas, since gradients are reduced over equal parameters.
struct ReplicaKind {
  int count = 1;            // replicas
  std::vector<int> groups;  // size P: of each stage, index into ClusterSpec::groups
  std::int64_t microbatches =
      0;  // of each of these replicas an iteration; 0: still to be chosen (shares.hpp)
  bool operator==(const ReplicaKind&) const = default;
};

// In which order ranks are numbered, the fastest first: the `order` of Megatron-LM's
// initialize_model_parallel (core/parallel_state.py, RankGenerator) that begins with tp. ep stands before dp:
// experts are spread over neighbouring replicas.
enum class RankOrder { cp_dp_pp, cp_pp_dp, dp_cp_pp, dp_pp_cp, pp_cp_dp, pp_dp_cp };
std::string_view to_text(RankOrder);  // "tp-cp-ep-dp-pp", ...

// Of one tensor rank: copies of a layer, over context ranks and then replicas, that share one set of experts.
constexpr int copies_sharing_experts(int expert, int tensor, int tensor_of_experts) {
  return std::max(1, expert / (tensor / tensor_of_experts));
}

struct ParallelStrategy {
  int pipeline = 1;  // P: pipeline ranks
  int data = 1;      // D: data-parallel replicas of the pipeline
  int context = 1;   // context-parallel ways
  int expert = 1;    // expert-parallel ways
  // Tensor ways of experts (Megatron-LM --expert-tensor-parallel-size): 1, or absent: those of the stage.
  // Where each tensor rank has experts of its own, expert ways go over tensor ranks first. Then they go over
  // context ranks, then over replicas (parallel_state.py: expert ranks are numbered without a context axis).
  std::optional<int> expert_tensor;
  int chunks = 1;                  // v: model parts a pipeline rank holds (virtual stages)
  std::int64_t micro_batch = 1;    // sequences
  std::int64_t global_batch = 1;   // sequences an iteration
  std::int64_t sequence = 0;       // tokens
  DataType type = DataType::bf16;  // of weights and activations
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  TransferMode transfers = TransferMode::blocking;
  bool sequence_parallel = false;
  bool distributed_optimizer = false;
  // Sets of neighbouring copies, each of which shards the optimizer (and, with fully_sharded, the weights)
  // over its own copies; gradients are summed over the sets (Megatron-LM
  // --num-distributed-optimizer-instances; PyTorch's HYBRID_SHARD). Above 1 needs the distributed optimizer.
  int optimizer_instances = 1;
  bool overlap_grad_reduce = false;
  // Replicas sum the gradients of every microbatch under its backward, not those of all microbatches once
  // (DistributedDataParallel without no_sync). Without a pipeline, and with nothing sharded, only.
  bool reduce_each_microbatch = false;
  bool overlap_param_gather =
      false;  // needs the distributed optimizer and overlap_grad_reduce, as in Megatron-LM
  bool flash_attention = true;
  // Tensor collectives in chunks beside the matrices (Megatron-LM --tp-comm-overlap, user buffers); absent:
  // as the software stack does. True needs sequence parallelism.
  std::optional<bool> tensor_overlap;
  // Share of the optimizer that lives and steps on the host, 0 to 1 (Megatron-LM --optimizer-cpu-offload with
  // --optimizer-offload-fraction). Above 0 it needs the distributed optimizer.
  double optimizer_offload = 0.0;
  bool fully_sharded = false;  // weights and gradients too (FSDP, ZeRO-3): gathered layer by layer
  Recompute recompute;
  std::vector<StageDevices> stages;  // size P
  // Empty: all replicas are as `stages` says, with equal shares of the batch. Otherwise D replicas in all, of
  // which the first are as `stages` says.
  std::vector<ReplicaKind> replicas;
  std::vector<LayerRange> parts;  // size v * P, in model order; part_of says whose chunk each is
  std::vector<int> nodes;         // nodes used of each cluster group
  RankOrder order = RankOrder::cp_dp_pp;
  // Empty: ranks fill nodes in order. Otherwise what would be on node i is on node hosts[i], of the same
  // group (nodes counted over all groups): the hosts of a job numbered anew.
  std::vector<int> hosts;
  bool operator==(const ParallelStrategy&) const = default;

  // Of each replica; of the first kind where they are unlike.
  [[nodiscard]] std::int64_t microbatches() const {
    return replicas.empty() ? global_batch / (micro_batch * data) : replicas.front().microbatches;
  }
  [[nodiscard]] int part_count() const { return pipeline * chunks; }
  [[nodiscard]] const LayerRange& part(int stage, int chunk) const {
    return parts[static_cast<std::size_t>(part_of(schedule, pipeline, stage, chunk))];
  }
  [[nodiscard]] int rank_of_part(int part) const { return rank_holding(schedule, pipeline, part); }
  [[nodiscard]] int tensor(int stage) const { return stages[static_cast<std::size_t>(stage)].tensor; }
  [[nodiscard]] int tensor_of_experts(int stage) const { return expert_tensor.value_or(tensor(stage)); }
  [[nodiscard]] int copies_sharing_experts() const {
    return orrery::copies_sharing_experts(expert, tensor(0), tensor_of_experts(0));
  }
  // Copies of a layer, over context ranks and replicas, that the optimizer is sharded over.
  [[nodiscard]] int copies_of_instance() const { return data * context / optimizer_instances; }
  [[nodiscard]] int contexts_sharing_experts() const { return std::gcd(copies_sharing_experts(), context); }
  [[nodiscard]] int replicas_sharing_experts() const {
    return copies_sharing_experts() / contexts_sharing_experts();
  }
  // GPUs that hold one replica of one stage.
  [[nodiscard]] int gpus_of_stage(int stage) const { return tensor(stage) * context; }
  [[nodiscard]] int gpus() const;  // of the whole job

  // Whether the microbatches of unlike replicas are still to be chosen (shares.hpp).
  [[nodiscard]] bool shares_open() const { return !replicas.empty() && replicas.front().microbatches == 0; }
  [[nodiscard]] int kinds() const { return replicas.empty() ? 1 : static_cast<int>(replicas.size()); }
  [[nodiscard]] int replicas_of_kind(int kind) const;
  [[nodiscard]] std::vector<int> kind_of_replica() const;  // size D
  // The strategy as a replica of this kind sees it: all replicas like it, on its GPUs, with its microbatches.
  // What holds of a stage of such a replica (its time, its memory) is asked of this.
  [[nodiscard]] ParallelStrategy of_kind(int kind) const;
};

// Whether `sharing` copies of a layer in a row, context ranks before replicas, fill whole replicas or part
// one evenly.
bool experts_spread_evenly(int sharing, int context, int data);

}  // namespace orrery
