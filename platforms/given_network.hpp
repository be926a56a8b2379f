// Reads `network:` of a cluster file; only cluster.cpp needs it.
#pragma once

#include <vector>

#include "platforms/cluster.hpp"
#include "platforms/yaml.hpp"

namespace orrery {

GivenNetwork parse_given_network(const YamlValue&, const std::vector<NodeGroup>&);

}  // namespace orrery
