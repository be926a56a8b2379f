// Phases of orders that were not made with them: those of a file, and those built for durations.
#include <algorithm>

#include "strategies/task_order.hpp"

namespace orrery {
namespace {

bool same_task(const Task& a, const Task& b) {
  return a.kind == b.kind && a.chunk == b.chunk && a.microbatch == b.microbatch && a.whole == b.whole;
}

// Microbatches of a group, where the order is interleaved: rank 0 begins with those of its first chunk.
int first_group(const TaskOrder& order) {
  const auto in_group = [](const Task& task) { return task.kind == StepKind::forward && task.chunk == 0; };
  return static_cast<int>(std::find_if_not(order.begin(), order.end(), in_group) - order.begin());
}

bool has_layout(const Schedule& schedule, const ScheduleShape& shape) {
  for (int rank = 0; rank < shape.ranks; ++rank) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      if (schedule.part(rank, chunk) != part_of(shape.kind, shape.ranks, rank, chunk)) return false;
    }
  }
  return true;
}

// The orders of a built-in schedule, where all are the given ones.
std::optional<std::vector<TaskOrder>> if_same(const ScheduleShape& shape,
                                              const std::vector<TaskOrder>& orders) {
  const ScheduleRow& row = schedule_row(shape.kind);
  std::vector<TaskOrder> known;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const TaskOrder& given = orders[static_cast<std::size_t>(rank)];
    known.push_back(row.order(shape, rank));
    if (!std::equal(given.begin(), given.end(), known.back().begin(), known.back().end(), same_task))
      return std::nullopt;
  }
  return known;
}

}  // namespace

void name_phases(TaskOrder& order) {
  const auto is_forward = [](const Task& task) { return task.kind == StepKind::forward; };
  const auto is_backward = [](const Task& task) { return task.kind == StepKind::backward; };
  const auto first_backward = std::find_if(order.begin(), order.end(), is_backward);
  const auto behind_forwards = std::find_if(order.rbegin(), order.rend(), is_forward).base();
  auto steady = first_backward, drain = first_backward;
  if (first_backward < behind_forwards) {
    steady = order.begin() + std::max<std::ptrdiff_t>(1, first_backward - order.begin() - 1);
    const auto of_last_pair = std::find_if(behind_forwards, order.end(), is_backward);
    drain =
        of_last_pair == order.end() ? of_last_pair : std::find_if(of_last_pair + 1, order.end(), is_backward);
  }
  for (auto task = order.begin(); task != order.end(); ++task)
    task->phase = task < steady ? Phase::warmup : task < drain ? Phase::steady : Phase::drain;
}

void name_phases(const Schedule& layout, std::vector<TaskOrder>& orders) {
  ScheduleShape shape = layout.shape;
  shape.microbatch_group = first_group(orders.front());
  for (const ScheduleRow& row : schedule_table()) {
    shape.kind = row.kind;
    if (schedule_obstacle(shape) || !has_layout(layout, shape)) continue;
    if (auto known = if_same(shape, orders)) {
      orders = *std::move(known);
      return;
    }
  }
  for (TaskOrder& order : orders) name_phases(order);
}

}  // namespace orrery
