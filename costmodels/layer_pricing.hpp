// Plans priced from measured times of whole layers in place of the cost models.
#pragma once

#include <map>
#include <vector>

#include "costmodels/priced_plan.hpp"
#include "platforms/cluster.hpp"
#include "strategies/model.hpp"
#include "strategies/strategy.hpp"
#include "traces/layer_profile.hpp"

namespace orrery {

using GroupProfiles = std::map<int, LayerProfile>;  // by node group; groups without one stay predicted

// Replaces the forwards and backwards of the parts on profiled groups: their layers, the embedding before the
// first and the head after the last. Full recomputation repeats forwards. A backward that was split stays
// split in the same proportion. Where the profile has optimizer times, the step of a stage is the sum over
// its layers (over the data-parallel ways with the distributed optimizer). Transfers and reductions stay.
// Throws InputError for layers or tensor ways that were not measured, and for context or expert ways and
// selective recomputation, of which a profile of layers knows nothing.
void price_by_profiles(PricedPlan&, const ModelSpec&, const ClusterSpec&, const ParallelStrategy&,
                       const GroupProfiles&);

// What one GPU of each stage holds by the profile's memory; absent where it has none.
std::vector<std::optional<Bytes>> profiled_memory(const ModelSpec&, const ClusterSpec&,
                                                  const ParallelStrategy&, const GroupProfiles&);

}  // namespace orrery
