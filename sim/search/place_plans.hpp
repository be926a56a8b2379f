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

// The job that finds what is worth placing: plans of other shapes gain more by it, so thirty are asked for.
SearchJob with_plans_to_place(SearchJob);

// Lays every plan so, as SearchJob::placement says, rates it again and keeps the best of the job, fastest
// first. Returns how many had changed.
int place_plans(std::vector<RatedPlan>&, const SearchJob&, const PriceBook&, std::uint64_t seed);

}  // namespace orrery
