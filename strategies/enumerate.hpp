// The candidates of a search: every allocation of GPUs to stages, with every setting.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platforms/cluster.hpp"
#include "strategies/model.hpp"
#include "strategies/search_space.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

enum class SearchMode { homogeneous, heterogeneous, cost };
std::string_view to_text(SearchMode);

// How many GPUs of which group each stage gets. The stages of one group are neighbours.
struct Allocation {
  int tensor = 1;
  int context = 1;
  int expert = 1;
  int data = 1;
  std::vector<std::pair<int, int>> runs;  // (group, stages) in pipeline order
  std::vector<int> nodes;                 // of each group, used or paid for
  bool full_nodes = true;                 // no GPU of a used node is idle

  [[nodiscard]] int stages() const;
};

// What is the same for all stages.
struct Setting {
  std::int64_t micro_batch = 1;
  int chunks = 1;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  Recompute recompute;
  bool sequence_parallel = false;
  bool distributed_optimizer = false;
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
};

// Every (tensor, context, data, stages of each group, order of groups) that the cluster's largest counts
// allow; groups with a fixed count are paid for whether used or not. homogeneous: one group a plan.
// Data-parallel ways divide `global_batch`. In a fixed order.
std::vector<Allocation> allocations(const ClusterSpec&, const SearchSpace&, SearchMode,
                                    std::int64_t global_batch);
std::vector<Setting> settings(const SearchSpace&);

// Why a candidate has no shape (heads, sequence, batch, chunks, ... do not divide), in words; absent when it
// has one.
std::optional<std::string> shape_obstacle(const ModelSpec&, const ClusterSpec&, const Allocation&,
                                          const Setting&, std::int64_t global_batch, std::int64_t sequence);

// The strategy without its parts.
ParallelStrategy strategy_of(const Allocation&, const Setting&, std::int64_t global_batch,
                             std::int64_t sequence, DataType);

}  // namespace orrery
