// The candidates of a search: every allocation of GPUs to stages, with every setting.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "platforms/cluster.hpp"
#include "strategies/model.hpp"
#include "strategies/search_space.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

enum class SearchMode { homogeneous, heterogeneous, cost };
std::string_view to_text(SearchMode);

// The degrees that all stages share, or all stages of one group.
struct Ways {
  int tensor = 1;  // of the stages that have the most
  int context = 1;
  int expert = 1;
  int data = 1;
  std::vector<int> tensors = {};  // [group], where groups differ; empty: `tensor` in all

  [[nodiscard]] int tensor_of(int group) const {
    return tensors.empty() ? tensor : tensors[static_cast<std::size_t>(group)];
  }
  // As the stages of a group see them.
  [[nodiscard]] Ways of_group(int group) const { return {tensor_of(group), context, expert, data, {}}; }
  // GPUs of a stage in all its replicas; may be more than 32 bits count.
  [[nodiscard]] std::int64_t gpus_of_stage(int group) const {
    return std::int64_t{tensor_of(group)} * context * data;
  }
};

// How many GPUs of which group each stage gets. The stages of one group are neighbours.
struct Allocation {
  int tensor = 1;
  int context = 1;
  int expert = 1;
  int data = 1;
  std::vector<std::pair<int, int>> runs;  // (group, stages) in pipeline order
  std::vector<int> nodes;                 // of each group, used or paid for
  std::vector<int> tensors = {};          // as in Ways

  [[nodiscard]] int stages() const;
  [[nodiscard]] Ways ways() const { return {tensor, context, expert, data, tensors}; }
};

// What is the same for all stages.
struct Setting {
  std::int64_t micro_batch = 1;
  int chunks = 1;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  Recompute recompute = {};
  bool sequence_parallel = false;
  bool distributed_optimizer = false;
  std::optional<bool> overlap_grad_reduce = {};   // absent: still to be chosen, by with_overlaps
  std::optional<bool> overlap_param_gather = {};  // likewise
  RankOrder order = RankOrder::cp_dp_pp;
  bool flash_attention = true;
  std::optional<bool> tensor_overlap = {};  // as in ParallelStrategy
  double optimizer_offload = 0.0;           // likewise
  std::optional<int> expert_tensor = {};    // likewise
  bool overlap_p2p = true;      // of the interleaved schedule; the others have transfers of their own
  int optimizer_instances = 1;  // as in ParallelStrategy
  bool fully_sharded = false;   // likewise
};

// Whether a search tries unequal tensor ways and whole replicas for the groups: two with up to 256 GPUs in
// all, or up to four with 128. Of more there are more choices than anybody waits for.
bool tells_groups_apart(const ClusterSpec&);

// Every (tensor, context, expert, data) whose stage the cluster's largest counts can hold; data-parallel ways
// divide `global_batch`. Then, where plans may mix groups and the space lets them differ, those with unequal
// tensor ways, in clusters that tells_groups_apart. In a fixed order.
std::vector<Ways> all_ways(const ClusterSpec&, const SearchSpace&, SearchMode, std::int64_t global_batch);

// Stages of each group of the cluster.
using StageCounts = std::vector<int>;

// Calls visit(counts) for every way to give as many stages as the space allows to the groups, at least one in
// all, within their largest counts and `space.most_gpus`, so that no node has an idle GPU beside a busy one.
// homogeneous: one group a plan. Counts that use no two groups of unequal tensor ways belong to the ways
// where all are equal, and groups without stages have the ways of the first that has some, so that no plan
// comes twice. In a fixed order.
void for_each_stage_counts(const ClusterSpec&, const SearchSpace&, SearchMode, const Ways&,
                           const std::function<void(const StageCounts&)>& visit);

// What bounds the stages of each group: they come in steps, that no node has an idle GPU beside a busy one.
struct StageGrid {
  std::vector<std::int64_t> gpus;  // of a stage in all its replicas
  std::vector<int> steps, caps;
};
StageGrid stage_grid(const ClusterSpec&, const SearchSpace&, const Ways&);

// Whether counts belong to ways with unequal tensor ways rather than to others: see for_each_stage_counts.
bool at_home(const Ways&, const StageCounts&);

// Nodes of each group whose GPUs such a plan uses.
std::vector<int> nodes_in_use(const ClusterSpec&, const Ways&, const StageCounts&);

// Nodes of each group that a plan pays for which uses these: groups with a fixed count are paid for whether
// used or not.
std::vector<int> paid_nodes(const ClusterSpec&, std::vector<int> in_use);

// Of each group the one before it that is alike in all but its name, and its region where links and prices of
// the two are the same; -1 where none is. Swapped, they give a plan its mirror image, which takes as long and
// costs as much. Where leaves, single links or a network table tell hosts apart no groups are alike.
std::vector<int> groups_alike(const ClusterSpec&);

// One allocation for every order of the groups that have stages, without mirror images: of groups that are
// alike those before come first; so many of them.
std::vector<Allocation> orders(const ClusterSpec&, const std::vector<int>& alike, const Ways&,
                               const StageCounts&);
std::size_t order_count(const std::vector<int>& alike, const StageCounts&);

std::vector<Setting> settings(const SearchSpace&);

// The strategy without its parts; overlaps that are still to be chosen are off where they can be.
ParallelStrategy strategy_of(const Allocation&, const Setting&, std::int64_t global_batch,
                             std::int64_t sequence, DataType);

// Such a strategy with every choice of the overlaps that its setting leaves open, the fewest on first; itself
// alone where it has one copy of its parameters, which is never reduced.
std::vector<ParallelStrategy> with_overlaps(const ParallelStrategy&, const Setting&);

}  // namespace orrery
