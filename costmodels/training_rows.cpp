#include "costmodels/training_rows.hpp"

#include <algorithm>
#include <cmath>

#include "costmodels/fit.hpp"
#include "platforms/errors.hpp"

namespace orrery {

namespace {

// Slower than this many times the reference and a launch cannot be either: nanoseconds read as microseconds,
// a stalled run.
constexpr double kSlowestBelievable = 300;
constexpr Seconds kSlowLaunch = Seconds(20e-6);

constexpr float kHeaviestRow = 30;

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

bool SourceCheck::believes(const std::string& source, TableLine at, Seconds reference, Seconds time) {
  Counts& counts = sources_[source];
  ++counts.all;
  const bool too_fast = reference / time > kBelievableEfficiency;
  const bool too_slow = time > (reference + kSlowLaunch) * kSlowestBelievable;
  if (!too_fast && !too_slow) return true;
  ++counts.wrong;
  files_->leave_out(
      at, too_fast ? "faster than the data sheet allows" : "hundreds of times slower than the data sheet");
  return false;
}

void SourceCheck::refuse_wrong_sources() const {
  for (const auto& [source, counts] : sources_) {
    if (static_cast<double>(counts.wrong) > kWorstUnreadableShare * static_cast<double>(counts.all)) {
      throw InputError("profiles",
                       std::to_string(counts.wrong) + " of " + std::to_string(counts.all) + " " + what_ +
                           " of '" + source + "' with times that the data sheet rules out",
                       "times in microseconds, on the GPU that the rows name; at most 5 % wrong");
    }
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

const GpuSpec& gpu_named(const std::string& name) {
  return find_gpu(name, "profiles");
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
