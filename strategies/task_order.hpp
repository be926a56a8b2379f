// The order in which each pipeline rank computes, before messages are attached: one function a schedule.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "strategies/misfits.hpp"
#include "strategies/schedule.hpp"

namespace orrery {

struct Task {
  StepKind kind = StepKind::forward;  // forward, backward or weight_gradient
  Phase phase = Phase::warmup;
  int chunk = 0;
  int microbatch = 0;
  // Of a backward and the weight gradient right after it: they are one operation of a schedule that splits
  // others (cell B of a file that has cells I and W), so that the gradient leaves when both are over.
  bool whole = false;
  bool operator==(const Task&) const = default;
};
using TaskOrder = std::vector<Task>;

// How many chunks a rank may keep alive, from the start of their forward to the end of their weight gradient.
struct AliveLimits {
  int total = 0;
  int first_chunk = 0;  // of which of the first chunk; below `total` where there are others
};

// Whether Megatron-LM has joined blocking calls for a schedule, and makes them unless told otherwise.
enum class BlockingCalls { none, possible, usual };

// One row a schedule; all else about a schedule follows from it.
struct ScheduleRow {
  ScheduleKind kind;
  std::string_view what;  // for people
  bool split_backward;    // the backward for the weights is a task of its own
  int chunks;             // of a rank; 0: two or more, as the shape says
  BlockingCalls blocking;
  TaskOrder (*order)(const ScheduleShape&, int rank);
  std::optional<Misfit> (*misfit)(const ScheduleShape&);  // what else a shape must fulfil
  // Of a schedule that is built for given durations; null: the order is the same for all.
  AliveLimits (*limits)(const ScheduleShape&, int rank) = nullptr;
};
const std::vector<ScheduleRow>& schedule_table();
const ScheduleRow& schedule_row(ScheduleKind);  // every kind but from_file

// Orders, each in a file of its own.
TaskOrder gpipe_order(const ScheduleShape&, int rank);
TaskOrder one_f_one_b_order(const ScheduleShape&, int rank);
TaskOrder interleaved_order(const ScheduleShape&, int rank);
std::optional<Misfit> interleaved_misfit(const ScheduleShape&);
TaskOrder zb_h1_order(const ScheduleShape&, int rank);
TaskOrder zb_h2_order(const ScheduleShape&, int rank);
TaskOrder zb_v_order(const ScheduleShape&, int rank);
AliveLimits zb_h1_limits(const ScheduleShape&, int rank);
AliveLimits zb_h2_limits(const ScheduleShape&, int rank);
AliveLimits zb_v_limits(const ScheduleShape&, int rank);

// Phases of an order that has none. A rank that runs forwards after its first backward has pairs of a forward
// and the backward that follows: its warm-up is the forwards before the first pair, its drain begins with the
// backward after the last one. Else the forwards are warm-up, the rest is drain. Without warm-up forwards,
// what comes before the first forward is still warm-up.
void name_phases(TaskOrder&);
// Of the orders of all ranks, of a schedule with this layout: those of the built-in schedule that has the
// same orders, where one has. It alone can tell for ranks with as many warm-up forwards as microbatches, or
// one less.
void name_phases(const Schedule& layout, std::vector<TaskOrder>&);

// `layout`, a schedule without programs, with the steps and messages of one order a rank.
Schedule with_programs(Schedule layout, const std::vector<TaskOrder>& orders);

// The common form of 1f1b and interleaved: `warmup` forwards, then pairs of a forward and a backward, then
// the backwards that are left. forward(k) and backward(k) give the (chunk, microbatch) of the k-th of their
// kind.
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

}  // namespace orrery
