// The readers behind read_layer_profile, by the form of the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "traces/layer_profile.hpp"

namespace orrery {

std::vector<LayerTable> read_json_layers(const std::string& path);  // Metis, Sailor
std::vector<LayerTable> read_csv_layers(const std::string& path);   // Aceso, AMP

// The count behind `mark` in the name of a file: 4 for "_tp" in "a_tp4_bs1.json". Throws InputError.
int count_in_name(const std::string& path, std::string_view mark);
// As InputError says it: above this a time is no measurement but a mark, 1000 s.
inline constexpr double kLongestLayer = 1000;

}  // namespace orrery
