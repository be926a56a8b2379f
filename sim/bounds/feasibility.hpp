// From an allocation and a setting to a plan that fits: layers per stage, memory per stage.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <variant>
#include <vector>

#include "costmodels/memory/card_memory.hpp"
#include "costmodels/plans/price_book.hpp"
#include "platforms/errors.hpp"
#include "strategies/partition.hpp"
#include "strategies/schedule.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

struct FittedStages {
  std::vector<LayerRange> parts;
  std::vector<StageMemory> memory;  // [kind * P + stage]
};

class StageFitter {
 public:
  explicit StageFitter(const PriceBook& book);

  // Splits the layers over the parts of `strategy` (whose parts are still empty) so that it takes the least
  // pipeline_time (the slowest stage is fastest, where the schedule is another than 1f1b or gpipe), and
  // checks the memory of every stage against its own GPU. When the fastest split does not fit, layers are
  // moved off the stages that are too full. Where `block` is to recompute the fewest layers that fit, these
  // are chosen, and so many more as keep the fastest split where that takes less. What does not fit is left
  // as it was tried last.
  std::variant<FittedStages, Infeasible> fit(ParallelStrategy& strategy);

  // Equal layers in place of the fitted ones, which know nothing of transfers and reductions. Absent where
  // these are equal or equal ones do not fit, and with virtual stages.
  std::optional<FittedStages> fit_equal(ParallelStrategy fitted);

  // Of one GPU of each stage at its peak, [kind * P + stage]. Of a schedule that is built for the durations:
  // of its order for equal ones, which keeps as many alive.
  std::vector<StageMemory> memory_of(const ParallelStrategy&);
  // The same of these programs.
  std::vector<StageMemory> memory_of(const ParallelStrategy&, const PlanPrograms&) const;
  // Of the stage that fits its card least.
  MemoryVerdict worst_verdict(const ParallelStrategy&, const std::vector<StageMemory>&) const;
  // Whether what is offloaded does not fit the memory of a node; else the first of the stages that fit worst,
  // where a stage needs more than its GPU has for it; the reason ends in its verdict.
  std::optional<Infeasible> too_full(const ParallelStrategy&, const std::vector<StageMemory>&) const;
  std::optional<Infeasible> host_too_full(const ParallelStrategy&, const std::vector<StageMemory>&) const;
  // What is needed over what is usable, of the card or the node that lacks most.
  [[nodiscard]] double excess(const ParallelStrategy&, const std::vector<StageMemory>&) const;

 private:
  enum class Moving { forbidden, allowed };  // of layers off stages that are too full
  std::variant<FittedStages, Infeasible> fit(ParallelStrategy&, Moving);
  std::variant<FittedStages, Infeasible> fit_fewest(ParallelStrategy&);
  std::variant<FittedStages, Infeasible> fit_fewest(ParallelStrategy&, Moving);
  double split_time(const ParallelStrategy&) const;
  const std::vector<LayerRange>& known_split(const ParallelStrategy&);
  std::vector<LayerRange> equal_chunks(const ParallelStrategy&) const;
  std::vector<LayerRange> fastest_split(const ParallelStrategy&, const std::vector<int>& most_layers);
  const PrefixTimes& layer_times(const ShardKey&, const Recompute&);
  const std::vector<AliveState>& alive(const ParallelStrategy&, int stage);
  // Of one GPU of a stage of equal replicas, communicators included.
  StageMemory peak(const ParallelStrategy&, int stage, const std::vector<AliveState>&) const;
  std::vector<int> most_layers(const ParallelStrategy&);  // that fit each stage
  int most_layers(ParallelStrategy, int stage, Bytes communicators);
  Bytes capacity(const ParallelStrategy&, int stage) const;

  // Layers that `block` recomputes of each part as far as the split counts them one by one; 0: it does not.
  int counted_repeats(const Recompute&) const;

  const PriceBook& book_;
  bool layers_alike_;
  std::map<std::tuple<ShardKey, Recompute::OfLayer, int>, PrefixTimes> layer_times_;
  struct AliveKey {
    ScheduleKind kind;
    TransferMode transfers;
    int ranks, chunks, microbatches;
    auto operator<=>(const AliveKey&) const = default;
  };
  std::map<AliveKey, std::vector<std::vector<AliveState>>> alive_;       // [stage]
  std::map<std::vector<std::int64_t>, std::vector<LayerRange>> splits_;  // the fastest, by what decides them
  // All that peak_memory asks of a pipeline without virtual stages, but for its stages and their number.
  struct MemoryKey {
    int tensor_of_first, data, context, expert;
    std::optional<int> expert_tensor;
    std::int64_t micro_batch, sequence;
    DataType type;
    bool sequence_parallel, distributed_optimizer;
    int optimizer_instances;
    bool flash_attention;
    std::optional<bool> tensor_overlap;
    double optimizer_offload;
    bool fully_sharded;
    Recompute::OfLayer recompute;
    RecomputeMethod method;
    int recomputed;
    auto operator<=>(const MemoryKey&) const = default;
  };
  static MemoryKey memory_key(const ParallelStrategy&);
  // And of a stage.
  struct StageKey {
    int group, tensor;
    bool is_first, is_last;
    double communicators;    // B
    std::vector<int> alive;  // of each state: microbatches, and those that wait for their weight gradient
    auto operator<=>(const StageKey&) const = default;
  };
  std::map<MemoryKey, std::map<StageKey, int>> most_layers_;
};

}  // namespace orrery
