// What nodes that are taken away or fail do to a run: work since the last checkpoint is done again.
#pragma once

#include <optional>
#include <vector>

#include "platforms/cluster.hpp"
#include "platforms/units.hpp"

namespace orrery {

struct Interruptions {
  std::optional<Seconds> every;  // mean time between two of the whole run; absent: there are none
  Seconds interval;              // of work between checkpoints
  double stretch = 1.0;  // expected time of the run over its time without interruptions and checkpoints
};

// Nodes of a group are lost independently, each once in NodeGroup::interrupted_every on average (a Poisson
// process), and any loss stops the whole run. J. T. Daly, "A higher order estimate of the optimum checkpoint
// interval for restart dumps", FGCS 22 (2006): with M the time between losses, d to write a checkpoint, R to
// restart and t of work between checkpoints the stretch is M e^(R/M) (e^((t + d) / M) - 1) / t (equation 20),
// and the best t about sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + d / 18M) - d, or M where d >= 2 M (equation 37),
// which begins with Young's sqrt(2 d M). `nodes`: those of each group that hold a rank; the others are lost
// unnoticed.
Interruptions interruptions(const ClusterSpec&, const std::vector<int>& nodes);

}  // namespace orrery
