// Looks for what a search is likely to play next, so that other threads can play it meanwhile.
#pragma once

#include <set>

#include "sim/search/found_plans.hpp"
#include "sim/search/refiner.hpp"

namespace orrery {

// Counts nothing: a search finds and counts the same without it. Without threads to play it does nothing.
class LookAhead {
 public:
  LookAhead(Refiner&, StageFitter&, FoundPlans&);

  // What is still to be refined, or to be played.
  void see(const CoarseCandidate& coarse) {
    if (is_on_) unseen_.insert(coarse);
  }
  void see(const Refined& refined) {
    if (is_on_) soon_.insert(refined);
  }
  // Is no longer.
  void forget(const CoarseCandidate& coarse) { unseen_.erase(coarse); }
  void forget(const Refined& refined) { soon_.erase(refined); }
  void forget_all();

  // Begins the soonest, as many as keep the threads busy.
  void begin_next();

 private:
  void look_at(const CoarseCandidate&);

  bool is_on_;
  Refiner& refiner_;
  StageFitter& fitter_;
  FoundPlans& found_;
  std::set<CoarseCandidate, SoonerOf> unseen_;  // not looked at yet
  std::set<Refined, SoonerOf> soon_;            // not begun yet
};

}  // namespace orrery
