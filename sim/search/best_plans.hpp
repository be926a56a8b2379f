// What a search has found so far, and what may still be better.
#pragma once

#include <algorithm>
#include <limits>
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
  // `most`: what an iteration may take and cost.
  explicit BestPlans(int top, const Least& most = {kAny, kAny})
      : top_(static_cast<std::size_t>(top)), most_(most) {}

  // False only for a plan that is beyond the limits, or can be neither among the fastest nor on the front.
  [[nodiscard]] bool may_matter(const Least& least) const {
    if (least.time > most_.time || least.money > most_.money) return false;
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
  static constexpr double kAny = std::numeric_limits<double>::infinity();

  std::size_t top_;
  Least most_;
  std::vector<double> times_;  // the fastest, ascending
  std::vector<Least> front_;   // the faster the dearer
};

}  // namespace orrery
