// A pipeline schedule as a program of steps for each pipeline rank; no times, no platform.
//
// The engines (estimator and replay) know only steps. A compute step starts when the messages it awaits have arrived
// and lets its sends go when it ends. An exchange step posts its sends and receives together and ends when all of
// them are over; each of its messages starts when both ends have posted it (a rendezvous, as NCCL's).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strategies/strategy.hpp"

namespace orrery {

enum class StepKind : std::uint8_t { forward, backward, weight_gradient, exchange };

using MessageId = std::int32_t;

// At most two messages, in order.
struct MessageList {
  std::array<MessageId, 2> ids{};
  std::uint8_t count = 0;
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
  std::int32_t microbatch = 0;  // of compute steps
  MessageList awaits;           // compute: must have arrived before it starts. exchange: received by it
  MessageList sends;            // compute: set off when it ends. exchange: sent by it
};

// The activation of a microbatch crossing boundary b goes from part b to part b + 1; its gradient comes back.
struct Message {
  std::int32_t from_rank = 0;
  std::int32_t to_rank = 0;
  std::int32_t boundary = 0;
  std::int32_t microbatch = 0;
  bool gradient = false;
};

struct Schedule {
  int ranks = 1;         // P
  int chunks = 1;        // v
  int microbatches = 1;  // M
  TransferMode transfers = TransferMode::eager;
  std::vector<std::vector<Step>> programs;  // one a rank, in program order

  // Messages are numbered gradient * (parts - 1) * M + boundary * M + microbatch.
  [[nodiscard]] int boundaries() const { return ranks * chunks - 1; }
  [[nodiscard]] int message_count() const { return 2 * boundaries() * microbatches; }
  [[nodiscard]] MessageId message_id(bool gradient, int boundary, int microbatch) const {
    return ((gradient ? boundaries() : 0) + boundary) * microbatches + microbatch;
  }
  [[nodiscard]] Message message(MessageId id) const;
};

// Of a plan that is searched or replayed.
inline constexpr std::int64_t kMostPlanMicrobatches = 1 << 16;

struct ScheduleShape {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  TransferMode transfers = TransferMode::eager;
  int ranks = 1;
  int chunks = 1;
  int microbatches = 1;
  bool operator==(const ScheduleShape&) const = default;
};

// Why a schedule of this shape cannot be made, in words; absent when it can. Interleaved needs P >= 2 that divides M
// and two chunks or more; the others have one chunk; blocking transfers are those of gpipe and 1f1b.
std::optional<std::string> schedule_obstacle(const ScheduleShape&);

// Megatron-LM core/pipeline_parallel/schedules.py (forward_backward_pipelining_without_interleaving,
// ..._with_interleaving with microbatch groups of P). Throws InputError where schedule_obstacle speaks.
Schedule make_schedule(const ScheduleShape&);

// How many microbatches have their activations alive on a rank when most have: from the start of their forward to
// the end of their backward, counted over the program.
struct InFlight {
  std::vector<int> per_chunk;  // at the moment of the peak
  int total = 0;               // sum over chunks
};
InFlight in_flight(const Schedule&, int rank);

}  // namespace orrery
