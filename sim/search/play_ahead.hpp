// Candidates that a search is about to play, played on other threads meanwhile.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "sim/search/best_plans.hpp"
#include "sim/search/plan_player.hpp"

namespace orrery {

// The place in the enumeration: ways or mix, stage counts, order of the groups, setting.
using CandidatePlace = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t, std::uint32_t>;

// A candidate with its layers split in some way that fits and its overlaps chosen.
struct Split {
  ParallelStrategy plan;
  std::vector<StageMemory> memory;
  Seconds least;                            // of an iteration
  std::optional<EstimatedPlan> known = {};  // where it was played ahead
};

// Splits in the order in which they are played: by their bounds; of equal bounds, as those of mixes, the one
// with most overlaps first.
std::vector<std::size_t> soonest_first(const std::vector<Split>&);

class PlayAhead {
 public:
  // Everything given outlives this. So many threads, or as many as are of use and to be had; without any
  // nothing is played ahead.
  PlayAhead(const SearchJob&, const PriceBook&, int threads);
  ~PlayAhead();
  PlayAhead(const PlayAhead&) = delete;
  PlayAhead& operator=(const PlayAhead&) = delete;

  [[nodiscard]] bool is_on() const { return !threads_.empty(); }
  // Whether it takes more candidates to keep all threads busy.
  [[nodiscard]] bool may_begin() const;
  [[nodiscard]] bool has(const CandidatePlace& place) const { return begun_.count(place) > 0; }
  // Whichever of the splits take no longer than `most`, as FoundPlans would play them; what the candidate
  // takes at least is kept for drop_if.
  void begin(const CandidatePlace&, std::vector<Split>, Seconds most, const Least&);
  // The splits of a candidate that was begun, with what is known of them by then; waits where it is being
  // played. Absent: it was not begun.
  std::optional<std::vector<Split>> take(const CandidatePlace&);
  // Candidates that are dropped are not played, unless they are already.
  void drop_if(const std::function<bool(const Least&)>&);

 private:
  enum class State { waiting, playing, over };
  struct Candidate {
    std::vector<Split> splits;
    Seconds most;
    Least least;
    State state = State::waiting;
  };
  void work();

  const SearchJob& job_;
  const PriceBook& book_;
  std::map<CandidatePlace, std::shared_ptr<Candidate>> begun_;
  std::mutex mutex_;  // of all below, and the states of candidates
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Candidate>> waiting_;
  bool is_closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace orrery
