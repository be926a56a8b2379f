#include "costmodels/trust/intervals.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
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

constexpr double kLeastSquare = 1e-6;  // of a group's residuals, 0.1 %
double counted_square(const ResidualGroup& group) {
  return std::max(mean_square(group), kLeastSquare);
}

double furthest_change(const Variances& before, const Variances& after) {
  double change = 0;
  for (std::size_t i = 0; i < kSources; ++i) change = std::max(change, std::abs(after[i] / before[i] - 1));
  return change;
}

// Three steps towards a fixed point in one, by their first two differences (SQUAREM, Varadhan and Roland
// 2008, steplength S3), in logarithms, which keeps variances above zero.
Variances extrapolated(const Variances& first, const Variances& second, const Variances& third) {
  Variances step{}, bend{};
  double steps = 0, bends = 0;
  for (std::size_t i = 0; i < kSources; ++i) {
    step[i] = std::log(second[i] / first[i]);
    bend[i] = std::log(third[i] / second[i]) - step[i];
    steps += step[i] * step[i];
    bends += bend[i] * bend[i];
  }
  if (bends == 0) return third;
  const double length = std::max(1.0, std::sqrt(steps / bends));
  Variances result{};
  for (std::size_t i = 0; i < kSources; ++i)
    result[i] = first[i] * std::exp(2 * length * step[i] + length * length * bend[i]);
  return result;
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

// The position of each group's word among all of them, in order.
template <class Word>
std::vector<std::size_t> positions(const std::vector<ResidualGroup>& groups, const Word& word_of) {
  std::map<std::string, std::size_t> known;
  for (const ResidualGroup& group : groups) known.emplace(word_of(group), 0);
  std::size_t next = 0;
  for (auto& [word, position] : known) position = next++;
  std::vector<std::size_t> positions;
  for (const ResidualGroup& group : groups) positions.push_back(known.at(word_of(group)));
  return positions;
}

std::size_t count_of(const std::vector<std::size_t>& positions) {
  return positions.empty() ? 0 : 1 + *std::max_element(positions.begin(), positions.end());
}

}  // namespace

// Variance components by expectation and maximisation (Dempster, Laird and Rubin 1977): the residual of a
// group is a sum of independent normal ones, whose expected squares given the sum make the next variances. A
// source of error has besides one group's weight of a variance like that of all runs: where no group tells of
// it, it doubles theirs.
// `start`: decides how soon it is done.
Variances IntervalModel::components(const std::vector<Alike>& alike, Variances start) {
  constexpr int kMostSteps = 500;
  constexpr double kSettled = 1e-7, kPriorGroups = 1, kNone = 1e-9;
  const auto step = [&](const Variances& variance) {
    Variances sums{}, counts{};
    for (const Alike& one : alike) {
      if (one.weight < kNone) continue;  // all of them are left out
      const double all = total(variance, one.sources);
      for (std::size_t i = 0; i < kSources; ++i) {
        if (!one.sources[i]) continue;
        const double part = variance[i] / all;
        sums[i] += part * part * one.squares + variance[i] * (1 - part) * one.weight;
        counts[i] += one.weight;
      }
    }
    Variances next{};
    next[0] = sums[0] / counts[0];
    for (std::size_t i = 1; i < kSources; ++i)
      next[i] = (sums[i] + kPriorGroups * next[0]) / (counts[i] + kPriorGroups);
    return next;
  };
  for (int steps = 0; steps < kMostSteps; steps += 3) {
    const Variances second = step(start);
    if (furthest_change(start, second) < kSettled) return second;
    const Variances third = step(second);
    if (furthest_change(second, third) < kSettled) return third;
    start = step(extrapolated(start, second, third));
  }
  return start;
}

IntervalModel::IntervalModel(std::vector<ResidualGroup> groups, Predicted what, double widening)
    : groups_(std::move(groups)),
      what_(what),
      name_of_(positions(groups_, [](const ResidualGroup& group) { return group.name; })),
      family_of_(positions(groups_, [](const ResidualGroup& group) { return group.kind.family; })),
      weights_(shares(groups_)) {
  if (groups_.empty()) throw InputError("intervals", "no group of runs", "at least one");
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Sources sources = sources_of(groups_[g].kind);
    auto found =
        std::find_if(alike_.begin(), alike_.end(), [&](const Alike& one) { return one.sources == sources; });
    if (found == alike_.end()) found = alike_.insert(alike_.end(), {sources, 0, 0});
    alike_of_.push_back(static_cast<std::size_t>(found - alike_.begin()));
    found->weight += weights_[g];
    found->squares += weights_[g] * counted_square(groups_[g]);
  }
  variance_ = components(alike_, all_alike(0.01));
  families_.resize(count_of(family_of_));
  tell_families();
  multiplier_ = calibrated_multiplier() * widening;
}

void IntervalModel::tell_families() {
  constexpr double kPriorOfBias = 2;     // assumption: that there is no bias is worth two groups
  constexpr double kPriorOfSpread = 10;  // assumption: that it spreads as all do is worth ten groups
  constexpr double kMost = 16;           // of a group, whatever made it an exception
  struct Sum {
    double sum = 0, count = kPriorOfBias;
  };
  std::vector<double> totals, deviations;
  for (const Alike& one : alike_) {
    totals.push_back(total(variance_, one.sources));
    deviations.push_back(std::sqrt(totals.back()));
  }
  std::vector<std::array<Sum, 2>> biases(families_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    // By how much it tells of the family, not of its GPU.
    const double weight = weights_[g] * variance_[0] / totals[alike_of_[g]];
    const double most = 2 * deviations[alike_of_[g]];
    Sum& bias = biases[family_of_[g]][groups_[g].kind.experts ? 1 : 0];
    bias.sum += weight * std::clamp(groups_[g].mean, -most, most);
    bias.count += weight;
  }
  for (std::size_t family = 0; family < biases.size(); ++family) {
    for (std::size_t kind = 0; kind < 2; ++kind) {
      const Sum& bias = biases[family][kind];
      families_[family].bias[kind] = {bias.sum / bias.count, variance_[0] * kPriorOfBias / bias.count};
    }
  }
  std::vector<Sum> spreads(biases.size(), {kPriorOfSpread, kPriorOfSpread});
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (weights_[g] == 0) continue;
    const double bias = families_[family_of_[g]].bias[groups_[g].kind.experts ? 1 : 0].mean;
    const double square = mean_square(groups_[g], bias) / totals[alike_of_[g]];
    spreads[family_of_[g]].sum += weights_[g] * std::min(square, kMost);
    spreads[family_of_[g]].count += weights_[g];
  }
  for (std::size_t family = 0; family < spreads.size(); ++family)
    families_[family].spread = spreads[family].sum / spreads[family].count;
}

IntervalModel::Family IntervalModel::family_of(const RunKind& kind) const {
  const auto same = [&](const ResidualGroup& group) { return group.kind.family == kind.family; };
  const auto found = std::find_if(groups_.begin(), groups_.end(), same);
  const FamilyBias none{0, variance_[0]};
  if (found == groups_.end()) return {{none, none}, 1};
  return families_[family_of_[static_cast<std::size_t>(found - groups_.begin())]];
}

IntervalModel::FamilyBias IntervalModel::bias_of_family(const RunKind& kind) const {
  return family_of(kind).bias[kind.experts ? 1 : 0];
}

double IntervalModel::deviation(const RunKind& kind) const {
  const Family family = family_of(kind);
  return std::sqrt(total(variance_, sources_of(kind)) * family.spread +
                   family.bias[kind.experts ? 1 : 0].variance);
}

// Each group against the model that the others make, its runs taken for normal: half-widths, in deviations of
// that model, that hold them. The mean over groups of the share held is to be 0.9 (k + 1) / k.
double IntervalModel::calibrated_multiplier() const {
  struct Held {
    double weight, mean, deviation;  // of runs in deviations of the others' model
  };
  std::vector<Held> all;
  const std::size_t names = count_of(name_of_);
  constexpr double kLevel = 0.9, kMost = 20, kNormal = 1.6449;
  if (names < 2) return kNormal;
  std::vector<std::vector<std::size_t>> groups_of(names);
  for (std::size_t g = 0; g < groups_.size(); ++g) groups_of[name_of_[g]].push_back(g);
  IntervalModel others = *this;
  for (const std::vector<std::size_t>& own : groups_of) {
    others.weights_ = weights_;
    others.alike_ = alike_;
    for (const std::size_t g : own) {
      others.weights_[g] = 0;
      others.alike_[alike_of_[g]].weight -= weights_[g];
      others.alike_[alike_of_[g]].squares -= weights_[g] * counted_square(groups_[g]);
    }
    others.variance_ = components(others.alike_, variance_);
    others.tell_families();
    for (const std::size_t g : own) {
      const double scale = others.deviation(groups_[g].kind);
      all.push_back({weights_[g], (groups_[g].mean - others.bias_of_family(groups_[g].kind).mean) / scale,
                     std::sqrt(std::max(groups_[g].variance, kLeastVariance)) / scale});
    }
  }
  const double k = static_cast<double>(names), wanted = std::min(0.999, kLevel * (k + 1) / k);
  double low = 0, high = kMost;
  for (int step = 0; step < 40; ++step) {
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
  std::set<std::string> of_family;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    inside += weights_[g] * std::max(groups_[g].variance, kLeastVariance);
    squares += weights_[g] * std::max(mean_square(groups_[g]), kLeastVariance);
    if (groups_[g].kind.family == kind.family) of_family.insert(groups_[g].name);
  }
  const double share = std::min(1.0, inside / squares);
  ErrorBand band{std::exp(-middle - half), std::exp(-middle + half), all * std::sqrt(1 - share),
                 all * std::sqrt(share), to_text(kind, what_)};
  band.basis += of_family.empty()
                    ? "; " + kind.family + " not seen, by "
                    : "; " + kind.family + " seen in " + std::to_string(of_family.size()) + " of ";
  const std::size_t names = count_of(name_of_);
  band.basis += std::to_string(names) + (names == 1 ? " group of runs: " : " groups of runs: ");
  band.basis += signed_percent(band.low) + " " + signed_percent(band.high);
  return band;
}

}  // namespace orrery
