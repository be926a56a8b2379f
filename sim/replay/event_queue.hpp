// What a replay waits for.
#pragma once

#include <cstdint>

#include "costmodels/estimate/date_queue.hpp"

namespace orrery {

struct TimedEvent {
  enum class Kind : std::uint32_t { heard, flow_begins, flow_ends, sample };
  Kind kind = Kind::heard;
  std::uint32_t subject = 0;  // tag of what is heard; flow
  std::uint32_t version = 0;  // of a flow: an event of another is stale
};

using EventQueue = DateQueue<TimedEvent>;

}  // namespace orrery
