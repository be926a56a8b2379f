#include "costmodels/intervals.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "platforms/embedded.hpp"
#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"

extern "C" const orrery::EmbeddedRow orrery_embedded_costmodels[];

namespace orrery {
namespace {

constexpr std::string_view kTable = "fitted/intervals.yaml";
constexpr std::size_t kLeastGroups = 3;
constexpr double kPriorFreedom = 2;  // assumption: what the scale of all families is worth beside one's own

struct Coarseness {
  bool host, gpu, kernels, experts;  // still told apart
};
constexpr Coarseness kSteps[] = {{true, true, true, true},
                                 {false, true, true, true},
                                 {false, false, true, true},
                                 {false, false, false, true},
                                 {false, false, false, false}};

bool alike(const RunKind& a, const RunKind& b, const Coarseness& step) {
  return (!step.host || a.host_bound == b.host_bound) && (!step.gpu || a.measured_gpu == b.measured_gpu) &&
         (!step.kernels || a.new_kernels == b.new_kernels) && (!step.experts || a.experts == b.experts);
}

// A group whose runs are of several kinds is one group where these count together.
ResidualGroup together(const ResidualGroup& a, const ResidualGroup& b) {
  ResidualGroup sum = a;
  sum.runs += b.runs;
  const double n = a.runs, m = b.runs;
  sum.mean = (n * a.mean + m * b.mean) / (n + m);
  const double squares =
      (n - 1) * a.variance + (m - 1) * b.variance + n * m / (n + m) * (a.mean - b.mean) * (a.mean - b.mean);
  sum.variance = squares / (n + m - 1);
  return sum;
}

std::vector<ResidualGroup> groups_like(const std::vector<ResidualGroup>& all, const RunKind& kind) {
  std::vector<ResidualGroup> groups;
  for (const Coarseness& step : kSteps) {
    groups.clear();
    for (const ResidualGroup& group : all) {
      if (!alike(group.kind, kind, step)) continue;
      const auto same =
          std::find_if(groups.begin(), groups.end(), [&](const auto& one) { return one.name == group.name; });
      if (same == groups.end()) {
        groups.push_back(group);
      } else {
        *same = together(*same, group);
      }
    }
    if (groups.size() >= kLeastGroups) break;
  }
  return groups;
}

double mean_bias(const std::vector<ResidualGroup>& groups) {
  double sum = 0;
  for (const ResidualGroup& group : groups) sum += group.mean;
  return sum / static_cast<double>(groups.size());
}

double squares(const std::vector<ResidualGroup>& groups) {
  const double mean = mean_bias(groups);
  double sum = 0;
  for (const ResidualGroup& group : groups) sum += (group.mean - mean) * (group.mean - mean);
  return sum;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

// Variance of biases inside families, which one wild group does not decide: the median of squared deviations
// over that of chi-square with one degree of freedom. Of all groups where families have no two.
double robust_variance(const std::vector<ResidualGroup>& groups) {
  std::map<std::string, std::vector<ResidualGroup>> families;
  for (const ResidualGroup& group : groups) families[group.kind.family].push_back(group);
  std::vector<double> inside, all;
  const auto add = [](const std::vector<ResidualGroup>& from, std::vector<double>& to) {
    const double mean = mean_bias(from), n = static_cast<double>(from.size());
    for (const ResidualGroup& group : from)
      to.push_back((group.mean - mean) * (group.mean - mean) * n / (n - 1));
  };
  for (const auto& [name, family] : families) {
    if (family.size() > 1) add(family, inside);
  }
  if (groups.size() > 1) add(groups, all);
  constexpr double kMedianChiSquare = 0.4549;
  constexpr std::size_t kEnough = 4;
  const std::vector<double>& deviations = inside.size() >= kEnough ? inside : all;
  return deviations.empty() ? 0 : median(deviations) / kMedianChiSquare;
}

struct Spread {
  double variance = 0, freedom = 0;
};

// Satterthwaite's degrees of freedom of a sum.
Spread sum_of(const Spread& a, const Spread& b) {
  const double total = a.variance + b.variance;
  double share = a.variance * a.variance / a.freedom;
  if (b.freedom > 0) share += b.variance * b.variance / b.freedom;
  return {total, share > 0 ? total * total / share : a.freedom};
}

// Of runs around the bias of their group, groups counting alike. A group of hundreds says no more of the
// scatter of another than one of twenty.
Spread inside_groups(const std::vector<ResidualGroup>& groups) {
  constexpr int kMost = 20;
  Spread spread;
  for (const ResidualGroup& group : groups) {
    spread.variance += group.variance / static_cast<double>(groups.size());
    spread.freedom += std::min(group.runs, kMost) - 1;
  }
  return spread;
}

Spread between_groups(const std::vector<ResidualGroup>& used, double prior, double prior_freedom) {
  const double n = static_cast<double>(used.size());
  const double freedom = prior_freedom + n - 1;
  if (freedom <= 0) return {prior, 1};
  return {(prior_freedom * prior + squares(used)) / freedom * (1 + 1 / n), freedom};
}

std::string signed_percent(double factor) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.0f %%", 100 * (factor - 1));
  return text;
}

RunKind read_kind(const YamlValue& row) {
  RunKind kind;
  kind.family = row.at("family").text();
  kind.measured_gpu = row.at("measured_gpu").boolean();
  kind.experts = row.at("experts").boolean();
  kind.new_kernels = row.at("new_kernels").boolean();
  kind.host_bound = row.at("host_bound").boolean();
  return kind;
}

}  // namespace

double student_95(double freedom) {
  constexpr double z = 1.6448536269514722;
  // Exact for 1 (a Cauchy variable) and 2, straight between; from 3 on Cornish and Fisher's expansion.
  constexpr double kOne = 6.313751514675043, kTwo = 2.919985580355516;
  if (freedom <= 1) return kOne;
  if (freedom < 2) return kOne + (freedom - 1) * (kTwo - kOne);
  const auto expansion = [](double n) {
    const double z2 = z * z;
    return z * (1 + (z2 + 1) / (4 * n) + ((5 * z2 + 16) * z2 + 3) / (96 * n * n) +
                (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * n * n * n));
  };
  if (freedom < 3) return kTwo + (freedom - 2) * (expansion(3) - kTwo);
  return expansion(freedom);
}

TimeBand band_of(const std::vector<ResidualGroup>& all, const RunKind& kind) {
  const std::vector<ResidualGroup> groups = groups_like(all, kind);
  if (groups.empty()) throw InputError("intervals", "no group of runs", "at least one");
  std::vector<ResidualGroup> family;
  for (const ResidualGroup& group : groups) {
    if (group.kind.family == kind.family) family.push_back(group);
  }
  const bool seen = !family.empty();
  const std::vector<ResidualGroup>& used = seen ? family : groups;
  const double prior = robust_variance(groups);
  const Spread between = between_groups(used, prior, seen ? kPriorFreedom : 0);
  const Spread inside = inside_groups(used);
  const Spread spread = sum_of(between, inside);
  const double half = student_95(spread.freedom) * std::sqrt(spread.variance), centre = mean_bias(used);
  TimeBand band{std::exp(-centre - half), std::exp(-centre + half),
                std::sqrt(between.variance + centre * centre), std::sqrt(inside.variance), to_text(kind)};
  const std::string count =
      std::to_string(used.size()) + (used.size() == 1 ? " group of runs" : " groups of runs");
  band.basis += seen ? "; " + kind.family + " seen in " + count
                     : "; " + kind.family + " not seen, by " + count + " of others";
  band.basis += ": " + signed_percent(band.low) + " " + signed_percent(band.high);
  return band;
}

std::vector<ResidualGroup> parse_residual_groups(std::string_view yaml, const std::string& file) {
  std::vector<ResidualGroup> groups;
  for (const YamlValue& row : YamlValue::parse(yaml, file).at("groups").items()) {
    row.allow_keys({"name", "source", "family", "measured_gpu", "experts", "new_kernels", "host_bound",
                    "runs", "mean", "variance"});
    groups.push_back({row.at("name").text(), row.at("source").text(), read_kind(row),
                      static_cast<int>(row.at("runs").integer(1, 1'000'000)), row.at("mean").number(-10, 10),
                      row.at("variance").number(0, 100)});
  }
  return groups;
}

std::string to_yaml(const std::vector<ResidualGroup>& groups, const std::vector<std::string>& facts) {
  std::string text;
  for (const std::string& fact : facts) text += "# " + fact + "\n";
  text += "groups:\n";
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  for (const ResidualGroup& group : groups) {
    char numbers[96];
    std::snprintf(numbers, sizeof numbers, "runs: %d, mean: %.5f, variance: %.6f}\n", group.runs, group.mean,
                  group.variance);
    text += "  - {name: '" + group.name + "', source: '" + group.source + "', family: " + group.kind.family +
            ", measured_gpu: " + truth(group.kind.measured_gpu) + ", experts: " + truth(group.kind.experts) +
            ", new_kernels: " + truth(group.kind.new_kernels) +
            ", host_bound: " + truth(group.kind.host_bound) + ",\n     " + numbers;
  }
  return text;
}

const std::vector<ResidualGroup>& built_in_residuals() {
  static const std::vector<ResidualGroup> all =
      parse_residual_groups(embedded_file(orrery_embedded_costmodels, kTable), std::string(kTable));
  return all;
}

}  // namespace orrery
