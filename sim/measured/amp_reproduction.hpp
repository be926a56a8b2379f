// AMP's printed predictions beside ours, and both beside its trials.
#pragma once

#include <string>

#include "analysis/statistics.hpp"
#include "sim/measured/amp_log.hpp"

namespace orrery {

struct AmpReproduction {
  int plans = 0;
  int same_print = 0;             // equal when ours is printed with as many digits
  double worst_difference_s = 0;  // from the printed value
  PredictedAndMeasured trials;    // of the plans that ran

  void add(const AmpTrial&, Seconds ours);
};

std::string to_text(const AmpReproduction&);
std::string to_json(const AmpReproduction&);

}  // namespace orrery
