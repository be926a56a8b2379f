// Bytes carried by every link, in time bins.
#pragma once

#include <vector>

#include "costmodels/traffic.hpp"
#include "platforms/topology.hpp"
#include "sim/idle.hpp"
#include "traces/timeline.hpp"

namespace orrery {

class LinkRecorder {
 public:
  // `bins` bins over `expected`, more when the run takes longer; 0 bins: off.
  LinkRecorder(const Topology&, int bins, Seconds expected);

  [[nodiscard]] bool on() const { return width_ > 0; }
  // Spreads the payload of a flow evenly over `when` on every link of its route.
  void add(const Flow&, Interval when);
  void write(Timeline&) const;

 private:
  const Topology& topology_;
  double width_ = 0;                        // s
  std::vector<std::vector<double>> bytes_;  // [link][bin]
};

}  // namespace orrery
