// Transfers that run at once, spread over lanes on which they do not cross: most viewers nest what overlaps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "traces/timeline.hpp"

namespace orrery {

// A century is the longest: a foreign file may hold any number.
inline std::int64_t nanoseconds(double seconds) {
  constexpr double kLongest = 100 * 365.25 * 86400;
  return std::llround(std::clamp(seconds, -kLongest, kLongest) * 1e9);
}

// The network lanes of one rank. Spans come in the order of their starts.
class NetworkLanes {
 public:
  // The first lane that is free when the span starts, to the nanosecond.
  int lane_for(const SpanRow& span) {
    std::size_t lane = 0;
    while (lane < ends_.size() && ends_[lane] > nanoseconds(span.start)) ++lane;
    if (lane == ends_.size()) ends_.push_back(0);
    ends_[lane] = nanoseconds(span.end);
    return static_cast<int>(lane);
  }
  [[nodiscard]] int count() const { return static_cast<int>(ends_.size()); }

 private:
  std::vector<std::int64_t> ends_;
};

}  // namespace orrery
