#include "costmodels/models/unaligned_gemm.hpp"

#include <numeric>

#include "costmodels/models/kernel_pace.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kAligned = 8;  // elements of 2 bytes
constexpr double kFlopsPerClock = 372;

// Elements from one row to the next of what is read: layers keep tokens x features and outputs x inputs.
std::int64_t common_row(const Gemm& gemm) {
  switch (gemm.pass) {
    case GemmPass::forward:
      return gemm.k;
    case GemmPass::input_gradient:
      return std::gcd(gemm.n, gemm.k);
    case GemmPass::weight_gradient:
      return std::gcd(gemm.m, gemm.n);
  }
  throw Defect("a pass without rows");
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
  return Seconds(flops_of(gemm).value() /
                 (kFlopsPerClock * static_cast<double>(alignment) * multiprocessor_clocks(gpu)));
}

}  // namespace orrery
