// Max-min fair rates of flows that share links.
#pragma once

#include <vector>

#include "platforms/topology.hpp"

namespace orrery {

class FairShares {
 public:
  explicit FairShares(const Topology&);

  // The flows to share links from now on, by their routes.
  void set_flows(std::vector<Route>);
  // Whether on each of their links there are so many of them as `flows_on(link)` says.
  template <class FlowsOn>
  [[nodiscard]] bool are_all(FlowsOn flows_on) const {
    for (const int link : crossed_) {
      if (links_[static_cast<std::size_t>(link)].flows != flows_on(link)) return false;
    }
    return true;
  }
  // B/s of each, when no others cross their links and all are alike: progressive filling (Bertsekas and
  // Gallager, Data Networks, section 6.5.2), link by link from the one with the least share on.
  std::vector<double> rates();

 private:
  struct Link {
    double bandwidth = 0;   // B/s
    int flows = 0;          // all that cross it
    std::size_t first = 0;  // of them in flows_of_links_
    int open = 0;           // without a rate yet
    double left = 0;        // B/s, for these
    [[nodiscard]] double share() const { return left / open; }
  };
  Link& link(const Route&, int i);

  std::vector<Link> links_;
  std::vector<int> crossed_;  // links
  std::vector<Route> routes_;
  std::vector<std::size_t> flows_of_links_;
};

}  // namespace orrery
