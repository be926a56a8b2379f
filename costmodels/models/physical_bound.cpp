#include "costmodels/models/physical_bound.hpp"

#include <algorithm>

#include "costmodels/models/attention_table.hpp"
#include "costmodels/models/features.hpp"
#include "costmodels/models/kernel_pace.hpp"

namespace orrery {

namespace {

// H100's matrix peak is given at 1830 MHz and its highest clock is 1980 (NVIDIA's H100 white paper): 1.08.
// The peaks of other server cards are given at the highest clock.
constexpr double kServerClock = 1.1;
// Cards with a display: the data sheet says what every card reaches. RTX 2080 Ti: 1545 MHz, and 2100 as
// highest; sailor measured 1.11 x its peak.
constexpr double kDisplayClock = 1.4;

Seconds least(Flops flops, Bytes bytes, DataType type, const GpuSpec& gpu) {
  const auto peak = matrix_peak(gpu, type);
  const Seconds moved = least_kernel_time(bytes, gpu);
  return peak ? std::max(flops / (peak->speed * top_clock(gpu)), moved) : moved;
}

}  // namespace

double top_clock(const GpuSpec& gpu) {
  const auto has = [&](const char* word) { return gpu.name.find(word) != std::string::npos; };
  return has("RTX") || has("GTX") || has("Titan") ? kDisplayClock : kServerClock;
}

Seconds least_time(const Gemm& op, const GpuSpec& gpu) {
  return least(flops_of(op), gemm_traffic(op), op.type, gpu);
}

Seconds least_time(const Attention& op, const GpuSpec& gpu) {
  // No published kernel of training multiplies in 8 bits.
  return least(flops_of(op), attention_traffic(op), op.type == DataType::fp8 ? DataType::bf16 : op.type, gpu);
}

Seconds least_time(const Operator& any, const GpuSpec& gpu) {
  return std::visit(
      [&](const auto& op) -> Seconds {
        using Op = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Op, MemoryBound>)
          return least_kernel_time(op.bytes, gpu);
        else if constexpr (std::is_same_v<Op, Collective>)
          return wire_time(op);
        else if constexpr (std::is_same_v<Op, PointToPoint>)
          return op.bytes / op.path.bandwidth;
        else
          return least_time(op, gpu);
      },
      any);
}

}  // namespace orrery
