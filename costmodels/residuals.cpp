#include "costmodels/residuals.hpp"

#include <cstdio>

#include "platforms/embedded.hpp"
#include "platforms/yaml.hpp"

extern "C" const orrery::EmbeddedRow orrery_embedded_costmodels[];

namespace orrery {
namespace {

constexpr std::string_view kTable = "fitted/intervals.yaml";

RunKind read_kind(const YamlValue& row) {
  RunKind kind;
  kind.family = row.at("family").text();
  kind.measured_gpu = row.at("measured_gpu").boolean();
  kind.other_maker = row.at("other_maker").boolean();
  kind.experts = row.at("experts").boolean();
  kind.new_kernels = row.at("new_kernels").boolean();
  kind.four_bits = row.at("four_bits").boolean();
  kind.sharded_weights = row.at("sharded_weights").boolean();
  kind.host_bound = row.at("host_bound").boolean();
  return kind;
}

std::vector<ResidualGroup> read_groups(const YamlValue& rows) {
  std::vector<ResidualGroup> groups;
  for (const YamlValue& row : rows.items()) {
    row.allow_keys({"name", "source", "family", "measured_gpu", "other_maker", "experts", "new_kernels",
                    "four_bits", "sharded_weights", "host_bound", "runs", "mean", "variance"});
    groups.push_back({row.at("name").text(), row.at("source").text(), read_kind(row),
                      static_cast<int>(row.at("runs").integer(1, 1'000'000)), row.at("mean").number(-10, 10),
                      row.at("variance").number(0, 100)});
  }
  return groups;
}

std::string groups_yaml(const std::vector<ResidualGroup>& groups) {
  if (groups.empty()) return "  []\n";
  std::string text;
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  for (const ResidualGroup& group : groups) {
    char numbers[96];
    std::snprintf(numbers, sizeof numbers, "runs: %d, mean: %.5f, variance: %.6f}\n", group.runs, group.mean,
                  group.variance);
    text +=
        "  - {name: " + yaml_quoted(group.name) + ", source: " + yaml_quoted(group.source) +
        ", family: " + yaml_quoted(group.kind.family) + ", measured_gpu: " + truth(group.kind.measured_gpu) +
        ", other_maker: " + truth(group.kind.other_maker) + ", experts: " + truth(group.kind.experts) +
        ", new_kernels: " + truth(group.kind.new_kernels) + ", four_bits: " + truth(group.kind.four_bits) +
        ", sharded_weights: " + truth(group.kind.sharded_weights) +
        ", host_bound: " + truth(group.kind.host_bound) + ",\n     " + numbers;
  }
  return text;
}

}  // namespace

const std::vector<ResidualGroup>& Residuals::of(Predicted what) const {
  return what == Predicted::time ? time : memory;
}

ErrorBand band_of(const RunKind& kind, Predicted what) {
  if (what == Predicted::time) {
    static const IntervalModel model(built_in_residuals().time, Predicted::time);
    return model.band(kind);
  }
  static const IntervalModel model(built_in_residuals().memory, Predicted::memory);
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
