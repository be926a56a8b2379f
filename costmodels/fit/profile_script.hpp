// The Python script that measures operators (profile/), as `orrery profile` writes and runs it.
#pragma once

#include <string_view>
#include <vector>

#include "platforms/embedded.hpp"

namespace orrery {

inline constexpr std::string_view kProfileScript = "orrery_profile.py";

std::vector<EmbeddedFile> profile_script();  // kProfileScript and the modules that it imports

}  // namespace orrery
