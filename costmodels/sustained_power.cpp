#include "costmodels/sustained_power.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {

Seconds under_power(const Operator& op, const GpuSpec& gpu, Seconds alone) {
  const bool matrix = std::holds_alternative<Gemm>(op) || std::holds_alternative<Attention>(op);
  if (!matrix || alone <= Seconds(0)) return alone;
  constexpr double kFull = 1e-3, kGone = 4e-3;  // s
  const double position = std::log(alone.value() / kFull) / std::log(kGone / kFull);
  const double throttled_already = std::clamp(position, 0.0, 1.0);
  const double clock = gpu.sustained + (1 - gpu.sustained) * throttled_already;
  constexpr double kClockExponent = 0.4;
  const double limit = gpu.power_limit ? std::pow(*gpu.power_limit / gpu.power, kClockExponent) : 1.0;
  return alone / (clock * limit);
}

}  // namespace orrery
