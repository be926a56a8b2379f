// Export for SimGrid's and Paje's viewers and scripts: ViTE, pj_dump.
#pragma once

#include <string>

#include "traces/trace.hpp"

namespace orrery {

// A container a rank with a state a span of its compute stream, and one below it for each of its transfers
// that run at once. Times in seconds; spans of no length are left out. Throws InputError naming the path when
// it cannot be written.
void export_paje(const std::string& path, const Trace&);

}  // namespace orrery
