// What a search has found so far, and what may still be better.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

namespace orrery {

// The least that a plan can take: one iteration.
struct Least {
  double time = 0;   // s
  double money = 0;  // USD; 0 where a price is not known
};

// Plans of the fastest and of the front of (time, money) so far, by one iteration: the order is the same for
// the whole job.
class BestPlans {
 public:
  explicit BestPlans(int top) : top_(static_cast<std::size_t>(top)) {}

  // False only for a plan that can be neither among the fastest nor on the front.
  [[nodiscard]] bool may_matter(const Least& least) const {
    if (times_.size() < top_ || least.time <= times_.back()) return true;
    if (least.money <= 0) return false;
    // The last of those at least as fast is the cheapest of them.
    const auto slower = std::upper_bound(front_.begin(), front_.end(), least.time,
                                         [](double time, const Least& point) { return time < point.time; });
    return slower == front_.begin() || std::prev(slower)->money > least.money;
  }

  void add(const Least& plan) {
    times_.insert(std::upper_bound(times_.begin(), times_.end(), plan.time), plan.time);
    if (times_.size() > top_) times_.pop_back();
    const auto dominates = [&](const Least& point) {
      return point.time <= plan.time && point.money <= plan.money;
    };
    if (std::any_of(front_.begin(), front_.end(), dominates)) return;
    const auto dominated = [&](const Least& point) {
      return plan.time <= point.time && plan.money <= point.money;
    };
    front_.erase(std::remove_if(front_.begin(), front_.end(), dominated), front_.end());
    front_.insert(std::upper_bound(front_.begin(), front_.end(), plan,
                                   [](const Least& a, const Least& b) { return a.time < b.time; }),
                  plan);
  }

 private:
  std::size_t top_;
  std::vector<double> times_;  // the fastest, ascending
  std::vector<Least> front_;   // the faster the dearer
};

}  // namespace orrery
