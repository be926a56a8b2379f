// The Python script that measures operators (profile/), as `orrery profile` writes and runs it.
#pragma once

#include <string_view>
#include <vector>

#include "platforms/embedded.hpp"

namespace orrery {

inline constexpr std::string_view kProfileScript = "orrery_profile.py";
inline constexpr std::string_view kStepsScript = "orrery_steps.py";

std::vector<EmbeddedFile> profile_script();  // both and the modules that they import

}  // namespace orrery
