#include "sim/fair_shares.hpp"

#include <algorithm>
#include <limits>

namespace orrery {

FairShares::FairShares(const Topology& topology) {
  for (const TopologyLink& link : topology.links()) links_.push_back({link.spec.bandwidth.value()});
}

FairShares::Link& FairShares::link(const Route& route, int i) {
  return links_[static_cast<std::size_t>(route.links[static_cast<std::size_t>(i)])];
}

std::optional<std::vector<double>> FairShares::rates(const std::vector<Route>& routes) {
  constexpr double kRounding = 1 - 1e-12;
  constexpr double kNone = std::numeric_limits<double>::infinity();
  for (const int index : touched_) links_[static_cast<std::size_t>(index)].flows = 0;
  touched_.clear();
  for (const Route& route : routes) {
    for (int i = 0; i < route.count; ++i) {
      if (link(route, i).flows++ == 0) touched_.push_back(route.links[static_cast<std::size_t>(i)]);
    }
  }
  for (const int index : touched_) links_[static_cast<std::size_t>(index)].least = kNone;
  std::vector<double> all;
  all.reserve(routes.size());
  for (const Route& route : routes) {
    double rate = kNone;
    for (int i = 0; i < route.count; ++i) rate = std::min(rate, share(link(route, i)));
    for (int i = 0; i < route.count; ++i) {
      Link& crossed = link(route, i);
      crossed.least = std::min(crossed.least, rate);
    }
    all.push_back(rate);
  }
  for (const Route& route : routes) {
    bool is_bound = false;
    for (int i = 0; i < route.count; ++i) {
      const Link& crossed = link(route, i);
      is_bound = is_bound || crossed.least >= share(crossed) * kRounding;
    }
    if (!is_bound) return std::nullopt;
  }
  return all;
}

}  // namespace orrery
