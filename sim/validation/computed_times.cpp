#include "sim/validation/computed_times.hpp"

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "analysis/statistics.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr std::size_t kEnough = 8;
constexpr double kBelowAnyScatter = 2e-5;

using TimesByBatch = std::map<std::int64_t, double>;

// What runs must share for their batches alone to tell their times apart.
std::string setting(const MeasuredRun& run) {
  std::string all;
  for (const char* column : {"gpu",    "n_gpus", "framework", "stack",    "model",
                             "layers", "hidden", "heads",     "seq",      "precision",
                             "mbs",    "tp",     "pp",        "vpp",      "dp",
                             "cp",     "ep",     "recompute", "schedule", "optimizer_sharding"})
    all += run.text(column) + "|";
  return all;
}

// Absent where a cell is blank or no number, as the run is then left out elsewhere.
std::optional<std::pair<std::int64_t, double>> batch_and_time(const MeasuredRun& run) {
  try {
    const auto time = run.number("iter_time_s");
    const auto batch = run.integer("gbs");
    if (time && batch) return std::pair{*batch, *time};
  } catch (const InputError&) {
  }
  return std::nullopt;
}

void add_deviations(const TimesByBatch& times, std::vector<double>& deviations) {
  if (times.size() < 3) return;
  for (auto smaller = times.begin(), run = std::next(smaller), larger = std::next(run); larger != times.end();
       ++smaller, ++run, ++larger) {
    const double way = static_cast<double>(run->first - smaller->first) /
                       static_cast<double>(larger->first - smaller->first);
    const double on_line = std::lerp(smaller->second, larger->second, way);
    deviations.push_back(std::abs(run->second - on_line) / run->second);
  }
}

}  // namespace

std::vector<ComputedTimes> computed_times(const std::vector<MeasuredRun>& runs) {
  std::map<std::string, std::map<std::string, TimesByBatch>> groups;
  for (const MeasuredRun& run : runs) {
    if (const auto known = batch_and_time(run))
      groups[run.group()][setting(run)][known->first] = known->second;
  }
  std::vector<ComputedTimes> computed;
  for (const auto& [group, settings] : groups) {
    std::vector<double> deviations;
    for (const auto& [name, times] : settings) add_deviations(times, deviations);
    if (deviations.size() < kEnough) continue;
    const double median = quantile(deviations, 0.5);
    if (median < kBelowAnyScatter) computed.push_back({group, deviations.size(), median});
  }
  return computed;
}

}  // namespace orrery
