// The entries of `links:` of a cluster file: links changed by name. Read by cluster.cpp, applied by
// topology.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "platforms/cluster.hpp"
#include "platforms/topology.hpp"
#include "platforms/yaml.hpp"

namespace orrery {

// The entries, in order. Throws InputError, also for a name that no link of the largest cluster has;
// `cluster` is complete but for its overrides.
std::vector<LinkOverride> parse_link_overrides(const YamlValue& list, const ClusterSpec& cluster);

// Whether `name` is `pattern`, in which each `*` stands for any text, also none.
bool matches_pattern(std::string_view pattern, std::string_view name);

// Each override in turn changes every link it matches.
void apply_overrides(const std::vector<LinkOverride>&, std::vector<TopologyLink>&);

// "0.5x" of an override's factor, exactly.
std::string factor_text(double factor);

}  // namespace orrery
