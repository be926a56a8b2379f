#include "costmodels/trust/residuals.hpp"

#include <cstdio>
#include <utility>

#include "platforms/embedded.hpp"
#include "platforms/yaml.hpp"

extern "C" const orrery::EmbeddedRow orrery_embedded_costmodels[];

namespace orrery {
namespace {

constexpr std::string_view kTable = "fitted/intervals.yaml";

const std::vector<std::string> kTraits{"measured_gpu", "other_maker",     "experts",   "new_kernels",
                                       "four_bits",    "sharded_weights", "host_bound"};
constexpr bool RunKind::*kTraitOf[]{&RunKind::measured_gpu, &RunKind::other_maker, &RunKind::experts,
                                    &RunKind::new_kernels,  &RunKind::four_bits,   &RunKind::sharded_weights,
                                    &RunKind::host_bound};

RunKind read_kind(const YamlValue& row) {
  RunKind kind;
  kind.family = row.at("family").text();
  kind.measured_gpu = false;
  for (const YamlValue& trait : row.at("traits").items()) kind.*kTraitOf[trait.one_of(kTraits)] = true;
  return kind;
}

std::string traits_yaml(const RunKind& kind) {
  std::string text;
  for (std::size_t i = 0; i < kTraits.size(); ++i) {
    if (kind.*kTraitOf[i]) text += (text.empty() ? "" : ", ") + kTraits[i];
  }
  return "[" + text + "]";
}

std::vector<ResidualGroup> read_groups(const YamlValue& rows) {
  std::vector<ResidualGroup> groups;
  for (const YamlValue& row : rows.items()) {
    row.allow_keys({"name", "source", "family", "traits", "runs", "mean", "variance"});
    groups.push_back({row.at("name").text(), row.at("source").text(), read_kind(row),
                      static_cast<int>(row.at("runs").integer(1, 1'000'000)), row.at("mean").number(-10, 10),
                      row.at("variance").number(0, 100)});
  }
  return groups;
}

std::string groups_yaml(const std::vector<ResidualGroup>& groups) {
  if (groups.empty()) return "  []\n";
  std::string text;
  for (const ResidualGroup& group : groups) {
    char numbers[96];
    std::snprintf(numbers, sizeof numbers, "runs: %d, mean: %.5f, variance: %.6f}\n", group.runs, group.mean,
                  group.variance);
    text += "  - {name: " + yaml_quoted(group.name) + ", source: " + yaml_quoted(group.source) +
            ", family: " + yaml_quoted(group.kind.family) + ",\n     traits: " + traits_yaml(group.kind) +
            ", " + numbers;
  }
  return text;
}

// The sources of the table were read again where their errors were large, those of a run to come were not. So
// many times as wide intervals hold 90 % of 458 runs of the last 133 groups as they were first predicted
// (groups counting alike), and 93 % of groups left out; no wider 84 %, 1.3 times as wide 93 %.
constexpr double kUnreadTimes = 1.15;

}  // namespace

const std::vector<ResidualGroup>& Residuals::of(Predicted what) const {
  return what == Predicted::time ? time : memory;
}

IntervalModel interval_model(std::vector<ResidualGroup> groups, Predicted what) {
  return IntervalModel(std::move(groups), what, what == Predicted::time ? kUnreadTimes : 1.0);
}

ErrorBand band_of(const RunKind& kind, Predicted what) {
  if (what == Predicted::time) {
    static const IntervalModel model = interval_model(built_in_residuals().time, what);
    return model.band(kind);
  }
  static const IntervalModel model = interval_model(built_in_residuals().memory, what);
  return model.band(kind);
}

double out_of_memory_chance(double fullness) {
  return built_in_residuals().out_of_memory.chance(fullness);
}

Residuals parse_residuals(std::string_view yaml, const std::string& file) {
  const YamlValue all = YamlValue::parse(yaml, file);
  all.allow_keys({"time", "memory", "out_of_memory"});
  const YamlValue outcomes = all.at("out_of_memory");
  outcomes.allow_keys({"even", "spread"});
  return {read_groups(all.at("time")),
          read_groups(all.at("memory")),
          {outcomes.at("even").number(1e-3, 1e3), outcomes.at("spread").number(1e-6, 1e3)}};
}

std::string to_yaml(const Residuals& residuals, const std::vector<std::string>& facts) {
  std::string text;
  for (const std::string& fact : facts) text += "# " + fact + "\n";
  text += "time:\n" + groups_yaml(residuals.time);
  text += "memory:\n" + groups_yaml(residuals.memory);
  char outcomes[96];
  std::snprintf(outcomes, sizeof outcomes, "out_of_memory: {even: %.4f, spread: %.4f}\n",
                residuals.out_of_memory.even, residuals.out_of_memory.spread);
  return text + outcomes;
}

const Residuals& built_in_residuals() {
  static const Residuals all =
      parse_residuals(embedded_file(orrery_embedded_costmodels, kTable), std::string(kTable));
  return all;
}

}  // namespace orrery
