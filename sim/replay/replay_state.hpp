// Where everything stands while a replay is played.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/replay/phase_player.hpp"
#include "traces/timeline.hpp"

namespace orrery {

struct MessageState {
  double start = kNever;  // s, when its flows set off
  double end = kNever;    // s, when the last of them arrived
  std::uint32_t flows_left = 0;
  bool posted = false;  // by one end of a rendezvous
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
  double idle_since = 0;        // s, end of its last span
  int exchange_left = 0;        // messages of the exchange it is in that are not over
  bool busy = false;            // with a task: an event of its own will come
  bool computes = false;        // it; else it waits for a collective inside the task
  bool entered = false;         // the exchange or collective of its step
  int collectives_running = 0;  // on its GPUs
  int iteration = 0;
};

}  // namespace orrery
