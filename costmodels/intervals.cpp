#include "costmodels/intervals.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

// What decides the error of a run, each adding a variance of its own to that of all runs.
constexpr std::size_t kSources = 8;
using Variances = std::array<double, kSources>;
using Sources = std::array<bool, kSources>;
Sources sources_of(const RunKind& kind) {
  return {true,           !kind.measured_gpu,   kind.other_maker, kind.experts, kind.new_kernels,
          kind.four_bits, kind.sharded_weights, kind.host_bound};
}

double total(const Variances& of_source, const Sources& sources) {
  double sum = 0;
  for (std::size_t i = 0; i < kSources; ++i) sum += sources[i] ? of_source[i] : 0;
  return sum;
}

double mean_square(const ResidualGroup& group, double bias = 0) {
  const double mean = group.mean - bias;
  return mean * mean + group.variance * (group.runs - 1) / group.runs;
}

// Rows of one name are one group, which counts once: each row by its share of the runs.
std::vector<double> shares(const std::vector<ResidualGroup>& groups) {
  std::map<std::string, double> runs;
  for (const ResidualGroup& group : groups) runs[group.name] += group.runs;
  std::vector<double> shares;
  for (const ResidualGroup& group : groups) shares.push_back(group.runs / runs[group.name]);
  return shares;
}

constexpr double kLeastVariance = 4e-4;  // of runs in a group, 2 %: the same run again

// Variance components by expectation and maximisation (Dempster, Laird and Rubin 1977): the residual of a
// group is a sum of independent normal ones, whose expected squares given the sum make the next variances. A
// source of error has besides one group's weight of a variance like that of all runs: where no group tells of
// it, it doubles theirs.
// `variance`: where it starts, which decides how soon it is done.
Variances components(const std::vector<ResidualGroup>& groups, const std::vector<double>& weights,
                     Variances variance) {
  constexpr int kMostSteps = 500;
  constexpr double kSettled = 1e-7, kPriorGroups = 1;
  struct Alike {
    double weight = 0, squares = 0;
  };
  std::map<Sources, Alike> alike;  // groups of the same sources of error
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (weights[g] == 0) continue;
    Alike& all = alike[sources_of(groups[g].kind)];
    all.weight += weights[g];
    all.squares += weights[g] * std::max(mean_square(groups[g]), 1e-6);
  }
  for (int step = 0; step < kMostSteps; ++step) {
    Variances sums{}, counts{};
    for (const auto& [sources, groups_alike] : alike) {
      const double all = total(variance, sources);
      for (std::size_t i = 0; i < kSources; ++i) {
        if (!sources[i]) continue;
        const double part = variance[i] / all;
        sums[i] += part * part * groups_alike.squares + variance[i] * (1 - part) * groups_alike.weight;
        counts[i] += groups_alike.weight;
      }
    }
    const Variances before = variance;
    variance[0] = sums[0] / counts[0];
    for (std::size_t i = 1; i < kSources; ++i)
      variance[i] = (sums[i] + kPriorGroups * variance[0]) / (counts[i] + kPriorGroups);
    double change = 0;
    for (std::size_t i = 0; i < kSources; ++i)
      change = std::max(change, std::abs(variance[i] / before[i] - 1));
    if (change < kSettled) break;
  }
  return variance;
}

Variances all_alike(double variance) {
  Variances all;
  all.fill(variance);
  return all;
}

double normal_below(double z) {
  return 0.5 * std::erfc(-z / std::sqrt(2.0));
}

std::string signed_percent(double factor) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.0f %%", 100 * (factor - 1));
  return text;
}

}  // namespace

IntervalModel::IntervalModel(std::vector<ResidualGroup> groups, Predicted what)
    : groups_(std::move(groups)),
      what_(what),
      weights_(shares(groups_)),
      variance_(components(groups_, weights_, all_alike(0.01))) {
  if (groups_.empty()) throw InputError("intervals", "no group of runs", "at least one");
  multiplier_ = calibrated_multiplier();
}

IntervalModel::FamilyBias IntervalModel::bias_of_family(const RunKind& kind) const {
  constexpr double kPriorGroups = 2;  // assumption: that there is no bias is worth two groups
  double sum = 0, count = kPriorGroups;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const RunKind& own = groups_[g].kind;
    if (own.family != kind.family || own.experts != kind.experts) continue;
    // By how much it tells of the family, not of its GPU.
    const double all = total(variance_, sources_of(own)), weight = weights_[g] * variance_[0] / all;
    const double most = 2 * std::sqrt(all);
    sum += weight * std::clamp(groups_[g].mean, -most, most);
    count += weight;
  }
  return {sum / count, variance_[0] * kPriorGroups / count};
}

double IntervalModel::spread_of_family(const RunKind& kind) const {
  constexpr double kPriorGroups = 10;  // assumption: that it spreads as all do is worth ten groups
  constexpr double kMost = 16;         // of a group, whatever made it an exception
  double sum = kPriorGroups, count = kPriorGroups;
  std::array<std::optional<double>, 2> biases;  // of dense models and of experts
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const ResidualGroup& group = groups_[g];
    if (weights_[g] == 0 || group.kind.family != kind.family) continue;
    std::optional<double>& bias = biases[group.kind.experts ? 1 : 0];
    if (!bias) bias = bias_of_family(group.kind).mean;
    const double square = mean_square(group, *bias);
    sum += weights_[g] * std::min(square / total(variance_, sources_of(group.kind)), kMost);
    count += weights_[g];
  }
  return sum / count;
}

double IntervalModel::deviation(const RunKind& kind) const {
  return std::sqrt(total(variance_, sources_of(kind)) * spread_of_family(kind) +
                   bias_of_family(kind).variance);
}

// Each group against the model that the others make, its runs taken for normal: half-widths, in deviations of
// that model, that hold them. The mean over groups of the share held is to be 0.9 (k + 1) / k.
double IntervalModel::calibrated_multiplier() const {
  struct Held {
    double weight, mean, deviation;  // of runs in deviations of the others' model
  };
  std::vector<Held> all;
  std::set<std::string> names;
  for (const ResidualGroup& group : groups_) names.insert(group.name);
  constexpr double kLevel = 0.9, kMost = 20, kNormal = 1.6449;
  if (names.size() < 2) return kNormal;
  IntervalModel others = *this;
  for (const std::string& name : names) {
    others.weights_ = weights_;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].name == name) others.weights_[g] = 0;
    }
    others.variance_ = components(groups_, others.weights_, variance_);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].name != name) continue;
      const double scale = others.deviation(groups_[g].kind);
      all.push_back({weights_[g], (groups_[g].mean - others.bias_of_family(groups_[g].kind).mean) / scale,
                     std::sqrt(std::max(groups_[g].variance, kLeastVariance)) / scale});
    }
  }
  const double k = static_cast<double>(names.size()), wanted = std::min(0.999, kLevel * (k + 1) / k);
  double low = 0, high = kMost;
  for (int step = 0; step < 60; ++step) {
    const double half = (low + high) / 2;
    double held = 0;
    for (const Held& one : all)
      held += one.weight / k *
              (normal_below((half - one.mean) / one.deviation) -
               normal_below((-half - one.mean) / one.deviation));
    (held < wanted ? low : high) = half;
  }
  return high;
}

ErrorBand IntervalModel::band(const RunKind& of_run) const {
  const RunKind kind = telling(what_, of_run);
  constexpr double kMostHalf = 10;  // a factor of 22,000: nothing is known
  const double all = deviation(kind), half = std::min(multiplier_ * all, kMostHalf);
  const double middle = bias_of_family(kind).mean;
  double inside = 0, squares = 0;
  std::set<std::string> names, of_family;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    inside += weights_[g] * std::max(groups_[g].variance, kLeastVariance);
    squares += weights_[g] * std::max(mean_square(groups_[g]), kLeastVariance);
    names.insert(groups_[g].name);
    if (groups_[g].kind.family == kind.family) of_family.insert(groups_[g].name);
  }
  const double share = std::min(1.0, inside / squares);
  ErrorBand band{std::exp(-middle - half), std::exp(-middle + half), all * std::sqrt(1 - share),
                 all * std::sqrt(share), to_text(kind, what_)};
  band.basis += of_family.empty()
                    ? "; " + kind.family + " not seen, by "
                    : "; " + kind.family + " seen in " + std::to_string(of_family.size()) + " of ";
  band.basis += std::to_string(names.size()) + (names.size() == 1 ? " group of runs: " : " groups of runs: ");
  band.basis += signed_percent(band.low) + " " + signed_percent(band.high);
  return band;
}

}  // namespace orrery
