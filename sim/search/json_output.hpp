// JSON documents of DESIGN 2.6. Fields may be added, never renamed.
#pragma once

#include <string>

#include "sim/replay/plan_run.hpp"
#include "sim/search/search_report.hpp"
#include "strategies/arguments.hpp"

namespace orrery {

std::string replay_json(const ReplaySummary&, const ReplayedPlan&);
std::string search_json(const SearchReport&);
// What a command that only writes files says: {"files": [path, ...]}.
std::string files_json(const std::vector<std::string>& paths);
// An argument of Megatron-LM as all documents write it: a number, true, false, a text or null.
std::string argument_json(const Argument&);

// A summary as bytes between processes: round-trips exactly.
std::string to_bytes(const ReplaySummary&);
ReplaySummary summary_from_bytes(const std::string&);

}  // namespace orrery
