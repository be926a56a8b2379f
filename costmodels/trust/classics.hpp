// Published training runs that come with Orrery (measured/classics.csv, with their sources).
#pragma once

#include <string_view>

namespace orrery {

std::string_view classics_csv();

}  // namespace orrery
