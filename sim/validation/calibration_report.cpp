#include <cstdio>
#include <nlohmann/json.hpp>

#include "analysis/table.hpp"
#include "sim/validation/calibration.hpp"
#include "traces/json_text.hpp"

namespace orrery {
namespace {

struct FactName {
  const char *words, *key;
};
constexpr FactName kMachine[] = {{"time of kernels", "compute_time"},
                                 {"host's time", "host"},
                                 {"bandwidth inside nodes", "network_inside"},
                                 {"bandwidth between nodes", "network_between"}};
constexpr FactName kMemory[] = {{"activations and logits", "activation_memory"},
                                {"freed blocks that stay", "cached_share"},
                                {"memory beside PyTorch's blocks", "memory_reserve"}};

std::string text_of(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

template <std::size_t N>
void add_facts(Table& table, const FactorFit<N>& fit, const FactName (&names)[N]) {
  for (std::size_t i = 0; i < N; ++i) {
    const double before = fit.before[i], after = fit.after[i];
    table.rows.push_back({names[i].words, text_of("%.3f", fit.factors[i]), text_of("%.0f %%", 100 * before),
                          text_of("%.0f %%", 100 * after), determination(before, after)});
  }
}

template <std::size_t N>
Table runs_table(const FactorFit<N>& fit, const std::string& unit, const char* format) {
  Table runs;
  runs.columns = {{"run"},
                  {"measured " + unit, Align::right},
                  {"before " + unit, Align::right},
                  {"error %", Align::right},
                  {"after " + unit, Align::right},
                  {"error %", Align::right}};
  for (std::size_t i = 0; i < fit.names.size(); ++i) {
    const double measured = fit.measured[i], before = fit.predicted_before[i], after = fit.predicted_after[i];
    runs.rows.push_back({fit.names[i], text_of(format, measured), text_of(format, before),
                         text_of("%+.1f", 100 * (before / measured - 1)), text_of(format, after),
                         text_of("%+.1f", 100 * (after / measured - 1))});
  }
  return runs;
}

using Json = nlohmann::ordered_json;

template <std::size_t N>
void add_parameters(Json& json, const FactorFit<N>& fit, const FactName (&names)[N]) {
  for (std::size_t i = 0; i < N; ++i) {
    const double before = fit.before[i], after = fit.after[i];
    json["parameters"].push_back({{"name", names[i].key},
                                  {"factor", fit.factors[i]},
                                  {"prior_deviation", before},
                                  {"deviation", after},
                                  {"determined", determination(before, after)}});
  }
}

template <std::size_t N>
Json runs_json(const FactorFit<N>& fit, const std::string& unit) {
  Json runs = Json::array();
  for (std::size_t i = 0; i < fit.names.size(); ++i)
    runs.push_back({{"name", fit.names[i]},
                    {"measured_" + unit, fit.measured[i]},
                    {"before_" + unit, fit.predicted_before[i]},
                    {"after_" + unit, fit.predicted_after[i]}});
  return runs;
}

template <std::size_t N>
std::string yaml_of(const std::string& key, const Calibrated<N>& known) {
  std::string text = key + ":\n  runs: " + std::to_string(known.runs) +
                     "\n  scatter: " + text_of("%.6g", known.scatter) +
                     "\n  gpus: " + Json(known.gpus).dump();
  if (!known.cost_models.empty()) text += "\n  cost_models: " + known.cost_models;
  text += "\n  covariance:\n";
  for (const auto& row : known.covariance) {
    text += "    - [";
    for (std::size_t i = 0; i < N; ++i) text += (i == 0 ? "" : ", ") + text_of("%.6g", row[i]);
    text += "]\n";
  }
  return text;
}

}  // namespace

std::string calibration_text(const Calibration& calibration) {
  const auto& [stack, time, memory] = calibration;
  Table facts;
  facts.columns = {{"on what the stack says"},
                   {"factor", Align::right},
                   {"+- before", Align::right},
                   {"+- after", Align::right},
                   {"by these runs"}};
  add_facts(facts, time, kMachine);
  if (memory) add_facts(facts, *memory, kMemory);
  std::string text = to_text(facts) + "\n+-: standard deviation; the time of a run scatters by " +
                     text_of("%.1f %%", 100 * stack.calibrated->scatter);
  if (memory) text += ", its memory by " + text_of("%.1f %%", 100 * stack.calibrated_memory->scatter);
  text += "\n\n" + to_text(runs_table(time, "s", "%.4f"));
  return memory ? text + "\n" + to_text(runs_table(*memory, "GiB", "%.2f")) : text;
}

std::string calibration_json(const Calibration& calibration, const std::vector<LeftOutRun>& left_out) {
  const auto& [stack, time, memory] = calibration;
  Json json;
  add_parameters(json, time, kMachine);
  if (memory) add_parameters(json, *memory, kMemory);
  json["scatter"] = stack.calibrated->scatter;
  if (memory) json["memory_scatter"] = stack.calibrated_memory->scatter;
  json["runs"] = runs_json(time, "s");
  if (memory) json["memory_runs"] = runs_json(*memory, "gib");
  json["skipped"] = Json::array();
  for (const LeftOutRun& run : left_out) json["skipped"].push_back({{"id", run.id}, {"reason", run.reason}});
  return json_document(json);
}

std::string calibrated_yaml(const Calibration& calibration, const std::string& like) {
  const SoftwareStack& stack = calibration.stack;
  const auto seconds = [](Seconds time) { return text_of("%.6gs", time.value()); };
  std::string host;
  for (const HostTime& one : kHostTimes)
    host += std::string(host.empty() ? "" : ", ") + one.name + ": " + seconds(stack.host.*one.time);
  std::string text = "# Written by `orrery calibrate` for --stack.\nlike: " + like +
                     "\ncompute_time: " + text_of("%.6g", stack.compute_time) + "\nhost: {" + host +
                     "}\nnetwork: {inside: " + text_of("%.6g", stack.network.inside) +
                     ", between: " + text_of("%.6g", stack.network.between) + "}\n" +
                     yaml_of("calibrated", *stack.calibrated);
  if (!stack.calibrated_memory) return text;
  return text + "activation_memory: " + text_of("%.6g", stack.activation_memory) +
         "\ncached_share: " + text_of("%.6g", stack.cached_share) +
         "\nmemory_reserve: " + text_of("%.6gGiB", to_gibibytes(stack.memory_reserve)) + "\n" +
         yaml_of("calibrated_memory", *stack.calibrated_memory);
}

}  // namespace orrery
