// The best plans of a search laid on the cluster anew: another rank order, hosts numbered anew.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/search/search.hpp"

namespace orrery {

// The strategy in the rank order of Megatron-LM's arguments, and on the hosts, that the estimate finds
// fastest. Never one that sends more bytes between nodes than the strategy as given, or keeps links between
// nodes busy for longer (TrafficCost::crossing): then, or where nothing is faster, the strategy as given. A
// strategy with hosts of its own, or on a cluster with a link that is down, stays.
ParallelStrategy best_placed(const PriceBook&, const ParallelStrategy&, PlacementSearch, std::uint64_t seed);

// Lays every plan so, as SearchJob::placement says, and rates it again. Returns how many have changed.
int place_plans(std::vector<RatedPlan>&, const SearchJob&, const PriceBook&, std::uint64_t seed);

}  // namespace orrery
