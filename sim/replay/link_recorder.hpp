// Bytes carried by every link, in time bins.
#pragma once

#include <cstddef>
#include <vector>

#include "platforms/topology.hpp"
#include "traces/timeline.hpp"

namespace orrery {

class LinkRecorder {
 public:
  // `bins` bins over `expected`, more when the run takes longer; 0 bins: off.
  LinkRecorder(const Topology&, int bins, Seconds expected);

  [[nodiscard]] bool on() const { return width_ > 0; }
  [[nodiscard]] double width() const { return width_; }  // of a bin, s
  [[nodiscard]] double end_of(std::size_t bin) const { return static_cast<double>(bin + 1) * width_; }
  // So many bytes of payload crossed every link of the route in a bin.
  void add(const Route&, std::size_t bin, double bytes);
  void write(Timeline&) const;

 private:
  const Topology& topology_;
  double width_ = 0;                        // s
  std::vector<std::vector<double>> bytes_;  // [link][bin]
};

}  // namespace orrery
