// What kernels that follow each other move where the L2 cache holds what one leaves for the next.
#pragma once

#include <algorithm>

#include "platforms/gpu.hpp"

namespace orrery {

// Of `all` bytes that a chain of kernels over tensors of this size reads and writes, those that reach the
// memory: `uncached` whatever the cache holds, of the rest what it does not hold of six tensors. That is what
// four sources' steps of CS336's AdamW say of L20, RTX 4090 and RTX PRO 6000 (5.3 to 7.2) and allow on A800,
// whose cache is in halves.
inline double moved_past_cache(const GpuSpec& gpu, double tensor_bytes, double all, double uncached) {
  constexpr double kTensors = 6;
  const double held = std::min(1.0, gpu.l2_cache.value() / (kTensors * tensor_bytes));
  return uncached + (all - uncached) * (1 - held);
}

}  // namespace orrery
