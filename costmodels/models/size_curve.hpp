// Time of one operator by its size alone: non-decreasing, interpolated between powers of two. Trees answer in
// steps, and a step of efficiency would let more bytes take less time.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "platforms/units.hpp"

namespace orrery {

// The sizes at which a model is asked: 1 KiB to 32 GiB.
std::span<const Bytes> curve_sizes();

class SizeCurve {
 public:
  // `times[i]` at curve_sizes()[i], all above zero.
  explicit SizeCurve(std::vector<Seconds> times);

  // Below the smallest size its time; above the largest in proportion to the bytes.
  [[nodiscard]] Seconds at(Bytes size) const;

 private:
  std::vector<Seconds> times_;
};

}  // namespace orrery
