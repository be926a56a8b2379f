#include "strategies/list_schedule.hpp"

#include <algorithm>
#include <limits>
#include <queue>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// What a rank has started, by chunk, and in which order it owes weight gradients.
struct RankState {
  std::vector<int> forwards, backwards;
  std::vector<int> alive;                      // forward started, weight gradient not yet over
  std::vector<std::pair<int, int>> owed = {};  // (chunk, microbatch) of every backward so far
  std::size_t paid = 0;                        // of which the weight gradient has started
  double free = 0;                             // s
  bool was_backward = false;                   // the last task that was no weight gradient
  TaskOrder order = {};
};

class ListScheduler {
 public:
  ListScheduler(const Schedule& layout, const ScheduleTimes& times, const std::vector<AliveLimits>& limits,
                const ListPolicy& policy)
      : layout_(layout),
        times_(times),
        limits_(limits),
        policy_(policy),
        microbatches_(layout.shape.microbatches) {
    const auto chunks = at(layout.shape.chunks);
    const std::vector<int> none(chunks, 0);
    ranks_.assign(at(layout.shape.ranks), {.forwards = none, .backwards = none, .alive = none});
    for (auto* arrivals : {&inputs_, &gradients_})
      arrivals->assign(times.parts.size(), std::vector<double>(at(microbatches_), kUnknown));
    inputs_.front().assign(at(microbatches_), 0.0);
  }

  std::vector<TaskOrder> run() {
    for (int rank = 0; rank < layout_.shape.ranks; ++rank) wakes_.emplace(0.0, rank);
    while (!wakes_.empty()) {
      const auto [now, rank] = wakes_.top();
      wakes_.pop();
      if (now >= ranks_[at(rank)].free) decide(rank, now);
    }
    std::vector<TaskOrder> orders;
    for (RankState& rank : ranks_) {
      ORRERY_ENSURE(rank.order.size() == 3 * at(layout_.shape.chunks) * at(microbatches_));
      name_phases(rank.order);
      orders.push_back(std::move(rank.order));
    }
    return orders;
  }

 private:
  [[nodiscard]] double seconds(int rank, StepKind kind, int chunk) const {
    const TaskTimes& part = times_.parts[at(layout_.part(rank, chunk))];
    if (kind == StepKind::forward) return part.forward.value();
    return (kind == StepKind::backward ? part.backward : part.weight_gradient).value();
  }

  // When the next forward or backward of a chunk can start; unknown while what it needs has not been started.
  [[nodiscard]] double forward_at(int rank, int chunk) const {
    const int next = ranks_[at(rank)].forwards[at(chunk)];
    return next < microbatches_ ? inputs_[at(layout_.part(rank, chunk))][at(next)] : kUnknown;
  }
  [[nodiscard]] double backward_at(int rank, int chunk) const {
    const int next = ranks_[at(rank)].backwards[at(chunk)];
    return next < microbatches_ ? gradients_[at(layout_.part(rank, chunk))][at(next)] : kUnknown;
  }

  // The first chunk leaves the others room to pass the same microbatch on: else they wait for ever.
  [[nodiscard]] bool has_room(int rank, int chunk) const {
    const RankState& state = ranks_[at(rank)];
    const AliveLimits& limits = limits_[at(rank)];
    int total = 0;
    for (const int alive : state.alive) total += alive;
    return total < limits.total && (chunk > 0 || state.alive.front() < limits.first_chunk);
  }

  // Of the chunks whose next task of a kind is there: -1 without one.
  [[nodiscard]] int ready_forward(int rank, double now) const {
    int found = -1;
    for (int chunk = 0; chunk < layout_.shape.chunks; ++chunk) {
      if (forward_at(rank, chunk) > now || !has_room(rank, chunk)) continue;
      if (found < 0 || !policy_.newest_first) found = chunk;
    }
    return found;
  }
  [[nodiscard]] int ready_backward(int rank, double now) const {
    int found = -1;
    for (int chunk = 0; chunk < layout_.shape.chunks; ++chunk) {
      if (backward_at(rank, chunk) > now) continue;
      if (found < 0 || policy_.newest_first) found = chunk;
    }
    return found;
  }
  [[nodiscard]] bool forward_lacks_room(int rank, double now) const {
    for (int chunk = 0; chunk < layout_.shape.chunks; ++chunk) {
      if (forward_at(rank, chunk) <= now && !has_room(rank, chunk)) return true;
    }
    return false;
  }

  [[nodiscard]] double next_gradient(int rank) const {
    double next = kUnknown;
    for (int chunk = 0; chunk < layout_.shape.chunks; ++chunk)
      next = std::min(next, backward_at(rank, chunk));
    return next;
  }
  [[nodiscard]] double next_input(int rank) const {
    double next = kUnknown;
    for (int chunk = 0; chunk < layout_.shape.chunks; ++chunk) {
      if (has_room(rank, chunk)) next = std::min(next, forward_at(rank, chunk));
    }
    return next;
  }

  void decide(int rank, double now) {
    RankState& state = ranks_[at(rank)];
    const bool lacks_room = forward_lacks_room(rank, now);
    const int forward = ready_forward(rank, now);
    const int backward = ready_backward(rank, now);
    const auto owed = static_cast<int>(state.owed.size() - state.paid);
    if (policy_.most_owed > 0 && owed > policy_.most_owed) return pay(rank, now);
    const bool forward_turn = policy_.alternate && state.was_backward;
    if (backward >= 0 && forward_turn && forward < 0 && lacks_room && owed > 0) return pay(rank, now);
    if (backward >= 0 && !(forward_turn && forward >= 0))
      return start(rank, StepKind::backward, backward, now);
    if (forward >= 0) {
      const bool worth_waiting =
          next_gradient(rank) - now < policy_.patience * seconds(rank, StepKind::forward, forward);
      if (backward >= 0 || !worth_waiting) return start(rank, StepKind::forward, forward, now);
    }
    if (owed == 0) return;
    const double next = forward >= 0 ? next_gradient(rank) : std::min(next_gradient(rank), next_input(rank));
    const double work = seconds(rank, StepKind::weight_gradient, state.owed[state.paid].first);
    if ((forward < 0 && lacks_room) || next - now >= policy_.fill * work) pay(rank, now);
  }

  void pay(int rank, double now) {
    start(rank, StepKind::weight_gradient, ranks_[at(rank)].owed[ranks_[at(rank)].paid].first, now);
  }

  void start(int rank, StepKind kind, int chunk, double now) {
    RankState& state = ranks_[at(rank)];
    const double end = now + seconds(rank, kind, chunk);
    const int part = layout_.part(rank, chunk);
    int microbatch = 0;
    if (kind == StepKind::weight_gradient) {
      microbatch = state.owed[state.paid++].second;
      --state.alive[at(chunk)];  // nothing else starts on this rank before it is over
    } else {
      const bool forward = kind == StepKind::forward;
      microbatch = (forward ? state.forwards : state.backwards)[at(chunk)]++;
      state.was_backward = !forward;
      if (forward) ++state.alive[at(chunk)];
      if (!forward) state.owed.emplace_back(chunk, microbatch);
      hand_on(forward, part, microbatch, end);
    }
    state.order.push_back({kind, Phase::drain, chunk, microbatch});
    state.free = end;
    wakes_.emplace(end, rank);
  }

  // The activation goes to the next part, the gradient to the one before; the last part turns round.
  void hand_on(bool forward, int part, int microbatch, double end) {
    const int last = layout_.boundaries();
    const bool turns = forward && part == last;
    const int to = turns ? part : forward ? part + 1 : part - 1;
    if (to < 0) return;
    const int here = layout_.rank_of_part[at(part)];
    const int there = layout_.rank_of_part[at(to)];
    const double arrival = here == there ? end : end + times_.transfers[at(std::min(part, to))].value();
    (forward && !turns ? inputs_ : gradients_)[at(to)][at(microbatch)] = arrival;
    wakes_.emplace(arrival, there);
  }

  const Schedule& layout_;
  const ScheduleTimes& times_;
  const std::vector<AliveLimits>& limits_;
  const ListPolicy& policy_;
  int microbatches_;
  std::vector<RankState> ranks_;
  std::vector<std::vector<double>> inputs_, gradients_;  // [part][microbatch], s: when they arrive
  using Wake = std::pair<double, int>;                   // s, rank
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
};

}  // namespace

std::vector<TaskOrder> list_orders(const Schedule& layout, const ScheduleTimes& times,
                                   const std::vector<AliveLimits>& limits, const ListPolicy& policy) {
  return ListScheduler(layout, times, limits, policy).run();
}

}  // namespace orrery
