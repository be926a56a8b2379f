// Collectives over the stages' copies in a recurrence: who has come to each, which runs after which, and how
// long compute takes beside those that are on their way.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "costmodels/estimate/traffic.hpp"

namespace orrery {

constexpr double kUnknown = std::numeric_limits<double>::infinity();  // s, of what has not been played yet

// Phases that are played one after another.
struct PhaseProgress {
  const std::vector<FlowPhase>* all = nullptr;
  std::size_t next = 0;  // to be over
};

// A collective starts when all its members have come to it and each one's collective before it is over.
class LaunchedCollectives {
 public:
  explicit LaunchedCollectives(const TrafficFlows& flows)
      : flows_(flows),
        collectives_(static_cast<std::size_t>(flows.instances())),
        ranks_(static_cast<std::size_t>(flows.ranks())) {}

  [[nodiscard]] double start(int id) const { return of(id).start; }  // s, as far as it is known
  [[nodiscard]] double end(int id) const { return of(id).end; }      // s, or unknown
  PhaseProgress& phases(int id) { return of(id).phases; }
  // Until its end: then it is among the ranks that over() returns.
  void wake_after(int id, int rank);

  // The rank comes to it at `now`; whether it starts by that.
  bool enter(int rank, int id, double now);
  struct Followers {
    std::vector<int> ranks;  // that wait for its end
    std::vector<int> collectives;
  };
  Followers over(int id, double end);
  // `id` follows one that was over at `end`; whether it starts by that.
  bool follow(int id, double end);

  struct ComputeEnd {
    double at = 0;         // s
    bool is_known = true;  // else `at` holds if none of the rank's collectives starts or ends by then
  };
  // The end of `work` seconds of compute from `start`, not before what was asked of the rank earlier; beside
  // a collective it takes `factor` times as long. While it is not known, the end of a collective will wake
  // the rank.
  ComputeEnd compute(int rank, double start, double work, double factor);
  // Whether a collective of the rank may end after the start that was last asked about.
  [[nodiscard]] bool has_launched(int rank) const {
    const RankState& at = ranks_[static_cast<std::size_t>(rank)];
    return at.over < at.launched.size();
  }

 private:
  struct CollectiveState {
    bool entered = false;     // by any member
    std::size_t missing = 0;  // members that have not entered, and collectives that run before it
    double start = 0;
    double end = kUnknown;
    PhaseProgress phases;
    std::vector<int> then;     // collectives that run after it
    std::vector<int> waiting;  // ranks
  };
  struct RankState {
    std::vector<int> launched;  // in order: each runs after the one before it
    std::size_t over = 0;       // of these, that slow nothing down any more
    std::vector<int> awaited;   // collectives that will wake it
  };
  CollectiveState& of(int id) { return collectives_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const CollectiveState& of(int id) const { return collectives_[static_cast<std::size_t>(id)]; }

  const TrafficFlows& flows_;
  std::vector<CollectiveState> collectives_;  // [instance]
  std::vector<RankState> ranks_;              // [replica * P + stage]
};

}  // namespace orrery
