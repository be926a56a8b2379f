// What is asked of a search, and the limits on its plans.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodels/money/money.hpp"
#include "costmodels/stacks/software_stack.hpp"
#include "platforms/cluster.hpp"
#include "platforms/units.hpp"
#include "strategies/enumerate.hpp"
#include "strategies/model.hpp"

namespace orrery {

// Whether candidates that cannot be among the best are dropped before anything is known of their memory:
// never (every rejection is counted), where there are many, always.
enum class Pruning { never, where_large, always };

// How the best plans of a search are laid on the cluster before they are replayed
// (sim/search/place_plans.hpp): as the space says; in whichever rank order of Megatron-LM's arguments is
// faster; and with their hosts numbered anew.
enum class PlacementSearch { as_given, orders, anneal };

struct SearchJob {
  ModelSpec model;
  ClusterSpec cluster;
  SearchSpace space;
  SearchMode mode = SearchMode::heterogeneous;
  std::int64_t global_batch = 0;  // sequences
  std::int64_t sequence = 0;      // tokens
  double total_tokens = 0;        // of the whole training
  DataType type = DataType::bf16;
  std::optional<Dollars> budget;  // on the whole job
  std::optional<Seconds> deadline;
  int top = 10;
  Pruning pruning = Pruning::where_large;
  PlacementSearch placement = PlacementSearch::as_given;
  int jobs = 1;  // threads that play plans; nothing that is found depends on them

  // Whether plans may have another rank order than the default.
  [[nodiscard]] bool may_reorder() const {
    return placement != PlacementSearch::as_given || space.orders != SearchSpace().orders;
  }
  [[nodiscard]] double tokens_per_iteration() const {
    return static_cast<double>(global_batch) * static_cast<double>(sequence);
  }
  [[nodiscard]] double iterations() const;  // of the whole training
};

// Time that the nodes are held for an iteration of this length, interruptions included.
Seconds held_time(const SearchJob&, const ParallelStrategy&, Seconds iteration);
// Of the whole job on the strategy's nodes.
std::optional<RunCost> job_cost(const SearchJob&, const ParallelStrategy&, Seconds held, Dollars egress = {});

// Why a plan of this time (interruptions of its nodes included) and money is beyond the job's deadline or
// budget, in words; absent when it is not.
std::optional<std::string> limit_obstacle(const SearchJob&, Seconds total_time,
                                          const std::optional<RunCost>&);

// Overlaps that are left to the search are off where the program that will run the plans knows none.
SearchJob as_stack_can(SearchJob, const SoftwareStack&);

}  // namespace orrery
