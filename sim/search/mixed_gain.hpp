// What it is worth to plan for unlike GPUs: the best plan of the search against those of simpler ways to
// plan, all replayed on the same cluster.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/search/search.hpp"

namespace orrery {

struct GainRow {
  std::string way;                       // "heterogeneous", "equal layers", "h100 alone", "all as t4"
  std::optional<ParallelStrategy> plan;  // the fastest in the replay; absent: no plan fits
  ClusterSpec cluster;                   // that it runs on: one group where it is alone
  Seconds estimate;                      // least estimate of the plans this way found
  Seconds replayed;                      // of `plan`
  std::optional<RunCost> cost;           // of `plan`; absent where a price is not known
  OwnAnswers own = {};                   // PriceBook
};

// Heterogeneous first, then: the same layers on every stage (of the thousand fastest plans, made equal), the
// nodes of the fastest GPU alone, which then rents no others, and the plans that a search finds which takes
// all GPUs for the slowest. Of each way the `SearchJob::top` best by its own estimate are estimated for the
// true cluster and replayed on it.
std::vector<GainRow> mixed_gain(const SearchJob&, std::vector<Rule>&, const CostModels&, const SoftwareStack&,
                                int jobs);

std::string to_text(const SearchJob&, const std::vector<GainRow>&);
std::string to_json(const SearchJob&, const std::vector<GainRow>&);

}  // namespace orrery
