// What limits a memory-bound kernel that is timed alone: its launch; the memory, as far as the L2 cache does
// not hold its tensors; and how many bytes its instructions move per multiprocessor and clock. vidur's add
// reaches 0.88 of what is left of the bandwidth on A100, A40 and H100 alike once cache and inline ECC are
// counted; its rope and RMSNorm move the same bytes per multiprocessor clock on A100 and H100.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodels/models/kernel_pace.hpp"

namespace orrery {

// One kernel in clocks, which carry over from GPU to GPU better than times do.
struct LonePace {
  double bytes_per_clock = 6;  // of a multiprocessor that holds 2048 threads, where the instructions limit
  double launch_clocks = 3000;
  bool operator==(const LonePace&) const = default;
};

struct KernelLaw {
  double bandwidth_share = 0.88;      // of what the data sheet leaves beside inline ECC
  double cached_share = 1;            // of the L2 cache, which keeps tensors from one kernel to the next
  double cache_bytes_per_clock = 20;  // of a multiprocessor, for what the cache kept
  std::array<LonePace, kKernelPasses> paces{};
  bool operator==(const KernelLaw&) const = default;
};

// One run of a kernel. `row`: of its bytes, those of a token that one block of threads works on, which
// decides how many of the block's threads idle; zero: elementwise, or not told.
struct LoneKernel {
  MemoryKernel kernel = MemoryKernel::copy;
  Direction direction = Direction::forward;
  Bytes bytes{};
  Bytes row{};
};

// Launch and the two limits; where these are close, both count. An addition streams: no instructions limit
// it.
Seconds law_time(const KernelLaw&, const LoneKernel&, const GpuSpec&);

// The last feature tells a GPU that taught the model from others; the model learns every row with and without
// it, so that an unseen GPU is taken for all that taught.
enum class GpuKnown { no, yes };
std::vector<float> lone_kernel_features(const KernelLaw&, const LoneKernel&, const GpuSpec&, GpuKnown);
const std::vector<std::string_view>& lone_kernel_feature_names();

// The law with the smallest mean error of log time, where each kernel of each GPU counts alike; found by
// descent along one number after the other. Kernels and gradients without a row keep the default.
KernelLaw fit_law(std::span<const KernelTime>);

std::string to_text(const KernelLaw&);
KernelLaw parse_law(const std::string& text, const std::string& file);  // throws InputError

}  // namespace orrery
