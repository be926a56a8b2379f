#pragma once

#include "sim/commands/command_line.hpp"

namespace orrery {

// Options of `orrery replay --collective`, and what it does.
void declare_collective(CommandLine&);
int replay_collective(const CommandLine&);
// Throws InputError for those that mean nothing without --collective.
void refuse_collective_options(const CommandLine&);

}  // namespace orrery
