// The logs of trials that AMP published (github.com/DachengLi1/AMP, src/results), priced again from its layer
// times.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodels/estimators/amp.hpp"
#include "platforms/topology.hpp"
#include "traces/layer_profile.hpp"

namespace orrery {

// One line "rank 0: ((1, {'mp_deg': ...".
struct AmpTrial {
  int micro_batch = 1, tensor = 1, data = 1, pipeline = 1;
  std::vector<int> cuts;           // pseudo-layers: stage i holds cuts[i] .. cuts[i + 1] - 1
  double predicted = 0;            // s, as printed: four digits behind the point
  std::optional<double> measured;  // s; absent where the trial was not run or failed
};

struct AmpLog {
  std::string path, model;  // "gpt2" or "transgan"
  double hidden = 0, sequence = 0, vocabulary = 0;
  double bottom = 0;  // width of TransGAN's first resolution
  int global_batch = 0;
  std::vector<AmpTrial> trials;
};

// Throws InputError naming what is missing.
AmpLog read_amp_log(const std::string& path);
AmpLog parse_amp_log(const std::string& text, const std::string& path);

// The trial in terms of the cost model: pseudo-layers' times, averaged over the GPU kinds of the cluster as
// AMP does; activations and gradients of four bytes a value; GPUs in the order tensor, data, pipeline. Throws
// InputError where the rows or the number of GPUs do not fit the log.
AmpPlan amp_plan(const AmpLog&, const AmpTrial&, const std::vector<AmpRows>&, const Topology&);

}  // namespace orrery
