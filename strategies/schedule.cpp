#include "strategies/schedule.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

// A compute step before messages are attached to it.
struct Task {
  StepKind kind;
  Phase phase;
  int chunk;
  int microbatch;
};

using TaskOrder = std::vector<Task>;

TaskOrder gpipe_order(int microbatches) {
  TaskOrder order;
  for (int i = 0; i < microbatches; ++i) order.push_back({StepKind::forward, Phase::warmup, 0, i});
  for (int i = 0; i < microbatches; ++i) order.push_back({StepKind::backward, Phase::drain, 0, i});
  return order;
}

// The common form of 1f1b and interleaved: `warmup` forwards, then pairs, then the remaining backwards.
template <class ForwardTask, class BackwardTask>
TaskOrder warmup_pairs_drain(int total, int warmup, ForwardTask forward, BackwardTask backward) {
  TaskOrder order;
  const auto add = [&order](StepKind kind, Phase phase, std::pair<int, int> chunk_and_microbatch) {
    order.push_back({kind, phase, chunk_and_microbatch.first, chunk_and_microbatch.second});
  };
  for (int i = 0; i < warmup; ++i) add(StepKind::forward, Phase::warmup, forward(i));
  for (int i = 0; i < total - warmup; ++i) {
    // Without warm-up forwards, what comes before the first forward is still warm-up.
    add(StepKind::forward, warmup + i == 0 ? Phase::warmup : Phase::steady, forward(warmup + i));
    add(StepKind::backward, Phase::steady, backward(i));
  }
  for (int i = total - warmup; i < total; ++i) add(StepKind::backward, Phase::drain, backward(i));
  return order;
}

TaskOrder one_f_one_b_order(int ranks, int microbatches, int rank) {
  const int warmup = std::min(ranks - rank - 1, microbatches);
  const auto task = [](int i) { return std::pair(0, i); };
  return warmup_pairs_drain(microbatches, warmup, task, task);
}

// (chunk, microbatch) of every virtual microbatch: groups of `group` microbatches, in a group chunk after chunk.
std::vector<std::pair<int, int>> interleaved_table(int microbatches, int chunks, int group) {
  std::vector<std::pair<int, int>> table;
  for (int first = 0; first < microbatches; first += group) {
    const int last = std::min(first + group, microbatches);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int i = first; i < last; ++i) table.emplace_back(chunk, i);
    }
  }
  return table;
}

TaskOrder interleaved_order(const ScheduleShape& shape, int rank) {
  const int group = shape.ranks;
  const auto table = interleaved_table(shape.microbatches, shape.chunks, group);
  const int total = static_cast<int>(table.size());
  const int warmup = std::min(total, 2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * group);
  const auto forward = [&table](int k) { return table[static_cast<std::size_t>(k)]; };
  const auto backward = [&](int k) {
    const auto [chunk, microbatch] = table[static_cast<std::size_t>(k)];
    return std::pair(shape.chunks - 1 - chunk, microbatch);
  };
  return warmup_pairs_drain(total, warmup, forward, backward);
}

TaskOrder task_order(const ScheduleShape& shape, int rank) {
  switch (shape.kind) {
    case ScheduleKind::gpipe: return gpipe_order(shape.microbatches);
    case ScheduleKind::one_f_one_b: return one_f_one_b_order(shape.ranks, shape.microbatches, rank);
    case ScheduleKind::interleaved: return interleaved_order(shape, rank);
  }
  return {};
}

// The message a task needs, and the one it makes; absent at the ends of the model.
std::optional<MessageId> input_of(const Schedule& schedule, const Task& task, int rank) {
  const int part = task.chunk * schedule.ranks + rank;
  if (task.kind == StepKind::forward) {
    if (part == 0) return std::nullopt;
    return schedule.message_id(false, part - 1, task.microbatch);
  }
  if (part == schedule.boundaries()) return std::nullopt;
  return schedule.message_id(true, part, task.microbatch);
}

std::optional<MessageId> output_of(const Schedule& schedule, const Task& task, int rank) {
  const int part = task.chunk * schedule.ranks + rank;
  if (task.kind == StepKind::forward) {
    if (part == schedule.boundaries()) return std::nullopt;
    return schedule.message_id(false, part, task.microbatch);
  }
  if (part == 0) return std::nullopt;
  return schedule.message_id(true, part - 1, task.microbatch);
}

Step compute_step(const Task& task) {
  Step step;
  step.kind = task.kind;
  step.phase = task.phase;
  step.chunk = static_cast<std::int16_t>(task.chunk);
  step.microbatch = task.microbatch;
  return step;
}

// Messages ride on the compute steps. Overlapped: the send of step j is waited for before step j + 2 starts.
std::vector<Step> asynchronous_program(const Schedule& schedule, const TaskOrder& order, int rank) {
  std::vector<Step> program;
  program.reserve(order.size());
  for (const Task& task : order) {
    Step step = compute_step(task);
    if (const auto input = input_of(schedule, task, rank)) step.awaits.push(*input);
    if (const auto output = output_of(schedule, task, rank)) step.sends.push(*output);
    if (schedule.transfers == TransferMode::overlapped && program.size() >= 2) {
      for (const MessageId sent : program[program.size() - 2].sends) step.awaits.push(sent);
    }
    program.push_back(step);
  }
  return program;
}

// Megatron-LM joins a send and a receive with the same neighbour into one call: the output of a steady forward with
// the gradient that its backward needs, and the gradient of a steady backward with the next steady forward's input.
bool joins_next(const Task& task, const Task& next) {
  const bool steady_pair = task.phase != Phase::drain && next.phase == Phase::steady;
  if (task.kind == StepKind::forward) return steady_pair && next.kind == StepKind::backward;
  return steady_pair && next.kind == StepKind::forward;
}

std::vector<Step> blocking_program(const Schedule& schedule, const TaskOrder& order, int rank) {
  std::vector<Step> program;
  const auto exchange = [&program](std::optional<MessageId> send, std::optional<MessageId> receive, Phase phase) {
    if (!send && !receive) return;
    Step step;
    step.kind = StepKind::exchange;
    step.phase = phase;
    if (send) step.sends.push(*send);
    if (receive) step.awaits.push(*receive);
    program.push_back(step);
  };
  bool received = false;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Task& task = order[i];
    if (!received) exchange(std::nullopt, input_of(schedule, task, rank), task.phase);
    program.push_back(compute_step(task));
    const auto output = output_of(schedule, task, rank);
    received = i + 1 < order.size() && joins_next(task, order[i + 1]);
    if (received) {
      exchange(output, input_of(schedule, order[i + 1], rank), order[i + 1].phase);
    } else {
      exchange(output, std::nullopt, task.phase);
    }
  }
  return program;
}

}  // namespace

Message Schedule::message(MessageId id) const {
  Message message;
  message.microbatch = id % microbatches;
  const int row = id / microbatches;
  message.gradient = row >= boundaries();
  message.boundary = message.gradient ? row - boundaries() : row;
  message.from_rank = message.boundary % ranks;
  message.to_rank = (message.boundary + 1) % ranks;
  if (message.gradient) std::swap(message.from_rank, message.to_rank);
  return message;
}

std::optional<std::string> schedule_obstacle(const ScheduleShape& shape) {
  if (shape.ranks < 1 || shape.microbatches < 1 || shape.chunks < 1) {
    return "stages, microbatches and chunks must be 1 or more";
  }
  const std::int64_t boundaries = std::int64_t{shape.ranks} * shape.chunks - 1;
  if (boundaries * shape.microbatches > std::numeric_limits<MessageId>::max() / 2) {
    return "stages times microbatches is more than the messages of a schedule can count";
  }
  if (shape.kind != ScheduleKind::interleaved) {
    if (shape.chunks > 1) return std::string(to_text(shape.kind)) + " has one chunk a rank, not " + std::to_string(shape.chunks);
    return std::nullopt;
  }
  if (shape.transfers == TransferMode::blocking) return "interleaved is played with eager or overlapped transfers";
  if (shape.chunks < 2) return "interleaved needs 2 chunks a rank or more";
  if (shape.ranks < 2) return "interleaved needs 2 pipeline stages or more";
  if (shape.microbatches % shape.ranks != 0) {
    return "interleaved needs a number of microbatches (" + std::to_string(shape.microbatches) +
           ") that the number of stages (" + std::to_string(shape.ranks) + ") divides";
  }
  return std::nullopt;
}

Schedule make_schedule(const ScheduleShape& shape) {
  if (const auto obstacle = schedule_obstacle(shape)) {
    throw InputError("schedule", std::string(to_text(shape.kind)), *obstacle);
  }
  Schedule schedule;
  schedule.ranks = shape.ranks;
  schedule.chunks = shape.chunks;
  schedule.microbatches = shape.microbatches;
  schedule.transfers = shape.transfers;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const TaskOrder order = task_order(shape, rank);
    schedule.programs.push_back(shape.transfers == TransferMode::blocking
                                    ? blocking_program(schedule, order, rank)
                                    : asynchronous_program(schedule, order, rank));
  }
  return schedule;
}

InFlight in_flight(const Schedule& schedule, int rank) {
  InFlight peak;
  std::vector<int> alive(static_cast<std::size_t>(schedule.chunks), 0);
  for (const Step& step : schedule.programs[static_cast<std::size_t>(rank)]) {
    int& count = alive[static_cast<std::size_t>(step.chunk)];
    if (step.kind == StepKind::forward) ++count;
    const int total = std::accumulate(alive.begin(), alive.end(), 0);
    if (total > peak.total) peak = {alive, total};
    if (step.kind == StepKind::backward) --count;
  }
  return peak;
}

}  // namespace orrery
