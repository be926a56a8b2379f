#include "strategies/schedule.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "platforms/errors.hpp"
#include "strategies/task_order.hpp"

namespace orrery {
namespace {

std::optional<Misfit> no_misfit(const ScheduleShape&) {
  return std::nullopt;
}

// Part p's neighbours on the same rank need no message: the order of the rank's program is enough.
bool crosses(const Schedule& schedule, int boundary) {
  const auto at = static_cast<std::size_t>(boundary);
  return schedule.rank_of_part[at] != schedule.rank_of_part[at + 1];
}

std::optional<MessageId> message_over(const Schedule& schedule, bool gradient, int boundary, int microbatch) {
  if (boundary < 0 || boundary >= schedule.boundaries() || !crosses(schedule, boundary)) return std::nullopt;
  return schedule.message_id(gradient, boundary, microbatch);
}

// The message a task needs, and the one it makes; absent at the ends of the model.
std::optional<MessageId> input_of(const Schedule& schedule, const Task& task, int rank) {
  const int part = schedule.part(rank, task.chunk);
  if (task.kind == StepKind::weight_gradient) return std::nullopt;
  const bool gradient = task.kind == StepKind::backward;
  return message_over(schedule, gradient, gradient ? part : part - 1, task.microbatch);
}

std::optional<MessageId> output_of(const Schedule& schedule, const Task& task, int rank) {
  const int part = schedule.part(rank, task.chunk);
  const bool gradient = task.kind != StepKind::forward;
  const bool leaves = !gradient || task.whole == (task.kind == StepKind::weight_gradient);
  if (!leaves) return std::nullopt;
  return message_over(schedule, gradient, gradient ? part - 1 : part, task.microbatch);
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
    if (schedule.shape.transfers == TransferMode::overlapped && program.size() >= 2) {
      for (const MessageId sent : program[program.size() - 2].sends) step.awaits.push(sent);
    }
    program.push_back(step);
  }
  return program;
}

// Megatron-LM joins a send and a receive with the same neighbour into one call: the output of a steady
// forward with the gradient that its backward needs, and the gradient of a steady backward with the next
// steady forward's input.
bool joins_next(const Task& task, const Task& next) {
  const bool steady_pair = task.phase != Phase::drain && next.phase == Phase::steady;
  if (task.kind == StepKind::forward) return steady_pair && next.kind == StepKind::backward;
  return steady_pair && next.kind == StepKind::forward;
}

std::vector<Step> blocking_program(const Schedule& schedule, const TaskOrder& order, int rank) {
  std::vector<Step> program;
  const auto exchange = [&program](std::optional<MessageId> send, std::optional<MessageId> receive,
                                   Phase phase) {
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

// One turn of the interleaved schedule: a forward, a backward, or both.
struct Turn {
  const Task* forward = nullptr;
  const Task* backward = nullptr;
};

std::vector<Turn> turns_of(const TaskOrder& order) {
  std::vector<Turn> turns;
  for (const Task& task : order) {
    const bool joins = task.kind == StepKind::backward && task.phase == Phase::steady;
    if (!joins) turns.emplace_back();
    (task.kind == StepKind::forward ? turns.back().forward : turns.back().backward) = &task;
  }
  return turns;
}

// Interleaved without --overlap-p2p-communication: one call after every turn sends what it made, up and down,
// and receives what the next turn needs. A rank that goes from its warm-up to its drain receives its first
// gradient by a call of its own (all_warmup_microbatches).
std::vector<Step> turn_program(const Schedule& schedule, const TaskOrder& order, int rank) {
  const std::vector<Turn> turns = turns_of(order);
  std::vector<Step> program;
  Step call;
  const auto receive = [&](const Task* task) {
    if (task == nullptr) return;
    if (const auto input = input_of(schedule, *task, rank)) call.awaits.push(*input);
  };
  const auto make_call = [&](const Turn& beside) {
    call.kind = StepKind::exchange;
    call.phase = (beside.forward != nullptr ? beside.forward : beside.backward)->phase;
    if (call.awaits.count + call.sends.count > 0) program.push_back(call);
    call = {};
  };
  receive(turns.front().forward);
  make_call(turns.front());
  for (std::size_t i = 0; i < turns.size(); ++i) {
    for (const Task* task : {turns[i].forward, turns[i].backward}) {
      if (task == nullptr) continue;
      program.push_back(compute_step(*task));
      if (const auto output = output_of(schedule, *task, rank)) call.sends.push(*output);
    }
    if (i + 1 == turns.size()) {
      make_call(turns[i]);
      continue;
    }
    const Turn& next = turns[i + 1];
    if (turns[i].backward == nullptr && next.forward == nullptr) make_call(turns[i]);
    receive(next.forward);
    receive(next.backward);
    make_call(next);
  }
  return program;
}

void lay_out_parts(Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  const auto parts = static_cast<std::size_t>(shape.ranks * shape.chunks);
  schedule.rank_of_part.resize(parts);
  schedule.chunk_of_part.resize(parts);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    schedule.part_at.emplace_back();
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      const int part = part_of(shape.kind, shape.ranks, rank, chunk);
      schedule.rank_of_part[static_cast<std::size_t>(part)] = rank;
      schedule.chunk_of_part[static_cast<std::size_t>(part)] = chunk;
      schedule.part_at.back().push_back(part);
    }
  }
}

// Of a task that is cut into pieces (Step::pieces): whether a step is its first, and its last.
class PieceCounter {
 public:
  struct Place {
    bool begins, ends;
  };
  Place next(const Step& step) {
    const bool begins = done_ == 0;
    done_ = (done_ + 1) % step.pieces;
    return {begins, done_ == 0};
  }

 private:
  int done_ = 0;
};

}  // namespace

const std::vector<ScheduleRow>& schedule_table() {
  static const std::vector<ScheduleRow> table{
      {ScheduleKind::gpipe, "all forwards, then all backwards", false, 1, BlockingCalls::usual, gpipe_order,
       no_misfit},
      {ScheduleKind::one_f_one_b, "one forward, one backward after a warm-up (Megatron-LM's default)", false,
       1, BlockingCalls::usual, one_f_one_b_order, no_misfit},
      {ScheduleKind::interleaved, "1f1b over several model parts a rank (Megatron-LM's virtual stages)",
       false, 0, BlockingCalls::possible, interleaved_order, interleaved_misfit},
      {ScheduleKind::zb_h1, "1f1b with the backward split, memory of 1f1b (arXiv 2401.10241)", true, 1,
       BlockingCalls::none, zb_h1_order, no_misfit, zb_h1_limits},
      {ScheduleKind::zb_h2, "as zb-h1, no bubble for twice the activations (arXiv 2401.10241)", true, 1,
       BlockingCalls::none, zb_h2_order, no_misfit, zb_h2_limits},
      {ScheduleKind::zb_v, "two parts a rank in a V, no bubble, memory of 1f1b (arXiv 2405.15362)", true, 2,
       BlockingCalls::none, zb_v_order, no_misfit, zb_v_limits},
  };
  return table;
}

const ScheduleRow& schedule_row(ScheduleKind kind) {
  const auto& table = schedule_table();
  const auto found =
      std::find_if(table.begin(), table.end(), [kind](const ScheduleRow& row) { return row.kind == kind; });
  ORRERY_ENSURE(found != table.end());
  return *found;
}

TransferMode default_transfers(ScheduleKind kind) {
  const bool blocking =
      kind != ScheduleKind::from_file && schedule_row(kind).blocking == BlockingCalls::usual;
  return blocking ? TransferMode::blocking : TransferMode::overlapped;
}

bool splits_backward(ScheduleKind kind) {
  return kind != ScheduleKind::from_file && schedule_row(kind).split_backward;
}

bool validates_later(ScheduleKind kind) {
  return kind == ScheduleKind::zb_h2 || kind == ScheduleKind::zb_v;
}

Message Schedule::message(MessageId id) const {
  Message message;
  message.microbatch = id % all_microbatches();
  const int row = id / all_microbatches();
  message.gradient = row >= boundaries();
  message.boundary = message.gradient ? row - boundaries() : row;
  const auto at = static_cast<std::size_t>(message.boundary);
  message.from_rank = rank_of_part[at];
  message.to_rank = rank_of_part[at + 1];
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
  if (shape.kind == ScheduleKind::from_file) return "a schedule from a file comes with its own orders";
  const ScheduleRow& row = schedule_row(shape.kind);
  const std::string name(to_text(shape.kind));
  if (row.chunks > 0 && shape.chunks != row.chunks) {
    return name + " has " + std::to_string(row.chunks) + " chunk(s) a rank, not " +
           std::to_string(shape.chunks);
  }
  if (row.chunks == 0 && shape.chunks < 2) return name + " needs 2 chunks a rank or more";
  if (shape.transfers == TransferMode::blocking && row.blocking == BlockingCalls::none) {
    return name + " is played with eager or overlapped transfers";
  }
  const auto misfit = row.misfit(shape);
  return misfit ? std::optional(to_text(*misfit)) : std::nullopt;
}

Schedule make_schedule(const ScheduleShape& shape) {
  if (const auto obstacle = schedule_obstacle(shape)) {
    throw InputError("schedule", std::string(to_text(shape.kind)), *obstacle);
  }
  const ScheduleRow& row = schedule_row(shape.kind);
  Schedule schedule;
  schedule.shape = shape;
  schedule.split_backward = row.split_backward;
  lay_out_parts(schedule);
  std::vector<TaskOrder> orders;
  for (int rank = 0; rank < shape.ranks; ++rank) orders.push_back(row.order(shape, rank));
  return with_programs(std::move(schedule), orders);
}

Schedule with_programs(Schedule layout, const std::vector<TaskOrder>& orders) {
  const bool blocking = layout.shape.transfers == TransferMode::blocking;
  for (std::size_t rank = 0; rank < orders.size(); ++rank) {
    const int number = static_cast<int>(rank);
    const auto program = !blocking                                        ? asynchronous_program
                         : layout.shape.kind == ScheduleKind::interleaved ? turn_program
                                                                          : blocking_program;
    layout.programs.push_back(program(layout, orders[rank], number));
  }
  return layout;
}

InFlight in_flight(const Schedule& schedule, int rank) {
  InFlight peak;
  std::vector<int> alive(static_cast<std::size_t>(schedule.shape.chunks), 0);
  const StepKind last = schedule.split_backward ? StepKind::weight_gradient : StepKind::backward;
  PieceCounter pieces;
  for (const Step& step : schedule.programs[static_cast<std::size_t>(rank)]) {
    if (!is_compute(step.kind)) continue;
    const auto [begins, ends] = pieces.next(step);
    int& count = alive[static_cast<std::size_t>(step.chunk)];
    if (step.kind == StepKind::forward && begins) ++count;
    const int total = std::accumulate(alive.begin(), alive.end(), 0);
    if (total > peak.total) peak = {alive, total};
    if (step.kind == last && ends) --count;
  }
  return peak;
}

std::vector<AliveState> alive_states(const Schedule& schedule, int rank) {
  std::vector<AliveState> greatest;
  const auto chunks = static_cast<std::size_t>(schedule.shape.chunks);
  AliveState now{std::vector(chunks, 0), std::vector(chunks, 0)};
  PieceCounter pieces;
  for (const Step& step : schedule.programs[static_cast<std::size_t>(rank)]) {
    if (!is_compute(step.kind)) continue;
    const auto [begins, ends] = pieces.next(step);
    const auto chunk = static_cast<std::size_t>(step.chunk);
    if (step.kind == StepKind::forward) {
      if (begins) ++now.whole[chunk];
      continue;  // no less is alive in the step that follows
    }
    const auto exceeds = [](const AliveState& a, const AliveState& b) {
      const auto at_least = std::greater_equal<>();
      return std::equal(a.whole.begin(), a.whole.end(), b.whole.begin(), at_least) &&
             std::equal(a.for_weights.begin(), a.for_weights.end(), b.for_weights.begin(), at_least);
    };
    const bool known = std::any_of(greatest.begin(), greatest.end(),
                                   [&](const AliveState& other) { return exceeds(other, now); });
    if (!known) {
      greatest.erase(std::remove_if(greatest.begin(), greatest.end(),
                                    [&](const AliveState& other) { return exceeds(now, other); }),
                     greatest.end());
      greatest.push_back(now);
    }
    if (!ends) continue;
    if (step.kind == StepKind::weight_gradient) --now.for_weights[chunk];
    if (step.kind == StepKind::backward) --now.whole[chunk];
    if (step.kind == StepKind::backward && schedule.split_backward) ++now.for_weights[chunk];
  }
  return greatest;
}

}  // namespace orrery
