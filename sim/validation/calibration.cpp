#include "sim/validation/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "costmodels/plans/plan_kind.hpp"
#include "costmodels/trust/residuals.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

template <std::size_t N>
using Matrix = std::array<Factors<N>, N>;

// Assumptions: a host is as fast as ours within a factor of 1.6, links inside nodes reach what other
// machines' do within 25 %, networks between nodes, which differ more, within 50 %.
constexpr double kHostPrior = 0.5, kInsidePrior = 0.25, kBetweenPrior = 0.4;
// Activations within a third (assumption). What stays of freed blocks is 0.18 to 2.07 in eight logs of one
// program, a process 1.6 to 2.05 GiB on A100 (stacks.yaml, megatron-lm-2021).
constexpr MemoryFactors kMemoryPriors{0.3, 0.7, 0.25};
constexpr double kScatterFreedom =
    8;  // assumption: runs that the published scatter is worth beside one's own
constexpr int kSteps = 4;

// Of a symmetric positive definite matrix, by Gauss-Jordan: its pivots are positive.
template <std::size_t N>
Matrix<N> inverse(Matrix<N> a) {
  Matrix<N> result{};
  for (std::size_t i = 0; i < N; ++i) result[i][i] = 1;
  for (std::size_t i = 0; i < N; ++i) {
    const double pivot = a[i][i];
    ORRERY_ENSURE(pivot > 0);
    for (std::size_t k = 0; k < N; ++k) {
      a[i][k] /= pivot;
      result[i][k] /= pivot;
    }
    for (std::size_t row = 0; row < N; ++row) {
      if (row == i) continue;
      const double times = a[row][i];
      for (std::size_t k = 0; k < N; ++k) {
        a[row][k] -= times * a[i][k];
        result[row][k] -= times * result[i][k];
      }
    }
  }
  return result;
}

template <std::size_t N>
Factors<N> exponentials(const Factors<N>& logs) {
  Factors<N> factors{};
  for (std::size_t i = 0; i < N; ++i) factors[i] = std::exp(logs[i]);
  return factors;
}

// The posterior of normal priors (mean 0) and linear observations slopes . x = value, each of `scatter`.
template <std::size_t N>
struct Posterior {
  Factors<N> mean{};
  Matrix<N> covariance{};
};
template <std::size_t N>
Posterior<N> posterior(const std::vector<Factors<N>>& slopes, const std::vector<double>& values,
                       const std::vector<double>& weights, const Factors<N>& prior) {
  Matrix<N> precision{};
  Factors<N> right{};
  for (std::size_t i = 0; i < N; ++i) {
    precision[i][i] = 1 / (prior[i] * prior[i]);
    for (std::size_t run = 0; run < slopes.size(); ++run) {
      const double weight = weights[run];
      right[i] += weight * slopes[run][i] * values[run];
      for (std::size_t j = 0; j < N; ++j) precision[i][j] += weight * slopes[run][i] * slopes[run][j];
    }
  }
  Posterior<N> result{{}, inverse(precision)};
  for (std::size_t i = 0; i < N; ++i) {
    for (std::size_t j = 0; j < N; ++j) result.mean[i] += result.covariance[i][j] * right[j];
  }
  return result;
}

// Times, or peaks, of runs.
template <std::size_t N>
struct Observations {
  Factors<N> priors;
  double scatter;  // of published runs
  std::vector<std::string> names = {};
  std::vector<double> measured = {};
  std::vector<double> weights = {};  // one over the runs of its plan: a run that is repeated tells no more
  std::function<double(std::size_t run, const Factors<N>&)> predicted = {};
  std::function<Factors<N>(std::size_t run, const Factors<N>&, Slope)> slopes = {};
};

double plans_in(const std::vector<double>& weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

// What the fit leaves over of runs, with the published scatter as a prior.
template <std::size_t N>
double scatter_of(const Observations<N>& runs, const std::vector<double>& predicted) {
  double sum = kScatterFreedom * runs.scatter * runs.scatter;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    const double left = std::log(runs.measured[i] / predicted[i]);
    sum += runs.weights[i] * left * left;
  }
  return std::sqrt(sum / (kScatterFreedom + plans_in(runs.weights)));
}

template <std::size_t N>
FactorFit<N> fitted(const Observations<N>& runs, Calibrated<N>& known) {
  FactorFit<N> fit;
  fit.before = runs.priors;
  fit.names = runs.names;
  fit.measured = runs.measured;
  Posterior<N> state;
  known.runs = static_cast<int>(std::lround(plans_in(runs.weights)));
  known.scatter = runs.scatter;
  const auto predictions = [&] {
    std::vector<double> all;
    for (std::size_t i = 0; i < runs.measured.size(); ++i)
      all.push_back(runs.predicted(i, exponentials(state.mean)));
    return all;
  };
  fit.predicted_before = fit.predicted_after = predictions();
  std::vector<double> weights, values;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Factors<N>> slopes;
    values.clear();
    for (std::size_t i = 0; i < runs.measured.size(); ++i) {
      slopes.push_back(runs.slopes(i, exponentials(state.mean), Slope::central));
      values.push_back(std::log(runs.measured[i] / fit.predicted_after[i]));
      for (std::size_t k = 0; k < N; ++k) values.back() += slopes.back()[k] * state.mean[k];
    }
    weights = runs.weights;
    for (double& weight : weights) weight /= known.scatter * known.scatter;
    state = posterior(slopes, values, weights, runs.priors);
    fit.predicted_after = predictions();
    known.scatter = scatter_of(runs, fit.predicted_after);
  }
  fit.factors = exponentials(state.mean);
  // How well they are known, though, tells the side where they show least.
  std::vector<Factors<N>> flatter;
  for (std::size_t i = 0; i < runs.measured.size(); ++i)
    flatter.push_back(runs.slopes(i, fit.factors, Slope::flatter));
  state.covariance = posterior(flatter, values, weights, runs.priors).covariance;
  for (std::size_t i = 0; i < N; ++i) fit.after[i] = std::sqrt(state.covariance[i][i]);
  known.covariance = state.covariance;
  return fit;
}

bool same_plan(const OwnRun& a, const OwnRun& b) {
  return a.strategy == b.strategy && a.book.model() == b.book.model() &&
         a.book.cluster() == b.book.cluster() && a.book.precision() == b.book.precision();
}

// Two figures of a peak tell two things.
bool same_peak(const OwnRun& a, const OwnRun& b) {
  return same_plan(a, b) && a.peak->figure == b.peak->figure;
}

template <class Same>
std::vector<double> weights_of(const std::vector<const OwnRun*>& runs, Same same) {
  std::vector<double> weights;
  for (const OwnRun* run : runs) {
    const auto alike =
        std::count_if(runs.begin(), runs.end(), [&](const OwnRun* other) { return same(*run, *other); });
    weights.push_back(1.0 / static_cast<double>(alike));
  }
  return weights;
}

// Bias and scatter of published runs of the kinds of these.
ErrorBand band_of_all(const std::vector<const OwnRun*>& runs, Predicted what) {
  ErrorBand all;
  all.bias = all.scatter = 0;
  for (const OwnRun* run : runs) {
    const ErrorBand one = band_of(kind_of(run->book, run->strategy), what);
    all.bias += one.bias * one.bias / static_cast<double>(runs.size());
    all.scatter += one.scatter * one.scatter / static_cast<double>(runs.size());
  }
  all.bias = std::sqrt(all.bias);
  all.scatter = std::sqrt(all.scatter);
  return all;
}

std::vector<std::string> gpus_of_all(const std::vector<const OwnRun*>& runs) {
  std::set<std::string> all;
  for (const OwnRun* run : runs) {
    for (std::string& gpu : gpus_of(run->book.cluster(), run->strategy)) all.insert(std::move(gpu));
  }
  return {all.begin(), all.end()};
}

FactorFit<kMachineFacts> fitted_times(const std::vector<const OwnRun*>& runs, const CostModels& costs,
                                      Calibrated<kMachineFacts>& known) {
  const ErrorBand band = band_of_all(runs, Predicted::time);
  Observations<kMachineFacts> times{{band.bias, kHostPrior, kInsidePrior, kBetweenPrior}, band.scatter};
  times.weights = weights_of(runs, same_plan);
  for (const OwnRun* run : runs) {
    times.names.push_back(run->name);
    times.measured.push_back(run->measured);
  }
  times.predicted = [&](std::size_t i, const MachineFactors& factors) {
    const OwnRun& run = *runs[i];
    return seconds_under(run.book, run.strategy, costs, with_factors(run.book.stack(), factors));
  };
  times.slopes = [&](std::size_t i, const MachineFactors& factors, Slope slope) {
    return sensitivities(runs[i]->book, runs[i]->strategy, costs, factors, slope);
  };
  known.gpus = gpus_of_all(runs);
  known.cost_models = costs.digest();
  return fitted(times, known);
}

FactorFit<kMemoryFacts> fitted_peaks(const std::vector<const OwnRun*>& runs,
                                     Calibrated<kMemoryFacts>& known) {
  Observations<kMemoryFacts> peaks{kMemoryPriors, band_of_all(runs, Predicted::memory).scatter};
  peaks.weights = weights_of(runs, same_peak);
  for (const OwnRun* run : runs) {
    peaks.names.push_back(run->name);
    peaks.measured.push_back(run->peak->gib);
  }
  peaks.predicted = [&](std::size_t i, const MemoryFactors& factors) {
    const OwnRun& run = *runs[i];
    return peak_under(run.book, run.strategy, run.peak->figure,
                      with_memory_factors(run.book.stack(), factors));
  };
  peaks.slopes = [&](std::size_t i, const MemoryFactors& factors, Slope slope) {
    return memory_sensitivities(runs[i]->book, runs[i]->strategy, runs[i]->peak->figure, factors, slope);
  };
  known.gpus = gpus_of_all(runs);
  return fitted(peaks, known);
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
  Calibration result;
  Calibrated<kMachineFacts> time;
  std::vector<const OwnRun*> all;
  for (const OwnRun& run : runs) all.push_back(&run);
  result.time = fitted_times(all, costs, time);
  result.stack = with_factors(stack, result.time.factors);
  result.stack.calibrated = time;
  std::vector<const OwnRun*> with_peak;
  for (const OwnRun& run : runs) {
    if (run.peak) with_peak.push_back(&run);
  }
  if (with_peak.empty()) return result;
  Calibrated<kMemoryFacts> memory;
  result.memory = fitted_peaks(with_peak, memory);
  result.stack = with_memory_factors(result.stack, result.memory->factors);
  result.stack.calibrated_memory = memory;
  return result;
}

std::string determination(double before, double after) {
  constexpr double kDetermined = 0.5, kPartly = 0.9;
  if (after < kDetermined * before) return "determined";
  return after < kPartly * before ? "partly" : "not determined";
}

}  // namespace orrery
