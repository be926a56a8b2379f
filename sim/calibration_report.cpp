#include <cstdio>
#include <nlohmann/json.hpp>

#include "analysis/table.hpp"
#include "sim/calibration.hpp"

namespace orrery {
namespace {

constexpr const char* kFacts[] = {"time of kernels", "host's time", "bandwidth inside nodes",
                                  "bandwidth between nodes"};
constexpr const char* kKeys[] = {"compute_time", "host", "network_inside", "network_between"};

std::string text_of(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::string calibration_text(const Calibration& calibration) {
  Table facts, runs;
  facts.columns = {{"on what the stack says"},
                   {"factor", Align::right},
                   {"+- before", Align::right},
                   {"+- after", Align::right},
                   {"by these runs"}};
  for (std::size_t i = 0; i < kMachineFacts; ++i) {
    const double before = calibration.before[i], after = calibration.after[i];
    facts.rows.push_back({kFacts[i], text_of("%.3f", calibration.factors[i]),
                          text_of("%.0f %%", 100 * before), text_of("%.0f %%", 100 * after),
                          determination(before, after)});
  }
  runs.columns = {{"run"},
                  {"measured s", Align::right},
                  {"before s", Align::right},
                  {"error %", Align::right},
                  {"after s", Align::right},
                  {"error %", Align::right}};
  for (std::size_t i = 0; i < calibration.names.size(); ++i) {
    const double measured = calibration.measured[i], before = calibration.predicted_before[i],
                 after = calibration.predicted_after[i];
    runs.rows.push_back({calibration.names[i], text_of("%.4f", measured), text_of("%.4f", before),
                         text_of("%+.1f", 100 * (before / measured - 1)), text_of("%.4f", after),
                         text_of("%+.1f", 100 * (after / measured - 1))});
  }
  return to_text(facts) + "\n+-: standard deviation; a run scatters by " +
         text_of("%.1f %%", 100 * calibration.stack.calibrated->scatter) + "\n\n" + to_text(runs);
}

std::string calibration_json(const Calibration& calibration) {
  nlohmann::ordered_json json;
  for (std::size_t i = 0; i < kMachineFacts; ++i) {
    const double before = calibration.before[i], after = calibration.after[i];
    json["parameters"].push_back({{"name", kKeys[i]},
                                  {"factor", calibration.factors[i]},
                                  {"prior_deviation", before},
                                  {"deviation", after},
                                  {"determined", determination(before, after)}});
  }
  json["scatter"] = calibration.stack.calibrated->scatter;
  for (std::size_t i = 0; i < calibration.names.size(); ++i)
    json["runs"].push_back({{"name", calibration.names[i]},
                            {"measured_s", calibration.measured[i]},
                            {"before_s", calibration.predicted_before[i]},
                            {"after_s", calibration.predicted_after[i]}});
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string calibrated_yaml(const Calibration& calibration, const std::string& like) {
  const SoftwareStack& stack = calibration.stack;
  const auto seconds = [](Seconds time) { return text_of("%.6gs", time.value()); };
  std::string text = "# Written by `orrery calibrate` for --stack.\nlike: " + like +
                     "\ncompute_time: " + text_of("%.6g", stack.compute_time) +
                     "\nhost: {forward: " + seconds(stack.host.forward) +
                     ", backward: " + seconds(stack.host.backward) +
                     ", collective: " + seconds(stack.host.collective) +
                     "}\nnetwork: {inside: " + text_of("%.6g", stack.network.inside) +
                     ", between: " + text_of("%.6g", stack.network.between) +
                     "}\ncalibrated:\n  runs: " + std::to_string(stack.calibrated->runs) +
                     "\n  scatter: " + text_of("%.6g", stack.calibrated->scatter) + "\n  covariance:\n";
  for (const auto& row : stack.calibrated->covariance) {
    text += "    - [";
    for (std::size_t i = 0; i < row.size(); ++i) text += (i == 0 ? "" : ", ") + text_of("%.6g", row[i]);
    text += "]\n";
  }
  return text;
}

}  // namespace orrery
