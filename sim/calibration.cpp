#include "sim/calibration.hpp"

#include <algorithm>
#include <cmath>

#include "costmodels/residuals.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

using Matrix = std::array<MachineFactors, kMachineFacts>;

// Assumptions: a host is as fast as ours within a factor of 1.6, links inside nodes reach what other
// machines' do within 25 %, networks between nodes, which differ more, within 50 %.
constexpr double kHostPrior = 0.5, kInsidePrior = 0.25, kBetweenPrior = 0.4;
constexpr double kScatterFreedom =
    8;  // assumption: runs that the published scatter is worth beside one's own
constexpr int kSteps = 4;

// Of a symmetric positive definite matrix, by Gauss-Jordan: its pivots are positive.
Matrix inverse(Matrix a) {
  Matrix result{};
  for (std::size_t i = 0; i < kMachineFacts; ++i) result[i][i] = 1;
  for (std::size_t i = 0; i < kMachineFacts; ++i) {
    const double pivot = a[i][i];
    ORRERY_ENSURE(pivot > 0);
    for (std::size_t k = 0; k < kMachineFacts; ++k) {
      a[i][k] /= pivot;
      result[i][k] /= pivot;
    }
    for (std::size_t row = 0; row < kMachineFacts; ++row) {
      if (row == i) continue;
      const double times = a[row][i];
      for (std::size_t k = 0; k < kMachineFacts; ++k) {
        a[row][k] -= times * a[i][k];
        result[row][k] -= times * result[i][k];
      }
    }
  }
  return result;
}

MachineFactors exponentials(const MachineFactors& logs) {
  MachineFactors factors{};
  for (std::size_t i = 0; i < kMachineFacts; ++i) factors[i] = std::exp(logs[i]);
  return factors;
}

// The posterior of normal priors (mean 0) and linear observations slopes . x = value, each of `scatter`.
struct Posterior {
  MachineFactors mean{};
  Matrix covariance{};
};
Posterior posterior(const std::vector<MachineFactors>& slopes, const std::vector<double>& values,
                    double scatter, const MachineFactors& prior) {
  Matrix precision{};
  MachineFactors right{};
  const double weight = 1 / (scatter * scatter);
  for (std::size_t i = 0; i < kMachineFacts; ++i) {
    precision[i][i] = 1 / (prior[i] * prior[i]);
    for (std::size_t run = 0; run < slopes.size(); ++run) {
      right[i] += weight * slopes[run][i] * values[run];
      for (std::size_t j = 0; j < kMachineFacts; ++j)
        precision[i][j] += weight * slopes[run][i] * slopes[run][j];
    }
  }
  Posterior result{{}, inverse(precision)};
  for (std::size_t i = 0; i < kMachineFacts; ++i) {
    for (std::size_t j = 0; j < kMachineFacts; ++j) result.mean[i] += result.covariance[i][j] * right[j];
  }
  return result;
}

std::vector<double> predictions(const std::vector<OwnRun>& runs, const CostModels& costs,
                                const MachineFactors& factors) {
  std::vector<double> seconds;
  for (const OwnRun& run : runs)
    seconds.push_back(seconds_under(run.book, run.strategy, costs, with_factors(run.book.stack(), factors)));
  return seconds;
}

// Runs left over by the fit, with the published scatter as a prior.
double scatter_of(const std::vector<OwnRun>& runs, const std::vector<double>& predicted, double published) {
  double sum = kScatterFreedom * published * published;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const double left = std::log(runs[i].measured / predicted[i]);
    sum += left * left;
  }
  return std::sqrt(sum / (kScatterFreedom + static_cast<double>(runs.size())));
}

}  // namespace

Calibration calibrate(const std::vector<OwnRun>& runs, const CostModels& costs) {
  if (runs.empty()) throw InputError("calibrate", "no run with a time", "one or more");
  const SoftwareStack& stack = runs.front().book.stack();
  if (stack.calibrated)
    throw InputError("calibrate", "the stack " + stack.name + ", calibrated already",
                     "the stack it was made from, and all runs together");
  if (stack.name != stack.preset)
    throw InputError("calibrate", "the stack file " + stack.name,
                     "a preset of `orrery catalog stacks`: the file that is written is like it");
  const ErrorBand band = band_of(kind_of(runs.front().book, runs.front().strategy), Predicted::time);
  Calibration result;
  result.before = {band.bias, kHostPrior, kInsidePrior, kBetweenPrior};
  result.predicted_before = predictions(runs, costs, {1, 1, 1, 1});
  result.predicted_after = result.predicted_before;
  double scatter = band.scatter;
  Posterior state;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<MachineFactors> slopes;
    std::vector<double> values;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      slopes.push_back(sensitivities(runs[i].book, runs[i].strategy, costs, exponentials(state.mean)));
      values.push_back(std::log(runs[i].measured / result.predicted_after[i]));
      for (std::size_t k = 0; k < kMachineFacts; ++k) values.back() += slopes.back()[k] * state.mean[k];
    }
    state = posterior(slopes, values, scatter, result.before);
    result.factors = exponentials(state.mean);
    result.predicted_after = predictions(runs, costs, result.factors);
    scatter = scatter_of(runs, result.predicted_after, band.scatter);
  }
  for (std::size_t i = 0; i < kMachineFacts; ++i) result.after[i] = std::sqrt(state.covariance[i][i]);
  result.stack = with_factors(stack, result.factors);
  result.stack.calibrated = CalibratedStack{static_cast<int>(runs.size()), scatter, state.covariance};
  for (const OwnRun& run : runs) {
    result.names.push_back(run.name);
    result.measured.push_back(run.measured);
  }
  return result;
}

std::string determination(double before, double after) {
  constexpr double kDetermined = 0.5, kPartly = 0.9;
  if (after < kDetermined * before) return "determined";
  return after < kPartly * before ? "partly" : "not determined";
}

}  // namespace orrery
