// Where the time of every rank went (SEMANTICS 5).
#pragma once

#include <vector>

#include "platforms/units.hpp"
#include "traces/timeline.hpp"

namespace orrery {

// total() equals the makespan to 1e-9 relative on every run; account() checks it.
struct Accounting {
  Seconds compute;  // forward, backward and weight gradient without exposed_tp
  Seconds exposed_tp;
  Seconds exposed_p2p;
  Seconds exposed_dp;
  Seconds optimizer;
  Seconds bubble_warmup;
  Seconds bubble_steady;
  Seconds bubble_drain;

  [[nodiscard]] Seconds bubble() const { return bubble_warmup + bubble_steady + bubble_drain; }
  [[nodiscard]] Seconds total() const {
    return compute + exposed_tp + exposed_p2p + exposed_dp + optimizer + bubble();
  }
  bool operator==(const Accounting&) const = default;
};

struct StageAccounting {
  int stage = 0;
  Accounting mean;     // over the ranks of the stage
  Accounting maximum;  // of each column over the ranks of the stage
  bool operator==(const StageAccounting&) const = default;
};

struct RunAccounting {
  Seconds makespan;  // of what is accounted for
  std::vector<Accounting> ranks;
  std::vector<StageAccounting> stages;
  double bubble_fraction = 0;  // sum of bubbles over ranks / (ranks x makespan)
  bool operator==(const RunAccounting&) const = default;
};

// Sums the compute stream of every rank; `stages` holds the stages that have ranks, in order. Throws Defect
// naming the rank and the difference when its spans leave a gap, overlap or do not add up to the makespan
// (1e-9 of the makespan).
RunAccounting account(const Timeline&);
// The same of one iteration in the steady state: the mean of those after the first; of the whole timeline
// where there is one. A rank is looked at from the end of the first iteration on, or from where it begins the
// second (`second_starts[rank]`) if it does so while others are busy with the first, and as long as from that
// end to the end of the last. Columns then add up to steady_iteration.
RunAccounting account_steady(const Timeline&, const std::vector<double>& iteration_ends,
                             std::vector<double> second_starts);

}  // namespace orrery
