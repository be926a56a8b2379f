#include "sim/replay/fair_shares.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace orrery {

FairShares::FairShares(const Topology& topology) {
  for (const TopologyLink& link : topology.links()) links_.push_back({link.spec.bandwidth.value()});
}

FairShares::Link& FairShares::link(const Route& route, int i) {
  return links_[static_cast<std::size_t>(route.links[static_cast<std::size_t>(i)])];
}

void FairShares::set_flows(std::vector<Route> routes) {
  for (const int index : crossed_) links_[static_cast<std::size_t>(index)].flows = 0;
  crossed_.clear();
  routes_ = std::move(routes);
  for (const Route& route : routes_) {
    for (int i = 0; i < route.count; ++i) {
      if (link(route, i).flows++ == 0) crossed_.push_back(route.links[static_cast<std::size_t>(i)]);
    }
  }
  std::size_t all = 0;
  for (const int index : crossed_) {
    Link& crossed = links_[static_cast<std::size_t>(index)];
    crossed.first = all;
    crossed.open = 0;
    all += static_cast<std::size_t>(crossed.flows);
  }
  flows_of_links_.resize(all);
  for (std::size_t flow = 0; flow < routes_.size(); ++flow) {
    for (int i = 0; i < routes_[flow].count; ++i) {
      Link& crossed = link(routes_[flow], i);
      flows_of_links_[crossed.first + static_cast<std::size_t>(crossed.open++)] = flow;
    }
  }
}

std::vector<double> FairShares::rates() {
  constexpr double kNone = -1;
  using Candidate = std::pair<double, int>;  // share and link; shares grow as other links give flows theirs
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> least;
  for (const int index : crossed_) {
    Link& crossed = links_[static_cast<std::size_t>(index)];
    crossed.left = crossed.bandwidth;
    crossed.open = crossed.flows;
    least.emplace(crossed.share(), index);
  }
  std::vector<double> rates(routes_.size(), kNone);
  while (!least.empty()) {
    const auto [was, index] = least.top();
    least.pop();
    Link& full = links_[static_cast<std::size_t>(index)];
    if (full.open == 0) continue;
    const double share = full.share();
    if (share > was) {
      least.emplace(share, index);
      continue;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(full.flows); ++i) {
      const std::size_t flow = flows_of_links_[full.first + i];
      if (rates[flow] != kNone) continue;
      rates[flow] = share;
      for (int at = 0; at < routes_[flow].count; ++at) {
        Link& crossed = link(routes_[flow], at);
        crossed.left = std::max(0.0, crossed.left - share);
        --crossed.open;
      }
    }
  }
  return rates;
}

}  // namespace orrery
