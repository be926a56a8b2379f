// Zero-bubble schedules for durations that differ: the best of the handcrafted order and of several made by
// playing the pipeline. arXiv 2401.10241, section 3.1, searches over such choices too.
#include <algorithm>
#include <limits>

#include "platforms/errors.hpp"
#include "strategies/list_schedule.hpp"
#include "strategies/schedule.hpp"

namespace orrery {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
// A new order must be better by more than rounding.
constexpr double kRounding = 1e-9;
// Beyond so many tasks, minutes of trying, the handcrafted order stands.
constexpr std::int64_t kMostTasks = 4'000'000;

// Plays programs without exchanges, each flow alone: when each rank begins and ends.
class Recurrence {
 public:
  Recurrence(const Schedule& schedule, const ScheduleTimes& times)
      : schedule_(schedule),
        times_(times),
        next_(schedule.programs.size(), 0),
        first_(schedule.programs.size(), kUnknown),
        now_(schedule.programs.size(), 0.0),
        arrival_(static_cast<std::size_t>(schedule.message_count()), kUnknown) {}

  double run(ScheduleGoal goal) {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) ready_.push_back(rank);
    while (!ready_.empty()) {
      const std::size_t rank = ready_.back();
      ready_.pop_back();
      advance(rank);
    }
    double longest = 0;
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      ORRERY_ENSURE(next_[rank] == schedule_.programs[rank].size());
      longest = std::max(longest, goal == ScheduleGoal::makespan ? now_[rank] : now_[rank] - first_[rank]);
    }
    return longest;
  }

 private:
  void advance(std::size_t rank) {
    for (; next_[rank] < schedule_.programs[rank].size(); ++next_[rank]) {
      const Step& step = schedule_.programs[rank][next_[rank]];
      double start = now_[rank];
      for (const MessageId id : step.awaits) start = std::max(start, arrival_[static_cast<std::size_t>(id)]);
      if (start == kUnknown) return;
      first_[rank] = std::min(first_[rank], start);
      now_[rank] = start + seconds(rank, step);
      for (const MessageId id : step.sends) {
        const Message message = schedule_.message(id);
        arrival_[static_cast<std::size_t>(id)] =
            now_[rank] + times_.transfers[static_cast<std::size_t>(message.boundary)].value();
        ready_.push_back(static_cast<std::size_t>(message.to_rank));
      }
    }
  }

  [[nodiscard]] double seconds(std::size_t rank, const Step& step) const {
    const auto part = static_cast<std::size_t>(schedule_.part(static_cast<int>(rank), step.chunk));
    const TaskTimes& times = times_.parts[part];
    if (step.kind == StepKind::forward) return times.forward.value();
    return (step.kind == StepKind::backward ? times.backward : times.weight_gradient).value();
  }

  const Schedule& schedule_;
  const ScheduleTimes& times_;
  std::vector<std::size_t> next_;    // step of each rank
  std::vector<double> first_, now_;  // of each rank, s
  std::vector<double> arrival_;      // of each message, s
  std::vector<std::size_t> ready_;   // ranks that may go on
};

std::vector<ListPolicy> policies(int chunks) {
  std::vector<ListPolicy> all;
  for (const bool alternate : {true, false}) {
    for (const bool newest_first : {false, true}) {
      if (newest_first && chunks == 1) continue;
      for (const double fill : {0.0, 0.5, 1.0}) {
        for (const int most_owed : {0, 1}) {
          for (const double patience : {0.0, 0.5})
            all.push_back({alternate, newest_first, fill, most_owed, patience});
        }
      }
    }
  }
  return all;
}

}  // namespace

Schedule make_schedule(const ScheduleShape& shape, const ScheduleTimes& times) {
  Schedule best = make_schedule(shape);
  if (!best.split_backward) return best;
  ORRERY_ENSURE(times.parts.size() == best.rank_of_part.size());
  ORRERY_ENSURE(times.transfers.size() + 1 == times.parts.size());
  const std::int64_t tasks = std::int64_t{3} * shape.ranks * shape.chunks * shape.microbatches;
  if (shape.ranks == 1 || tasks > kMostTasks) return best;
  const ScheduleRow& row = schedule_row(shape.kind);
  std::vector<AliveLimits> limits;
  for (int rank = 0; rank < shape.ranks; ++rank) limits.push_back(row.limits(shape, rank));
  Schedule layout = best;
  layout.programs.clear();
  double best_time = Recurrence(best, times).run(times.goal);
  for (const ListPolicy& policy : policies(shape.chunks)) {
    Schedule other = with_programs(layout, list_orders(layout, times, limits, policy));
    const double time = Recurrence(other, times).run(times.goal);
    if (time >= best_time * (1 - kRounding)) continue;
    best_time = time;
    best = std::move(other);
  }
  return best;
}

}  // namespace orrery
