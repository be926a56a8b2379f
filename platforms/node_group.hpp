// Reads one entry of `groups:` of a cluster file; only cluster.cpp needs it.
#pragma once

#include <string>

#include "platforms/cluster.hpp"
#include "platforms/yaml.hpp"

namespace orrery {

// `pricing` stands in for the group's own, where its price comes from the catalog.
NodeGroup parse_node_group(const YamlValue&, std::optional<Pricing> pricing = std::nullopt);

// A name that also becomes part of link names: letters, digits, '-' and '_'. Throws InputError.
std::string parse_label(const YamlValue&);

}  // namespace orrery
