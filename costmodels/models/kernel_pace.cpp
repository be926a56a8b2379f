#include "costmodels/models/kernel_pace.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "costmodels/models/features.hpp"
#include "platforms/errors.hpp"
#include "platforms/units.hpp"

namespace orrery {

namespace {

// fp32 lanes of a multiprocessor (white papers): 64 from Pascal's GP100 to GA100, 128 in GA10x and later.
double lanes(const GpuSpec& gpu) {
  const bool narrow = gpu.architecture == "Pascal" || gpu.architecture == "Volta" ||
                      gpu.architecture == "Turing" || gpu.architecture == "CDNA2";
  return is_ga100(gpu) || narrow ? 64 : 128;
}

constexpr double kUsualClock = 1.5e9;  // Hz, assumption for a GPU without an fp32 peak
constexpr double kMostBytesPerClock = 64;
constexpr double kSharpness = 4;  // of the corner between the two limits; 2 and 8 fit within 1 % as well
constexpr Bytes kLeastFitted = Bytes(4 * kMebi);  // below, the launch and the cache decide
constexpr std::size_t kMostFitted = 300;          // rows of one kernel on one GPU: a sample says as much

using Rows = std::vector<KernelTime>;

Rows sample(const Rows& rows) {
  const std::size_t step = (rows.size() + kMostFitted - 1) / kMostFitted;
  Rows some;
  for (std::size_t i = 0; i < rows.size(); i += step) some.push_back(rows[i]);
  return some;
}

double mean_error(const KernelPace& pace, const std::map<std::string, Rows>& gpus) {
  double sum = 0;
  for (const auto& [gpu, rows] : gpus) {
    double own = 0;
    for (const auto& row : rows) own += std::abs(std::log(paced_time(pace, row.bytes, *row.gpu) / row.time));
    sum += own / static_cast<double>(rows.size());
  }
  return sum / static_cast<double>(gpus.size());
}

KernelPace best_pace(const std::map<std::string, Rows>& gpus) {
  KernelPace best;
  double least = mean_error(best, gpus);
  for (int share = 8; share <= 20; ++share) {
    for (int step = 0; step <= 60; ++step) {
      const KernelPace pace{.bandwidth_share = 0.05 * share, .bytes_per_clock = std::exp2(0.1 * step)};
      const double error = mean_error(pace, gpus);
      if (error < least) {
        least = error;
        best = pace;
      }
    }
  }
  return best;
}

}  // namespace

std::size_t pace_index(MemoryKernel kernel, Direction direction) {
  return static_cast<std::size_t>(kernel) + (direction == Direction::backward ? kMemoryKernels : 0);
}

double multiprocessor_clocks(const GpuSpec& gpu) {
  const double count = std::max(gpu.multiprocessors, 1);
  return gpu.fp32 ? gpu.fp32->value() / (2 * lanes(gpu)) : count * kUsualClock;
}

Seconds least_kernel_time(Bytes bytes, const GpuSpec& gpu) {
  return Seconds(bytes.value() / (kMostBytesPerClock * multiprocessor_clocks(gpu)));
}

Seconds paced_time(const KernelPace& pace, Bytes bytes, const GpuSpec& gpu) {
  const double memory = 1 / (pace.bandwidth_share * gpu.memory_bandwidth.value());
  const double instructions = 1 / (pace.bytes_per_clock * multiprocessor_clocks(gpu));
  const double a = std::pow(memory, kSharpness), b = std::pow(instructions, kSharpness);
  return stream_time(Bytes(0), gpu) + Seconds(bytes.value() * std::pow(a + b, 1 / kSharpness));
}

KernelPaces fit_paces(std::span<const KernelTime> all) {
  std::array<std::map<std::string, Rows>, kKernelPasses> sorted;
  for (const auto& row : all) {
    if (row.bytes < kLeastFitted) continue;
    sorted[pace_index(row.kernel, row.direction)][row.gpu->name].push_back(row);
  }
  KernelPaces paces;
  for (std::size_t kernel = 0; kernel < kKernelPasses; ++kernel) {
    for (auto& [gpu, rows] : sorted[kernel]) rows = sample(rows);
    if (!sorted[kernel].empty()) paces[kernel] = best_pace(sorted[kernel]);
  }
  return paces;
}

std::string to_text(const KernelPaces& paces) {
  std::ostringstream text;
  for (const auto& pace : paces) text << pace.bandwidth_share << ' ' << pace.bytes_per_clock << ' ';
  return text.str();
}

KernelPaces parse_paces(const std::string& text, const std::string& file) {
  std::istringstream stream(text);
  KernelPaces paces;
  for (auto& pace : paces) {
    stream >> pace.bandwidth_share >> pace.bytes_per_clock;
    if (!stream || !(pace.bandwidth_share > 0) || !(pace.bytes_per_clock > 0)) {
      throw InputError(file, "'" + text + "' as paces", "two numbers above zero for each kernel; fit again");
    }
  }
  return paces;
}

}  // namespace orrery
