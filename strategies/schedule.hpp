// A pipeline schedule as a program of steps for each pipeline rank; no times, no platform.
//
// The engines (estimator and replay) know only steps. A compute step starts when the messages it awaits have
// arrived and lets its sends go when it ends. An exchange step posts its sends and receives together and ends
// when all of them are over; each of its messages starts when both ends have posted it (a rendezvous, as
// NCCL's).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platforms/units.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

enum class StepKind : std::uint8_t {
  forward,
  backward,         // for the input and, unless the schedule splits it, for the weights
  weight_gradient,  // for the weights
  exchange,
  join,    // enters a collective and waits for its end
  launch,  // enters a collective and goes on
  await,   // waits for the end of a collective that was launched
  optimizer,
};
constexpr bool is_compute(StepKind kind) {
  return kind <= StepKind::weight_gradient;
}

using MessageId = std::int32_t;

// At most two messages, in order.
struct MessageList {
  std::array<MessageId, 2> ids{};
  std::uint8_t count = 0;
  bool operator==(const MessageList&) const = default;
  void push(MessageId id) { ids[count++] = id; }
  [[nodiscard]] const MessageId* begin() const { return ids.data(); }
  [[nodiscard]] const MessageId* end() const { return ids.data() + count; }
};

// The idle time before a step belongs to the phase of the step (SEMANTICS 5).
enum class Phase : std::uint8_t { warmup, steady, drain };

struct Step {
  StepKind kind = StepKind::forward;
  Phase phase = Phase::warmup;
  std::int16_t chunk = 0;       // of compute steps
  std::int32_t microbatch = 0;  // of compute steps; counted on over the iterations
  std::int32_t slot = 0;        // of join, launch and await: index into Schedule::collectives
  std::int32_t pieces =
      1;               // a task may be cut into so many equal steps, where buckets of gradients are ready
  MessageList awaits;  // compute: must have arrived before it starts. exchange: received by it
  MessageList sends;   // compute: set off when it ends. exchange: sent by it
  bool operator==(const Step&) const = default;
};

// The activation of a microbatch crossing boundary b goes from part b to part b + 1; its gradient comes back.
struct Message {
  std::int32_t from_rank = 0;
  std::int32_t to_rank = 0;
  std::int32_t boundary = 0;
  std::int32_t microbatch = 0;
  bool gradient = false;
};

// Of a plan that is searched or replayed.
inline constexpr std::int64_t kMostPlanMicrobatches = 1 << 16;

struct ScheduleShape {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  TransferMode transfers = TransferMode::eager;
  int ranks = 1;
  int chunks = 1;
  int microbatches = 1;
  int microbatch_group = 0;  // G of interleaved; 0: as many as ranks
  bool operator==(const ScheduleShape&) const = default;
  [[nodiscard]] int group() const { return microbatch_group > 0 ? microbatch_group : ranks; }
};

enum class CollectiveRole : std::uint8_t { gradients, embedding, gradient_norm, parameters };

// A collective of a program. Gradients and parameters: the rank of the part, in every replica. Embedding:
// first and last stage of each replica by itself. Norm: all stages of each replica by itself.
struct CollectiveSlot {
  CollectiveRole role = CollectiveRole::gradients;
  int part = 0;
  int bucket = 0, buckets = 1;  // of those that the part's gradients, or its experts', fill
  bool operator==(const CollectiveSlot&) const = default;
};

struct Schedule {
  ScheduleShape shape;  // of one iteration
  int iterations = 1;   // message and step microbatches count on: iteration * M + microbatch
  std::vector<CollectiveSlot> collectives;  // what the steps' slots mean
  bool split_backward = false;
  std::vector<std::vector<Step>> programs;  // one a rank, in program order
  // Which rank holds part p as which of its chunks; and the part of every chunk of every rank.
  std::vector<int> rank_of_part, chunk_of_part;
  std::vector<std::vector<int>> part_at;  // [rank][chunk]
  bool operator==(const Schedule&) const = default;

  // Messages are numbered (gradient * boundaries + boundary) * all_microbatches + microbatch.
  [[nodiscard]] int boundaries() const { return static_cast<int>(rank_of_part.size()) - 1; }
  [[nodiscard]] int all_microbatches() const { return shape.microbatches * iterations; }
  [[nodiscard]] int message_count() const { return 2 * boundaries() * all_microbatches(); }
  [[nodiscard]] MessageId message_id(bool gradient, int boundary, int microbatch) const {
    return ((gradient ? boundaries() : 0) + boundary) * all_microbatches() + microbatch;
  }
  [[nodiscard]] Message message(MessageId id) const;
  [[nodiscard]] int part(int rank, int chunk) const {
    return part_at[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)];
  }
};

// Why a schedule of this shape cannot be made, in words; absent when it can.
std::optional<std::string> schedule_obstacle(const ScheduleShape&);

// Durations that a schedule is built for, of one microbatch in one part.
struct TaskTimes {
  Seconds forward, backward, weight_gradient;
};
enum class ScheduleGoal {
  makespan,   // every rank is done soon: all wait for the last one
  rank_span,  // the longest time from a rank's first task to its last is short: the next iteration follows
              // at once on each rank
};
struct ScheduleTimes {
  std::vector<TaskTimes> parts;    // P * v, in model order
  std::vector<Seconds> transfers;  // P * v - 1: of a message over each boundary
  ScheduleGoal goal = ScheduleGoal::makespan;
};

// Schedules that split the backward are those for F = B = W and free transfers. Throws InputError where
// schedule_obstacle speaks.
Schedule make_schedule(const ScheduleShape&);
// Schedules that split the backward are built for the durations of every part, within the memory of those
// above and never slower; the others are the same for all durations.
Schedule make_schedule(const ScheduleShape&, const ScheduleTimes&);

// Why the ranks would wait for each other for ever, or for work that never comes, as "rank 0 at 0B0 waits for
// 1B0 of rank 1; rank 1 at ..."; absent when every rank gets through. Holds for all times that steps and
// messages may take. Operations are named as in schedule files: part, F, B (split: I and W), microbatch.
std::optional<std::string> schedule_deadlock(const Schedule&);

// How messages travel in a plan that does not say: blocking where Megatron-LM has blocking calls, else
// overlapped.
TransferMode default_transfers(ScheduleKind);

// Whether the gradients of the weights are tasks of their own.
bool splits_backward(ScheduleKind);

// Whether each rank takes its optimizer step when its own gradients are there, and checks the norm of all in
// the next iteration (post-validation: arXiv 2401.10241, section 4). zb-h2 and zb-v are made for it.
bool validates_later(ScheduleKind);

// How many microbatches have their activations alive on a rank when most have: from the start of their
// forward to the end of their backward, counted over the program.
struct InFlight {
  std::vector<int> per_chunk;  // at the moment of the peak
  int total = 0;               // sum over chunks
};
InFlight in_flight(const Schedule&, int rank);

// What is alive on a rank at one moment of its program, in microbatches of each chunk.
struct AliveState {
  std::vector<int> whole;        // from the start of the forward to the end of the backward for the input
  std::vector<int> for_weights;  // from there to the end of the weight gradient, where that is split off
  bool operator==(const AliveState&) const = default;
};
// The states of a rank's program that no other state exceeds in everything: one of them needs the most
// memory.
std::vector<AliveState> alive_states(const Schedule&, int rank);

}  // namespace orrery
