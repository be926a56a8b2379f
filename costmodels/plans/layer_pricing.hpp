// Measured times of whole layers in place of the cost models' predictions.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "costmodels/layers/block_cost.hpp"
#include "costmodels/plans/price_book.hpp"
#include "traces/layer_profile.hpp"

namespace orrery {

// The table for a shard on a node group, of the microbatch that was measured. Throws InputError for layers or
// tensor ways that were not measured, and for context or expert ways, of which a profile of layers knows
// nothing.
LayerTable measured_layers(const LayerProfile&, const ModelSpec&, const NodeGroup&, const ShardKey&);

// What the cost models say of a block of a measured model, and of the host that launches it.
struct BlockPrediction {
  const BlockCost& asked;
  const BlockCost& measured;  // of the microbatch that was measured
  const BlockCost& whole;     // of that and without tensor ways
  double sequences = 1;       // of the asked microbatch over the measured one
};

// A block that takes as long as was measured, split into compute, communication and attention core in the
// predicted proportion. Another microbatch and a backward that was not measured follow from what was as the
// predicted GPU times do, and never take less than the host; a measured time that the host bounds says
// nothing of the GPU, whose prediction then stands. Where `LayerTimes::whole` is known, what a forward takes
// beyond the GPU's share of it is collectives, which a backward has as many of. What was predicted as nothing
// grows with the sequences, its backward twice its forward. The host and the slowest GPU
// are in what was measured.
BlockCost as_measured(const BlockPrediction&, const LayerTimes&);

using GroupProfiles = std::map<int, LayerProfile>;  // by node group; groups without one stay predicted

// What one GPU of each stage holds by the profile's memory; absent where it has none.
std::vector<std::optional<Bytes>> profiled_memory(const PriceBook&, const ParallelStrategy&,
                                                  const GroupProfiles&);

}  // namespace orrery
