#include "costmodels/stacks/sustained_power.hpp"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

// Rows of the largest GEMM that the profiles hold for every matrix (vidur: 4096 tokens): a taller one is a
// multiple of it, no kernel that was measured throttled.
constexpr double kMeasuredRows = 4096;

// Of the GPU whose throttled kernels the efficiencies were learned from, in 16 bits: H100.
constexpr FlopsPerSecond kMeasuredPeak(989e12);
constexpr double kMeasuredSustained = 0.889;  // its GpuSpec::sustained

// How long the kernel ran whose speed the time rests on: on H100, also where a faster GPU is asked for. 8
// and 4 bits are asked in 16, which take two and four times as long.
Seconds measured_duration(const Gemm& gemm, const GpuSpec& gpu, Seconds alone) {
  const double faster = gpu.bf16 ? std::max(1.0, *gpu.bf16 / kMeasuredPeak) : 1.0;
  const double rows = std::min(1.0, kMeasuredRows / static_cast<double>(std::max<std::int64_t>(gemm.m, 1)));
  const double slower = gemm.type == DataType::fp4 ? 4.0 : gemm.type == DataType::fp8 ? 2.0 : 1.0;
  return alone * (faster * rows * slower);
}

// The bars of attention were measured cool: their benchmark sleeps between kernels "to avoid residual power
// throttling" (Dao-AILab/flash-attention, hopper/benchmark_attn.py). FlashAttention-2 keeps a third of H100's
// matrix units busy, which is too little to reach the power limit (assumption).
double sustained_clock(const Operator& op, const GpuSpec& gpu, Seconds alone) {
  if (const auto* attention = std::get_if<Attention>(&op)) {
    return is_best_fused(attention->kernel) ? std::min(1.0, gpu.sustained) : 1.0;
  }
  const auto* gemm = std::get_if<Gemm>(&op);
  if (gemm == nullptr) return 1.0;
  const bool in_fp32 = gemm->type == DataType::fp32 || (gemm->type == DataType::tf32 && !gpu.tf32);
  if (in_fp32 && (gpu.sustained_fp32 || gpu.sustained > 1)) return gpu.sustained_fp32.value_or(1.0);
  // What a GPU gains on predictions learned from others is no loss under power that longer kernels have
  // taken.
  if (gpu.sustained >= 1) return gpu.sustained;
  constexpr double kFull = 1e-3, kGone = 4e-3;  // s: around the 2 ms of FIDELITY B 3 (assumption)
  const double position =
      std::log(measured_duration(*gemm, gpu, alone).value() / kFull) / std::log(kGone / kFull);
  const double throttled = gpu.sustained_long.value_or(gpu.sustained / kMeasuredSustained);
  return gpu.sustained + (throttled - gpu.sustained) * std::clamp(position, 0.0, 1.0);
}

// A step under a limit of 600 W in place of 700 takes 12 % longer on H100
// (factryze.ai/scale-atlas/power/power-capping): ln 1.12 / ln (700 / 600). Looked for after seeing the
// residuals of torchtitan, whose GPUs are limited.
double limited_clock(const GpuSpec& gpu) {
  constexpr double kClockExponent = 0.74;
  return gpu.power_limit ? std::pow(*gpu.power_limit / gpu.power, kClockExponent) : 1.0;
}

}  // namespace

double slowest_of(std::int64_t gpus) {
  ORRERY_ENSURE(gpus >= 1);
  if (gpus == 1) return 1.0;
  constexpr double kDeviation = 0.08 / 5.4;
  // The mean of the largest of n normal draws (Blom 1958).
  const double count = static_cast<double>(gpus), rank = (count - 0.375) / (count + 0.25);
  return 1.0 + kDeviation * boost::math::quantile(boost::math::normal(), rank);
}

Seconds under_power(const Operator& op, const GpuSpec& gpu, Seconds alone) {
  const bool matrices = std::holds_alternative<Attention>(op) || std::holds_alternative<Gemm>(op);
  if (!matrices || alone <= Seconds(0)) return alone;
  return alone / (sustained_clock(op, gpu, alone) * limited_clock(gpu));
}

bool at_power_limit(const GpuSpec& gpu) {
  return gpu.sustained < 1 || limited_clock(gpu) < 1;
}

bool draws_full_power(const Operator& op) {
  const auto* attention = std::get_if<Attention>(&op);
  return attention ? is_best_fused(attention->kernel) : std::holds_alternative<Gemm>(op);
}

}  // namespace orrery
