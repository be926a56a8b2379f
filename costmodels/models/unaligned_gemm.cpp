#include "costmodels/models/unaligned_gemm.hpp"

#include <numeric>

#include "costmodels/models/kernel_pace.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kAligned = 8;               // elements of 2 bytes
constexpr double kForward = 372, kGradient = 557;  // FLOPs of a multiprocessor and clock

// Elements from one row to the next: layers keep tokens x features and outputs x inputs.
std::int64_t common_row(const Gemm& gemm) {
  return gemm.pass == GemmPass::weight_gradient ? std::gcd(gemm.m, gemm.n) : std::gcd(gemm.n, gemm.k);
}

}  // namespace

std::int64_t row_alignment(const Gemm& gemm) {
  const std::int64_t common = std::gcd(common_row(gemm), kAligned);
  return common == 4 ? 2 : common;
}

Seconds unaligned_time(const Gemm& gemm, const GpuSpec& gpu) {
  const bool sixteen_bit = gemm.type == DataType::bf16 || gemm.type == DataType::fp16;
  const std::int64_t alignment = row_alignment(gemm);
  if (!sixteen_bit || alignment == kAligned || of_other_maker(gpu)) return {};
  const double pace = gemm.pass == GemmPass::forward ? kForward : kGradient;
  return Seconds(flops_of(gemm).value() /
                 (pace * static_cast<double>(alignment) * multiprocessor_clocks(gpu)));
}

}  // namespace orrery
