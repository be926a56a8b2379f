// Layers per stage: the contiguous split with the least time.
#pragma once

#include <optional>
#include <vector>

#include "strategies/pipeline_time.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// Forward seconds, and forward and backward seconds, of one microbatch through the first i layers, for every
// i; embedding and head are with the first and the last layer. Does not fall.
struct PrefixTimes {
  std::vector<double> forward, whole;
  // Likewise seconds that the backward takes more through layers that are recomputed; empty: none.
  std::vector<double> repeat = {};
};

struct StageLoad {
  const PrefixTimes* before = nullptr;  // a stage with layers i .. j - 1 takes before[j] - before[i]
  int most_layers = 0;                  // that fit in memory
  // The first so many layers of the stage are recomputed (Megatron-LM's `block`). Splits are exact then where
  // all layers are alike.
  int repeated = 0;
};

// At least one layer a stage. Exact: the largest load is the least possible among all contiguous splits that
// keep every stage within its most_layers, by the dynamic programming of AMP (arXiv 2210.07297, section 4.2).
// Among equals, later stages take more layers: they hold fewer microbatches. Absent when nothing fits.
std::optional<std::vector<LayerRange>> least_slowest_split(const std::vector<StageLoad>& stages);

// The same with the least pipeline_time. Exact, by dynamic programming from the last stage back: of the
// stages after one only their time a microbatch and the time they make together count, so those pairs are
// kept that no other is better than in both.
std::optional<std::vector<LayerRange>> quickest_split(const std::vector<StageLoad>& stages,
                                                      const PipelineShape&);

// Layers spread over the parts with at most one between any two, the first ones taking more; at least one a
// part, or none at all.
std::vector<LayerRange> equal_parts(int layers, int parts);

// Stages that have as many layers each.
struct EqualStages {
  int stages = 0;
  double layer = 0;  // s of each of its layers
  double extra = 0;  // s of the embedding or the head on the busiest of them
};
// Layers of a stage of each run, one at least, `layers` in all; the largest load is the least possible. Among
// equals the first run has fewest, then the next. Empty where nothing divides so.
std::vector<int> equal_split(const std::vector<EqualStages>& runs, int layers);

}  // namespace orrery
