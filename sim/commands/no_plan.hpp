#pragma once

#include <string>
#include <vector>

#include "costmodels/models/cost_models.hpp"
#include "sim/commands/command_line.hpp"
#include "sim/search/search.hpp"
#include "sim/search/search_report.hpp"

namespace orrery {

// What a search that found no plan dropped and why; where money or time is short, what the plans take that a
// search without those limits finds (the rules and cost models are for that one).
std::string no_plan_text(const SearchReport&, const SearchResult&, std::vector<Rule>&, const CostModels&,
                         const CommandLine&);

}  // namespace orrery
