// Layers per stage: the contiguous split whose slowest stage is fastest.
#pragma once

#include <optional>
#include <vector>

#include "strategies/strategy.hpp"

namespace orrery {

// What a stage would take for any stretch of layers: before[j] - before[i] for layers i .. j - 1, plus
// `extra` (embedding or head). `before` has one entry more than there are layers and does not fall.
struct StageLoad {
  const std::vector<double>* before = nullptr;  // s of one microbatch, forward and backward
  double extra = 0.0;
  int most_layers = 0;  // that fit in memory
};

// At least one layer a stage. Exact: the largest load is the least possible among all contiguous splits that
// keep every stage within its most_layers, by the dynamic programming of AMP (arXiv 2210.07297, section 4.2).
// Among equals, later stages take more layers: they hold fewer microbatches. Absent when nothing fits.
std::optional<std::vector<LayerRange>> partition_layers(const std::vector<StageLoad>& stages);

}  // namespace orrery
