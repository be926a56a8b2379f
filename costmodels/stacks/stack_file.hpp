// Software stacks as they are written down: the presets of stacks.yaml, and files of one's own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "costmodels/stacks/software_stack.hpp"

namespace orrery {

inline constexpr std::string_view kDefaultStack = "megatron-core";

// A preset by name, or a YAML file (ends in .yaml or .yml) that says `like: PRESET` and what differs. Throws
// InputError, of an unknown name with the place that gave it.
SoftwareStack read_stack(const std::string& path_or_name, const std::string& place = "--stack");
// What it reads; of a preset, all presets.
std::string read_stack_text(const std::string& path_or_name);
SoftwareStack parse_stack(std::string_view yaml, const std::string& file);
std::vector<std::string> builtin_stack_names();
std::string_view to_text(CrossEntropyKernel);  // as a file says it

}  // namespace orrery
