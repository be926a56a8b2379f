#include "costmodels/models/kernel_law.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "platforms/errors.hpp"

namespace orrery {

namespace {

// Threads that a multiprocessor holds over those of V100, A100 and H100, 2048: as many fewer requests are
// under way at once (CUDA programming guide, technical specifications by compute capability).
double thread_share(const GpuSpec& gpu) {
  if (gpu.architecture == "Turing") return 0.5;
  if (gpu.architecture == "Ada" || gpu.architecture == "Blackwell RTX") return 0.75;
  return gpu.architecture == "Ampere" && !is_ga100(gpu) ? 0.75 : 1.0;
}

// GDDR6 has no cells of its own for ECC, which takes a sixteenth of the memory, and of what is read and
// written.
constexpr double kInlineEccShare = 15.0 / 16;
constexpr std::size_t kMostFitted = 300;  // rows of one kernel on one GPU: a sample says as much

// PyTorch's embedding starts at most eight blocks of 128 threads on a multiprocessor
// (ATen/native/cuda/Indexing.cu), which every GPU holds.
bool fills_multiprocessors(MemoryKernel kernel) {
  return kernel != MemoryKernel::embedding;
}

bool streams(MemoryKernel kernel) {
  return kernel == MemoryKernel::residual;
}

// What no fitted number is in: times in seconds, of one byte a clock and of one clock where not said.
struct LawRow {
  std::size_t pass = 0;
  double memory = 0;  // at the full bandwidth
  double cache = 0;   // the L2 cache over the bytes
  double port = 0;    // between the multiprocessors and the cache
  double instructions = 0, clock = 0;
};

LawRow law_row(const LoneKernel& op, const GpuSpec& gpu) {
  const double clocks = multiprocessor_clocks(gpu);
  const double threads = fills_multiprocessors(op.kernel) ? thread_share(gpu) : 1.0;
  const double bandwidth = gpu.memory_bandwidth.value() * (gpu.inline_ecc ? kInlineEccShare : 1.0);
  return {.pass = pace_index(op.kernel, op.direction),
          .memory = op.bytes.value() / bandwidth,
          .cache = gpu.l2_cache / op.bytes,
          .port = op.bytes.value() / clocks,
          .instructions = streams(op.kernel) ? 0 : op.bytes.value() / (clocks * threads),
          .clock = std::max(gpu.multiprocessors, 1) / clocks};
}

// Of the tensors a share stays in the cache: half where they are as large as it, a quarter where twice, and
// so on with the square.
double law_seconds(const KernelLaw& law, const LawRow& row) {
  const LonePace& pace = law.paces[row.pass];
  const double room = law.cached_share * row.cache, missed = 1 / (1 + room * room);
  const double memory =
      row.memory * missed / law.bandwidth_share + row.port * (1 - missed) / law.cache_bytes_per_clock;
  const double instructions = row.instructions / pace.bytes_per_clock;
  const double a = memory * memory, b = instructions * instructions;
  return pace.launch_clocks * row.clock + std::sqrt(std::sqrt(a * a + b * b));
}

struct FitRow {
  LawRow row;
  double weight = 1, log_time = 0;
};

std::vector<FitRow> fit_rows(std::span<const KernelTime> all) {
  std::map<std::pair<std::size_t, std::string>, std::vector<const KernelTime*>> sorted;
  for (const auto& one : all) sorted[{pace_index(one.kernel, one.direction), one.gpu->name}].push_back(&one);
  std::vector<FitRow> rows;
  for (const auto& [pass, members] : sorted) {
    const std::size_t step = (members.size() + kMostFitted - 1) / kMostFitted;
    const std::size_t taken = (members.size() + step - 1) / step;
    for (std::size_t i = 0; i < members.size(); i += step) {
      const KernelTime& one = *members[i];
      rows.push_back({.row = law_row({one.kernel, one.direction, one.bytes}, *one.gpu),
                      .weight = 1 / static_cast<double>(taken),
                      .log_time = std::log(one.time.value())});
    }
  }
  return rows;
}

double mean_error(const KernelLaw& law, const std::vector<FitRow>& rows) {
  double sum = 0;
  for (const auto& [row, weight, log_time] : rows)
    sum += weight * std::abs(std::log(law_seconds(law, row)) - log_time);
  return sum;
}

struct Range {
  double least, most;
};

// A number of the law, and where it may be.
struct Knob {
  double* number;
  Range range;
};

std::vector<Knob> knobs_of(KernelLaw& law, const std::vector<FitRow>& rows) {
  std::vector<Knob> knobs{
      {&law.bandwidth_share, {0.5, 1}}, {&law.cached_share, {0.1, 2}}, {&law.cache_bytes_per_clock, {5, 64}}};
  std::set<std::size_t> passes;
  for (const auto& row : rows) passes.insert(row.row.pass);
  for (const std::size_t pass : passes) {
    knobs.push_back({&law.paces[pass].bytes_per_clock, {0.5, 64}});
    knobs.push_back({&law.paces[pass].launch_clocks, {1000, 30000}});
  }
  return knobs;
}

}  // namespace

Seconds law_time(const KernelLaw& law, const LoneKernel& op, const GpuSpec& gpu) {
  return Seconds(law_seconds(law, law_row(op, gpu)));
}

std::vector<float> lone_kernel_features(const KernelLaw& law, const LoneKernel& op, const GpuSpec& gpu,
                                        GpuKnown known) {
  const LawRow row = law_row(op, gpu);
  const double launch = law.paces[row.pass].launch_clocks * row.clock;
  const float no_row = std::numeric_limits<float>::quiet_NaN();
  return {static_cast<float>(row.pass), static_cast<float>(std::log2(law_seconds(law, row) / launch)),
          static_cast<float>(-std::log2(row.cache)),
          op.row.value() > 0 ? static_cast<float>(std::log2(op.row.value())) : no_row,
          known == GpuKnown::yes ? static_cast<float>(std::max(gpu.multiprocessors, 1)) : 0.0F};
}

const std::vector<std::string_view>& lone_kernel_feature_names() {
  static const std::vector<std::string_view> names{"kernel", "log2_time_to_launch", "log2_bytes_to_l2",
                                                   "log2_row_bytes", "known_multiprocessors"};
  return names;
}

KernelLaw fit_law(std::span<const KernelTime> all) {
  constexpr double kFirstStep = 0.5, kLastStep = 0.01;  // of logarithms
  const auto rows = fit_rows(all);
  KernelLaw law;
  double least = mean_error(law, rows);
  for (double step = kFirstStep; step > kLastStep;) {
    const double before = least;
    for (const auto& [number, range] : knobs_of(law, rows)) {
      for (const double factor : {std::exp(step), std::exp(-step)}) {
        const double kept = *number;
        *number = std::clamp(kept * factor, range.least, range.most);
        const double error = mean_error(law, rows);
        if (error < least)
          least = error;
        else
          *number = kept;
      }
    }
    if (!(least < before * (1 - 1e-6))) step /= 2;
  }
  return law;
}

std::string to_text(const KernelLaw& law) {
  std::ostringstream text;
  text << law.bandwidth_share << ' ' << law.cached_share << ' ' << law.cache_bytes_per_clock << ' ';
  for (const auto& pace : law.paces) text << pace.bytes_per_clock << ' ' << pace.launch_clocks << ' ';
  return text.str();
}

KernelLaw parse_law(const std::string& text, const std::string& file) {
  std::istringstream stream(text);
  KernelLaw law;
  const auto read = [&](double& number) {
    stream >> number;
    if (!stream || !(number > 0) || !std::isfinite(number))
      throw InputError(file, "'" + text + "' as the law of kernels",
                       "three numbers above zero and two for each kernel; fit again");
  };
  read(law.bandwidth_share);
  read(law.cached_share);
  read(law.cache_bytes_per_clock);
  for (auto& pace : law.paces) {
    read(pace.bytes_per_clock);
    read(pace.launch_clocks);
  }
  return law;
}

}  // namespace orrery
