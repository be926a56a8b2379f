// Where everything stands while a replay is played.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "traces/timeline.hpp"

namespace orrery {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Tags of events: what they are about in the low two bits, which one above.
enum class Subject : std::uint32_t { rank = 0, message = 1, collective = 2, collective_end = 3 };
inline std::uint32_t tag_of(Subject subject, std::size_t index) {
  return static_cast<std::uint32_t>(index << 2U) | static_cast<std::uint32_t>(subject);
}

struct MessageState {
  double start = kNever;  // s, when its flows set off
  double end = kNever;    // s, when the last of them arrived
  std::uint16_t flows_left = 0;
  bool posted = false;  // by one end of a rendezvous
};

struct CollectiveState {
  std::size_t missing = 0;     // members that have not entered, and collectives that run before it
  std::size_t phase = 0;       // of its flows, being played
  std::size_t flows_left = 0;  // of that phase
  double start = kNever;
  double end = kNever;
  bool prepared = false;
  std::vector<std::size_t> then;  // collectives that run after it
};

// A task that is being computed, perhaps more slowly while a collective runs on its GPU.
struct Running {
  SpanRow span;
  double work_left = 0;  // s at full speed
  double since = 0;      // s, when work_left was true
  double ends = kNever;  // s; an event that comes at another time is stale
};

// Where a pipeline rank of one replica stands.
struct RankState {
  std::size_t step = 0;
  double idle_since = 0;  // s, end of its last span
  int exchange_left = 0;  // messages of the exchange it is in that are not over
  bool busy = false;      // computing: an event of its own will come
  bool entered = false;   // the exchange or collective of its step
  int last_collective = -1;
  int collectives_running = 0;  // on its GPUs
  int iteration = 0;
};

}  // namespace orrery
