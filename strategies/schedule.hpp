// A pipeline schedule as a program of steps for each pipeline rank; no times, no platform.
//
// The engines (estimator and replay) know only steps: a compute step waits for the messages it receives and then
// runs; an exchange step posts its sends and receives together and ends when all of them are over.
#pragma once

#include <array>
#include <cstdint>
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
  MessageList receives;         // compute: must have arrived before it starts. exchange: received by it
  MessageList sends;            // compute: start when it ends. exchange: sent by it
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

struct ScheduleShape {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  TransferMode transfers = TransferMode::eager;
  int ranks = 1;
  int chunks = 1;
  int microbatches = 1;
  bool operator==(const ScheduleShape&) const = default;
};

// Megatron-LM core/pipeline_parallel/schedules.py; SEMANTICS 1 and 2. Throws InputError when the shape does not fit
// the schedule (interleaved: M >= P, M mod P is 0 or >= P).
Schedule make_schedule(const ScheduleShape&);

// Most microbatches of each chunk whose activations are alive at once on a rank: [rank][chunk], from the program.
// `total` is the largest number of (microbatch, chunk) pairs alive together.
struct InFlight {
  std::vector<int> per_chunk_at_peak;  // alive of each chunk at the moment of the peak
  int total = 0;
};
InFlight in_flight(const Schedule&, int rank);

}  // namespace orrery
