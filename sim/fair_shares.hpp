// Max-min fair rates where they follow from the links one by one.
#pragma once

#include <optional>
#include <vector>

#include "platforms/topology.hpp"

namespace orrery {

class FairShares {
 public:
  explicit FairShares(const Topology&);

  // B/s of a flow on each of the routes, when these flows and no others cross their links, all alike: the
  // least of the equal shares of its links, if that is max-min fair. It is where each flow has a link that
  // all flows on it fill at its rate (Bertsekas and Gallager, Data Networks, section 6.5.2); absent
  // otherwise.
  std::optional<std::vector<double>> rates(const std::vector<Route>&);
  // Of the last routes, whether so many flows cross each of their links as `crossing(link)` says.
  template <class Crossing>
  [[nodiscard]] bool are_all(Crossing crossing) const {
    for (const int link : touched_) {
      if (links_[static_cast<std::size_t>(link)].flows != crossing(link)) return false;
    }
    return true;
  }

 private:
  struct Link {
    double bandwidth = 0;  // B/s
    int flows = 0;
    double least = 0;  // of the rates of its flows
  };
  Link& link(const Route&, int i);
  [[nodiscard]] static double share(const Link& link) { return link.bandwidth / link.flows; }

  std::vector<Link> links_;
  std::vector<int> touched_;
};

}  // namespace orrery
