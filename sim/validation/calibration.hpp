// What a few runs of one's own say of a machine and a program.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "sim/bounds/plan_band.hpp"
#include "sim/measured/measured_run.hpp"

namespace orrery {

struct OwnPeak {
  double gib = 0;  // of the fullest GPU
  MemoryFigure figure = MemoryFigure::card;
};

// A run and its plan, priced under the stack that is to be calibrated.
struct OwnRun {
  std::string name;
  PriceBook book;
  ParallelStrategy strategy;
  double measured = 0;  // s of an iteration
  std::optional<OwnPeak> peak = {};
};

template <std::size_t N>
struct FactorFit {
  Factors<N> factors{};          // on the stack that was given
  Factors<N> before{}, after{};  // standard deviations of their logarithms
  std::vector<std::string> names;
  std::vector<double> measured, predicted_before, predicted_after;  // of these runs: s, or GiB
};

// A row of a table that says too little, or nothing, of how fast its plan is.
struct LeftOutRun {
  std::string id, reason;
};

struct Calibration {
  SoftwareStack stack;  // with `calibrated`, and `calibrated_memory` where a peak was given
  FactorFit<kMachineFacts> time;
  std::optional<FactorFit<kMemoryFacts>> memory;
};

// The factors most likely by the runs and the priors: normal in logarithms, Gauss-Newton steps on the
// estimate. The prior of the compute level is the bias that groups of the runs' kind have; those of host,
// network and memory are assumptions. The scatter of a run around its group is that of published runs of its
// kind, corrected by what the fit leaves over. Runs of one plan count as one. Weights, gradients and
// optimizer are counted, not fitted. Throws InputError without runs, or under a calibrated stack.
Calibration calibrate(const std::vector<OwnRun>&, const CostModels&);

// "determined", "partly", "not determined": the standard deviation left is under half, under 0.9 of the
// prior's.
std::string determination(double before, double after);

std::string calibration_text(const Calibration&);
std::string calibration_json(const Calibration&, const std::vector<LeftOutRun>&);
// For --stack; `like` names the preset that was calibrated.
std::string calibrated_yaml(const Calibration&, const std::string& like);

}  // namespace orrery
