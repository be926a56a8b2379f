// What the search may choose from, by Megatron-LM's argument names.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "platforms/yaml.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

struct SearchSpace {
  std::vector<int> tensor{1, 2, 4, 8};
  // Whether stages on GPUs of one node group may have other tensor ways than those on another
  // (enumerate.hpp).
  bool tensor_by_group = true;
  bool mix_replicas = true;  // whether whole replicas may be on unlike GPUs (replica_mixes.hpp)
  std::vector<int> context{1, 2, 4};
  std::vector<int> expert{1};
  std::vector<std::optional<int>> expert_tensor{std::nullopt};  // absent: as the stage's tensor ways
  std::vector<int> chunks{1, 2, 4};                             // above 1: the interleaved schedule
  std::vector<std::int64_t> micro_batch{1, 2, 4, 8};
  int most_stages = 64;
  std::vector<int> stages{};               // numbers of them, ascending up to the most; empty: all
  std::int64_t most_gpus = 1'000'000'000;  // of all groups together
  // Of plans with one chunk a rank, and zb-v, which always has two. By default what Megatron-LM can run.
  std::vector<ScheduleKind> schedules{ScheduleKind::one_f_one_b};
  // `block` with 0 layers: the fewest of each part that make a plan fit, still to be chosen
  // (sim/bounds/feasibility.hpp).
  std::vector<Recompute> recompute{{}, {RecomputeGranularity::full, RecomputeMethod::uniform, 1}};
  std::vector<bool> flash_attention{true};
  std::vector<bool> sequence_parallel{true, false};
  std::vector<bool> distributed_optimizer{true, false};
  std::vector<int> optimizer_instances{1};
  std::vector<bool> fully_sharded{false};  // of plans with one pipeline stage
  // Absent: each plan has them on where that makes it faster, if its stack knows them
  // (sim/search/search.hpp).
  std::vector<std::optional<bool>> overlap_grad_reduce{std::nullopt};
  std::vector<std::optional<bool>> overlap_param_gather{std::nullopt};
  std::vector<std::optional<bool>> tensor_overlap{std::nullopt};  // absent: as the stack does
  std::vector<double> optimizer_offload{0.0};                     // shares
  std::vector<bool> overlap_p2p{true};                            // of the interleaved schedule
  std::vector<RankOrder> orders{RankOrder::cp_dp_pp};
  bool operator==(const SearchSpace&) const = default;

  // Those of the optimizer, and 1: what is all-reduced is so over all copies.
  [[nodiscard]] std::set<int> instance_counts() const {
    std::set<int> counts(optimizer_instances.begin(), optimizer_instances.end());
    counts.insert(1);
    return counts;
  }
  // Whether some number of stages between these, both included, is allowed.
  [[nodiscard]] bool allows_stages(int least, int most) const {
    if (stages.empty()) return least <= most_stages;
    const auto next = std::lower_bound(stages.begin(), stages.end(), least);
    return next != stages.end() && *next <= most;
  }
};

// A YAML file with any of: tensor_model_parallel_size, context_parallel_size, expert_model_parallel_size,
// expert_tensor_parallel_size, recompute_modules (each item a module or a list: those of one plan),
// num_virtual_stages_per_pipeline_rank, micro_batch_size (lists of counts), pipeline_model_parallel_size (the
// most, or a list), schedule, recompute_granularity, recompute_method (lists of names), recompute_num_layers
// (a list, a range such as 1..8, or `auto`: with `block` the fewest of each part that make a plan fit),
// num_distributed_optimizer_instances (counts), sequence_parallel, use_distributed_optimizer,
// use_megatron_fsdp, overlap_grad_reduce, overlap_param_gather (these two also `auto`), tp_comm_overlap,
// overlap_p2p_comm, optimizer_cpu_offload, use_flash_attn, use_tp_pp_dp_mapping (lists of true and false),
// optimizer_offload_fraction (a list of shares, beside optimizer_cpu_offload), tensor_by_group, mix_replicas
// (true or false). What is absent keeps its value in `space`. Throws InputError.
SearchSpace read_space(const std::string& path, const SearchSpace& space = {});
SearchSpace parse_space(std::string_view yaml, const std::string& file, const SearchSpace& space = {});
SearchSpace parse_space(const YamlValue& map, SearchSpace space = {});

// Defaults that suit the model: expert ways where it has experts, powers of two that divide them, up to 64.
SearchSpace default_space(const ModelSpec&);

}  // namespace orrery
