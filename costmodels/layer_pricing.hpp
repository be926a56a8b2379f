// Measured times of whole layers in place of the cost models' predictions.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "costmodels/block_cost.hpp"
#include "costmodels/price_book.hpp"
#include "traces/layer_profile.hpp"

namespace orrery {

// The table for a shard on a node group. Throws InputError for layers or tensor ways that were not measured,
// and for context or expert ways, of which a profile of layers knows nothing.
LayerTable measured_layers(const LayerProfile&, const ModelSpec&, const NodeGroup&, const ShardKey&);

// A layer that takes as long as was measured, split into compute, communication and attention core in the
// predicted proportion.
BlockCost as_measured(const BlockCost& predicted, const LayerTimes&);

using GroupProfiles = std::map<int, LayerProfile>;  // by node group; groups without one stay predicted

// What one GPU of each stage holds by the profile's memory; absent where it has none.
std::vector<std::optional<Bytes>> profiled_memory(const PriceBook&, const ParallelStrategy&,
                                                  const GroupProfiles&);

}  // namespace orrery
