// What a few runs of one's own say of a machine.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "sim/measured_run.hpp"
#include "sim/plan_band.hpp"

namespace orrery {

// A run and its plan, priced under the stack that is to be calibrated.
struct OwnRun {
  std::string name;
  PriceBook book;
  ParallelStrategy strategy;
  double measured = 0;  // s of an iteration
};

struct Calibration {
  SoftwareStack stack;               // with `calibrated`
  MachineFactors factors{};          // on the stack that was given
  MachineFactors before{}, after{};  // standard deviations of their logarithms
  std::vector<std::string> names;
  std::vector<double> measured, predicted_before, predicted_after;  // s
};

// The factors most likely by the runs and the priors: normal in logarithms, Gauss-Newton steps on the
// estimate. The prior of the compute level is the bias that groups of the runs' kind have; those of host and
// network are assumptions. The scatter of a run around its group is that of published runs of its kind,
// corrected by what the fit leaves over. Throws InputError without runs, or under a calibrated stack.
Calibration calibrate(const std::vector<OwnRun>&, const CostModels&);

// "determined", "partly", "not determined": the standard deviation left is under half, under 0.9 of the
// prior's.
std::string determination(double before, double after);

std::string calibration_text(const Calibration&);
std::string calibration_json(const Calibration&);
// For --stack; `like` names the preset that was calibrated.
std::string calibrated_yaml(const Calibration&, const std::string& like);

}  // namespace orrery
