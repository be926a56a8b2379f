#pragma once

namespace orrery {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace orrery
