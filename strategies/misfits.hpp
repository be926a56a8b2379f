// What the ways and switches of a shape must satisfy before its times and memory matter: each rule once. A
// search asks them of its candidates (obstacles.hpp), a plan file of its strategy (check_shape in plan.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "strategies/model.hpp"
#include "strategies/recompute.hpp"

namespace orrery {

// A rule that a shape breaks. A search meets it a million times and counts it by its name; only who has a
// plan to mend is told the numbers.
struct Misfit {
  std::string_view name;
  std::string_view sentence;  // with # for each number, in their order
  std::array<std::int64_t, 3> numbers = {};
};
std::string to_text(const Misfit&);  // the sentence with its numbers

// The switches of a shape that need each other.
struct Switches {
  bool sequence_parallel = false;
  bool distributed_optimizer = false;
  bool fully_sharded = false;
  std::optional<bool> tensor_overlap;
  double optimizer_offload = 0;
  int optimizer_instances = 1;
  std::optional<int> expert_tensor;
};
// Of a Setting or a ParallelStrategy, which name them alike.
template <class Shape>
Switches switches_of(const Shape& shape) {
  return {shape.sequence_parallel, shape.distributed_optimizer, shape.fully_sharded, shape.tensor_overlap,
          shape.optimizer_offload, shape.optimizer_instances,   shape.expert_tensor};
}

// Absent where the rule holds; ways and sizes are 1 or more. Sequences are in tokens.
std::optional<Misfit> positions_misfit(const ModelSpec&, std::int64_t sequence);
// Of heads and columns over tensor ranks, and of the groups of a state space over context ranks as well.
std::optional<Misfit> tensor_misfit(const LayerShape&, int tensor);
std::optional<Misfit> state_space_misfit(const LayerShape&, int tensor, int context);
// Of a sequence over context ranks, and of a context rank's share of it over tensor ranks.
std::optional<Misfit> context_misfit(std::int64_t sequence, int context);
std::optional<Misfit> sequence_parallel_misfit(std::int64_t sequence, int context, int tensor);
// `sharing`: copies of a layer, over context ranks and then replicas, that share one set of experts.
std::optional<Misfit> expert_spread_misfit(int sharing, int context, int data);
std::optional<Misfit> experts_misfit(const ModelSpec&, int expert);
// `other_tensor`: of the stages that have other tensor ways, else the same.
std::optional<Misfit> expert_tensor_misfit(const Switches&, int tensor, int other_tensor, int expert);
std::optional<Misfit> module_misfit(const ModelSpec&, const Recompute&);
// `tensor`: the most ways of a stage.
std::optional<Misfit> tensor_overlap_misfit(const Switches&, int tensor);
// Of the overlaps of parameters and gradients, and the distributed optimizer.
std::optional<Misfit> gather_overlap_misfit(bool gathers, bool reduces, bool distributed);
std::optional<Misfit> offload_misfit(const Switches&);
std::optional<Misfit> sharding_misfit(const Switches&);
// `copies` of the weights, over context ranks and replicas, of which `sharing` have one set of experts.
std::optional<Misfit> instances_misfit(const Switches&, int copies, int sharing);
// Of the sequences of a batch over replicas that are alike, and of what each of them runs.
std::optional<Misfit> batch_misfit(std::int64_t global_batch, std::int64_t micro_batch, int data);
std::optional<Misfit> microbatches_misfit(std::int64_t microbatches);

}  // namespace orrery
