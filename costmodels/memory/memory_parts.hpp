// What a GPU's memory is made of, by name.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "costmodels/memory/memory.hpp"

namespace orrery {

// The parts that StageMemory::total adds up, in its order; `split` and `host` are in no sum.
std::vector<std::pair<std::string_view, Bytes>> memory_parts(const StageMemory&);

}  // namespace orrery
