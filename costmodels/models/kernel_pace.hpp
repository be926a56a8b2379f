// What limits a kernel of a training framework beside the memory (of one timed alone: kernel_law.hpp): how
// many bytes its instructions move per multiprocessor and clock. vidur's rope and RMSNorm reach 0.35-0.5 of
// the bandwidth on A100 and H100 and 0.6-0.8 on A40, but about the same bytes per multiprocessor clock on all
// three.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodels/operators/operator.hpp"

namespace orrery {

inline constexpr std::size_t kMemoryKernels = 8;  // of the enumeration MemoryKernel
inline constexpr std::size_t kKernelPasses = 2 * kMemoryKernels;

// Where a kernel and its gradient stand in a list of both: the forward kernels first.
std::size_t pace_index(MemoryKernel, Direction);

// Multiprocessors x clock in Hz; the clock from the fp32 peak, two FLOPs a lane.
double multiprocessor_clocks(const GpuSpec&);

// No kernel moves more than 64 bytes per multiprocessor and clock to or from the L2 cache (NVIDIA's A100
// white paper: 5120 bytes per clock for 108 multiprocessors, so less than that).
Seconds least_kernel_time(Bytes, const GpuSpec&);

struct KernelPace {
  double bandwidth_share = 0.85;  // of the data sheet, where the memory limits
  double bytes_per_clock = 1000;  // of a multiprocessor, where the instructions limit
  bool operator==(const KernelPace&) const = default;
};
using KernelPaces = std::array<KernelPace, kKernelPasses>;

// Launch and both limits; where they are close, both count.
Seconds paced_time(const KernelPace&, Bytes, const GpuSpec&);

struct KernelTime {
  MemoryKernel kernel = MemoryKernel::copy;
  Bytes bytes{};
  const GpuSpec* gpu = nullptr;  // of the catalog
  Seconds time{};
  Direction direction = Direction::forward;
  Bytes row{};  // as of MeasuredKernel
};

// For each kernel the pace with the smallest mean error of log time, GPUs counting alike, among a grid.
// Kernels and gradients without a row keep the default.
KernelPaces fit_paces(std::span<const KernelTime>);

std::string to_text(const KernelPaces&);
KernelPaces parse_paces(const std::string& text, const std::string& file);  // throws InputError

}  // namespace orrery
