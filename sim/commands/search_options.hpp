// The options of `orrery search` that say what is searched, for other commands that take them.
#pragma once

#include <vector>

#include "sim/commands/command_line.hpp"
#include "sim/search/search.hpp"

namespace orrery {

void declare_search_options(CommandLine&);
SearchJob read_search_job(const CommandLine&);
std::vector<Rule> read_search_rules(const CommandLine&);

// `orrery search --explain PLAN`; 0 when the plan can run, else 1. Throws InputError.
int explain_plan(const CommandLine&, const std::string& path);

}  // namespace orrery
