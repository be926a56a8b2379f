#include "costmodels/models/size_curve.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "platforms/errors.hpp"

namespace orrery {

namespace {
constexpr int kFirstExponent = 10, kLastExponent = 35;
constexpr std::size_t kSizes = kLastExponent - kFirstExponent + 1;
}  // namespace

std::span<const Bytes> curve_sizes() {
  static const std::array<Bytes, kSizes> sizes = [] {
    std::array<Bytes, kSizes> powers;
    for (std::size_t i = 0; i < kSizes; ++i)
      powers[i] = Bytes(std::ldexp(1.0, kFirstExponent + static_cast<int>(i)));
    return powers;
  }();
  return sizes;
}

SizeCurve::SizeCurve(std::vector<Seconds> times) : times_(std::move(times)) {
  ORRERY_ENSURE(times_.size() == kSizes && times_.front().value() > 0);
  for (std::size_t i = 1; i < kSizes; ++i) times_[i] = std::max(times_[i], times_[i - 1]);
}

Seconds SizeCurve::at(Bytes size) const {
  const double position = std::log2(size.value()) - kFirstExponent;
  if (!(position > 0)) return times_.front();
  if (position >= static_cast<double>(kSizes - 1)) return times_.back() * (size / curve_sizes().back());
  const auto below = static_cast<std::size_t>(position);
  const Seconds low = times_[below], high = times_[below + 1];
  // Linear in bytes between two powers of two: latency + bytes / bandwidth stays what it is.
  const double share = size / curve_sizes()[below] - 1.0;
  return low + (high - low) * share;
}

}  // namespace orrery
