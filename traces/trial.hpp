// Work on input that a library may crash on, or never get through, is tried in a process of its own.
#pragma once

#include <functional>

namespace orrery {

// Whether `work` returns or throws within `seconds` of processor time. It runs in a forked child, so that
// nothing of it is left here. Call it before any thread exists.
bool ends_within(unsigned seconds, const std::function<void()>& work);

}  // namespace orrery
