// The links of a route by name.
#pragma once

#include <string>
#include <vector>

#include "platforms/topology.hpp"

namespace orrery {

using Names = std::vector<std::string>;

inline Names names(const Topology& topology, int from, int to) {
  Names result;
  const Route route = topology.route(from, to);
  for (std::size_t i = 0; i < static_cast<std::size_t>(route.count); ++i) {
    result.push_back(topology.links()[static_cast<std::size_t>(route.links[i])].name);
  }
  return result;
}

}  // namespace orrery
