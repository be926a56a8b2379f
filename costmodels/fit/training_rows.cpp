#include "costmodels/fit/training_rows.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "costmodels/fit/fit.hpp"
#include "platforms/errors.hpp"

namespace orrery {

namespace {

// Slower than this many times the reference and a launch cannot be either: nanoseconds read as microseconds,
// a stalled run.
constexpr double kSlowestBelievable = 300;
constexpr Seconds kSlowLaunch = Seconds(20e-6);

// A source whose long times are in the median this many times what their sizes take has the sizes in another
// unit: KB for bytes makes a thousand of one, or some fifty where latency is added. The published tables are
// at 0.97 to 2.4, and sailor's PCIe boxes at 3.2.
constexpr double kMostOffInMedian = 10;
// Links in Gb/s are eight times too fast, which would make 7.8 of the fastest published table: half way in
// ratio from the slowest.
constexpr double kDoubtfulMedian = 5;
// Times of so many times a source's short ones grow with size; shorter ones are latency, whatever the sizes.
constexpr double kLongTime = 10;

constexpr float kHeaviestRow = 30;

template <class Value>
Value value_at(std::vector<Value> values, std::size_t rank) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rank), values.end());
  return values[rank];
}

// The best measured share of the reference, without the last thousandth of rows, which holds misreadings.
double efficiency_cap(std::vector<float> targets) {
  const auto rank = targets.size() - 1 - targets.size() / 1000;
  std::nth_element(targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(rank), targets.end());
  return std::exp(static_cast<double>(targets[rank]));
}

}  // namespace

void TaughtFiles::leave_out(TableLine at, const std::string& reason) {
  ORRERY_ENSURE(at.file < files_.size());
  ProfileFile& file = files_[at.file];
  --file.used;
  ++file.skipped[reason];
  std::size_t& first = file.first_line.try_emplace(reason, at.line).first->second;
  first = std::min(first, at.line);
}

void TaughtFiles::doubt(std::size_t file, std::string why) {
  ORRERY_ENSURE(file < files_.size());
  files_[file].doubts.push_back(std::move(why));
}

bool SourceCheck::believes(const std::string& source, TableLine at, const TimeCheck& check) {
  Counts& counts = sources_[source];
  ++counts.all;
  const bool too_fast = check.time < check.least;
  const bool too_slow = check.time > (check.expected + kSlowLaunch) * kSlowestBelievable;
  if (!too_fast && !too_slow) {
    believed_[{at.file, source}].push_back({check.expected, check.time});
    return true;
  }
  if (counts.wrong++ == 0) counts.first_wrong = at;
  files_->leave_out(
      at, too_fast ? "faster than the data sheet allows" : "hundreds of times slower than the data sheet");
  return false;
}

void SourceCheck::refuse_wrong_sources() const {
  for (const auto& [source, counts] : sources_) {
    if (static_cast<double>(counts.wrong) > kWorstUnreadableShare * static_cast<double>(counts.all)) {
      throw InputError(files_->all()[counts.first_wrong.file].name,
                       std::to_string(counts.wrong) + " of " + std::to_string(counts.all) + " " + what_ +
                           " of '" + source +
                           "' with times that the data sheet rules out, the first in line " +
                           std::to_string(counts.first_wrong.line),
                       "times in microseconds, on the GPU that the rows name; at most 5 % wrong");
    }
  }
  refuse_wrong_sizes();
}

std::map<SourceCheck::TableSource, double> SourceCheck::medians() const {
  std::map<TableSource, double> medians;
  for (const auto& [table_source, rows] : believed_) {
    std::vector<Seconds> times;
    for (const Believed& row : rows) times.push_back(row.time);
    const Seconds short_time = value_at(times, times.size() / 20);  // but for a few misread ones
    std::vector<double> factors;
    for (const Believed& row : rows) {
      if (row.time >= short_time * kLongTime) factors.push_back(row.time / row.expected);
    }
    // Few long times are single misreadings among those of latency.
    if (static_cast<double>(factors.size()) <= kWorstUnreadableShare * static_cast<double>(rows.size()))
      continue;
    medians[table_source] = value_at(factors, factors.size() / 2);
  }
  return medians;
}

void SourceCheck::refuse_wrong_sizes() const {
  for (const auto& [table_source, factor] : medians()) {
    if (factor <= kMostOffInMedian) continue;
    const auto& [file, source] = table_source;
    throw InputError(
        files_->all()[file].name,
        "long times of " + what_ + " of '" + source + "' that are in the median " +
            std::to_string(std::llround(factor)) + " times what their sizes take",
        "sizes in bytes (not KB or MB), links in GB/s (not Gb/s) and times in microseconds, at most 10 times "
        "what the data sheet says");
  }
}

void SourceCheck::doubt_fast_links() const {
  for (const auto& [table_source, factor] : medians()) {
    if (factor <= kDoubtfulMedian) continue;
    files_->doubt(
        table_source.first,
        "long times of " + what_ + " of '" + table_source.second + "' are in the median " +
            std::to_string(std::llround(factor)) +
            " times what their links take: are those in GB/s, an eighth of Gb/s, and do the GPUs reach "
            "each other without the host?");
  }
}

void add_row(TrainingSet& set, const std::vector<float>& features, Seconds reference, Seconds time,
             std::string model, std::string shape, std::string gpu) {
  set.features.add(features);
  set.targets.push_back(static_cast<float>(std::log(reference / time)));
  set.models.push_back(std::move(model));
  set.shapes.push_back(std::move(shape));
  set.gpus.push_back(std::move(gpu));
  set.large.push_back(false);
}

void add_unique(std::vector<std::string>& sorted, const std::string& text) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), text);
  if (at == sorted.end() || *at != text) sorted.insert(at, text);
}

Gemm operator_of(const MeasuredGemm& row) {
  return {.m = row.m, .n = row.n, .k = row.k, .batch = row.batch, .type = row.type, .pass = row.pass};
}

Attention operator_of(const MeasuredAttention& row, AttentionKernel kernel, SoftmaxKernel softmax) {
  return {.batch = row.batch,
          .heads = row.heads,
          .kv_heads = row.kv_heads,
          .query_tokens = row.query_tokens,
          .kv_tokens = row.kv_tokens,
          .head_dim = row.head_dim,
          .causal = row.causal,
          .kernel = kernel,
          .softmax = softmax,
          .dropout = kernel == AttentionKernel::unfused,  // orrery_timing.py, unfused
          .direction = row.backward ? Direction::backward : Direction::forward};
}

const GpuSpec& gpu_named(const Profiles& profiles, const std::string& name) {
  const auto own = std::find_if(profiles.own_gpus.begin(), profiles.own_gpus.end(),
                                [&](const GpuSpec& gpu) { return gpu.name == name; });
  return own == profiles.own_gpus.end() ? find_gpu(name, "profiles") : *own;
}

void balance(TrainingSet& set, const std::vector<std::string>& labels, float even) {
  std::map<std::string, float> count;
  for (const auto& label : labels) ++count[label];
  const float share = static_cast<float>(labels.size()) / static_cast<float>(count.size());
  for (const auto& label : labels)
    set.weights.push_back(std::min(std::pow(share / count.at(label), even), kHeaviestRow));
}

bool has_too_few_rows(const TrainingSet& set) {
  return static_cast<std::int64_t>(set.targets.size()) < kLeastRows;
}

void finish(TrainingSet& set) {
  if (!set.targets.empty()) set.card.efficiency_cap = efficiency_cap(set.targets);
}

}  // namespace orrery
