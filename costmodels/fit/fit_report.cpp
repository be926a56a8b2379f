#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "costmodels/fit/fit.hpp"
#include "platforms/errors.hpp"

namespace orrery {

namespace {

using Json = nlohmann::ordered_json;

// Errors to a hundredth of a per cent: further digits would change with the compiler's rounding and mean
// nothing.
double rounded(double share) {
  return std::round(share * 1e4) / 1e4;
}

Json json_of(const FitError& error) {
  return {{"model", error.model},
          {"held_out", error.held_out},
          {"rows", error.rows},
          {"count", error.count},
          {"mape", rounded(error.mape)},
          {"median_ape", rounded(error.median)},
          {"p95_ape", rounded(error.p95)},
          {"max_ape", rounded(error.worst)},
          {"bias", rounded(error.bias)}};
}

Json json_of(const FitInput& input) {
  Json json{{"file", input.file},
            {"sha256", input.sha256},
            {"rows", input.rows},
            {"used", input.used},
            {"skipped", input.skipped}};
  if (!input.doubts.empty()) json["doubts"] = input.doubts;
  return json;
}

Json json_of(const FittedModel& model) {
  return {{"file", model.file},
          {"kind", model.kind},
          {"sha256", model.sha256},
          {"gpus", model.gpus},
          {"rows", model.rows},
          {"features", model.features},
          {"trees", model.trees},
          {"leaves", model.leaves},
          {"learning_rate", model.learning_rate},
          {"row_share", model.row_share},
          {"column_share", model.column_share}};
}

template <class Row>
Json list_of(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const auto& row : rows) list.push_back(json_of(row));
  return list;
}

// The first names are enough to see a table whose name is off by a little.
std::string not_read_line(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  if (names.empty()) return {};
  std::string text = "not read, since no table has such a name: ";
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + quote_for_message(names[i]);
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text + "\n";
}

// One line for all tables: those of a source have the same columns.
std::string gemms_not_read_line(const std::vector<FitInput>& inputs) {
  const auto has_gemms = [](const FitInput& input) { return !input.gemms_not_read.empty(); };
  const auto first = std::find_if(inputs.begin(), inputs.end(), has_gemms);
  if (first == inputs.end()) return {};
  const auto tables = std::count_if(first, inputs.end(), has_gemms);
  std::string columns;
  for (const std::string& column : first->gemms_not_read) columns += (columns.empty() ? "" : ", ") + column;
  return "not read, GEMMs in columns of " + first->file +
         (tables > 1 ? " and " + std::to_string(tables - 1) + " more" : "") + ": " + columns +
         "; their table is gemm_long.csv\n";
}

}  // namespace

std::string to_json(const FitReport& report) {
  const Json json{{"xgboost", report.xgboost},
                  {"seed", report.seed},
                  {"models", list_of(report.models)},
                  {"errors", list_of(report.errors)},
                  {"inputs", list_of(report.inputs)},
                  {"left_out", report.left_out},
                  {"gradient_factors",
                   {{"input", rounded(report.passes.input_gradient)},
                    {"weight", rounded(report.passes.weight_gradient)}}}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";  // files have any name
}

std::string first_line(const FitInput& input, const std::string& reason) {
  const auto line = input.first_line.find(reason);
  if (line == input.first_line.end()) return {};
  const auto found = input.first_found.find(reason);
  return ", first in line " + std::to_string(line->second) +
         (found == input.first_found.end() ? "" : ": " + found->second);
}

std::string to_table(const FitReport& report) {
  std::string text;
  std::array<char, 200> line{};
  const auto add = [&](int length) { text.append(line.data(), static_cast<std::size_t>(length)); };
  add(std::snprintf(line.data(), line.size(), "%-18s %-11s %-30s %7s %7s %7s %7s %8s %7s\n", "model",
                    "held out", "rows", "count", "MAPE", "median", "p95", "worst", "bias"));
  for (const auto& error : report.errors) {
    add(std::snprintf(line.data(), line.size(),
                      "%-18.18s %-11.11s %-30.30s %7lld %6.1f%% %6.1f%% %6.1f%% %7.0f%% %+6.1f%%\n",
                      error.model.c_str(), error.held_out.c_str(), error.rows.c_str(),
                      static_cast<long long>(error.count), 100 * error.mape, 100 * error.median,
                      100 * error.p95, 100 * error.worst, 100 * error.bias));
  }
  text += "model+shape: a transformer held out with what others have of its matrices\n";
  for (const FitInput& input : report.inputs) {
    text += "took " + std::to_string(input.used) + " measurements of " + std::to_string(input.rows) +
            " rows of " + input.file + "\n";
    for (const auto& [reason, rows] : input.skipped)
      text += "left out, " + std::to_string(rows) + " rows of " + input.file + ": " + reason +
              first_line(input, reason) + "\n";
  }
  for (const auto& [reason, rows] : report.left_out)
    text += "left out, " + std::to_string(rows) + " rows: " + reason + "\n";
  return text + gemms_not_read_line(report.inputs) + not_read_line(report.not_read);
}

}  // namespace orrery
