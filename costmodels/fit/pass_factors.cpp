#include "costmodels/fit/pass_factors.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "costmodels/fit/cross_validation.hpp"
#include "costmodels/fit/training_rows.hpp"
#include "costmodels/fit/training_set.hpp"
#include "platforms/errors.hpp"

namespace orrery {

namespace {

// GPUs count alike, however many rows they have.
std::optional<double> mean_over_gpus(const std::map<std::string, std::vector<double>>& logs) {
  if (logs.empty()) return std::nullopt;
  double sum = 0;
  for (const auto& [gpu, values] : logs) {
    double own = 0;
    for (const double value : values) own += value;
    sum += own / static_cast<double>(values.size());
  }
  return std::exp(sum / static_cast<double>(logs.size()));
}

using Name = std::function<std::string(const GradientPair&)>;

// One entry for each held-out name: what the factors of all other pairs say of its ratios.
void add_errors(std::vector<FitError>& errors, std::vector<GradientPair> pairs, const std::string& held_out,
                const Name& name) {
  std::set<std::string> names;
  for (const auto& pair : pairs) names.insert(name(pair));
  if (names.size() < 2) return;
  std::map<std::string, std::vector<double>> ratios;
  for (const auto& one : names) {
    std::vector<GradientPair> others;
    std::copy_if(pairs.begin(), pairs.end(), std::back_inserter(others),
                 [&](const GradientPair& pair) { return name(pair) != one; });
    const PassFactors factors = fit_pass_factors(others).value_or(PassFactors{});
    for (const auto& pair : pairs) {
      if (name(pair) != one) continue;
      if (pair.input_measured) {
        ratios["input gradient"].push_back(
            std::log(factors.input_gradient * pair.input / *pair.input_measured));
        ratios["input gradient, no factor"].push_back(std::log(pair.input / *pair.input_measured));
      }
      if (pair.both_measured) {
        const double both = factors.input_gradient * pair.input + factors.weight_gradient * pair.weight;
        ratios["both gradients"].push_back(std::log(both / *pair.both_measured));
        ratios["both gradients, no factor"].push_back(
            std::log((pair.input + pair.weight) / *pair.both_measured));
      }
    }
  }
  for (auto& [rows, logs] : ratios) {
    FitError error = summarise(std::move(logs));
    error.model = "gemm-passes";
    error.held_out = held_out;
    error.rows = rows;
    errors.push_back(std::move(error));
  }
}

}  // namespace

std::vector<GradientPair> gradient_pairs(const Profiles& profiles, const std::vector<std::string>& gpus,
                                         GemmModelKind kind, const XgboostModel& model) {
  FeatureMatrix features(model.features());
  std::vector<double> references;
  std::vector<GradientPair> pairs;
  for (const auto& row : profiles.gemms) {
    if ((!row.input_gradient && !row.backward) || std::find(gpus.begin(), gpus.end(), row.gpu) == gpus.end())
      continue;
    const GpuSpec& gpu = gpu_named(profiles, row.gpu);
    const auto peak = matrix_peak(gpu, row.type);
    const Gemm forward{.m = row.m, .n = row.n, .k = row.k, .batch = row.batch, .type = row.type};
    if (!peak || roofline(forward, gpu, peak->speed) < kShortestFrameworkTime) continue;
    const Gemm input{.m = row.m, .n = row.k, .k = row.n, .batch = row.batch, .type = row.type};
    const Gemm weight{.m = row.k, .n = row.n, .k = row.m, .batch = row.batch, .type = row.type};
    for (const Gemm& gemm : {forward, input, weight}) {
      features.add(gemm_features(gemm, gpu, peak->speed, row.timed, kind));
      references.push_back(roofline(gemm, gpu, peak->speed).value());
    }
    GradientPair pair{.gpu = row.gpu, .model = row.model};
    if (row.input_gradient) pair.input_measured = *row.input_gradient / row.time;
    if (row.backward) pair.both_measured = *row.backward / row.time;
    pairs.push_back(std::move(pair));
  }
  const auto answers = model.predict(features);
  const auto time = [&](std::size_t at) {
    return references[at] / std::exp(static_cast<double>(answers[at]));
  };
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    pairs[i].input = time(3 * i + 1) / time(3 * i);
    pairs[i].weight = time(3 * i + 2) / time(3 * i);
  }
  return pairs;
}

std::optional<PassFactors> fit_pass_factors(const std::vector<GradientPair>& pairs) {
  std::map<std::string, std::vector<double>> input, weight;
  for (const auto& pair : pairs) {
    if (pair.input_measured) input[pair.gpu].push_back(std::log(*pair.input_measured / pair.input));
  }
  const auto input_gradient = mean_over_gpus(input);
  for (const auto& pair : pairs) {
    if (!pair.both_measured) continue;
    // Without an input gradient timed alone, both gradients share one factor.
    const double both = *pair.both_measured;
    const double left = input_gradient ? (both - *input_gradient * pair.input) / pair.weight
                                       : both / (pair.input + pair.weight);
    if (left > 0) weight[pair.gpu].push_back(std::log(left));
  }
  const auto weight_gradient = mean_over_gpus(weight);
  if (!input_gradient && !weight_gradient) return std::nullopt;
  const PassFactors stated;
  return PassFactors{.input_gradient = input_gradient.value_or(*weight_gradient),
                     .weight_gradient = weight_gradient.value_or(stated.weight_gradient)};
}

std::vector<FitError> pass_errors(const std::vector<GradientPair>& pairs) {
  std::vector<FitError> errors;
  add_errors(errors, pairs, "gpu", [](const GradientPair& pair) { return pair.gpu; });
  add_errors(errors, pairs, "model", [](const GradientPair& pair) { return pair.model; });
  return errors;
}

}  // namespace orrery
