// What a replay waits for, by date.
#pragma once

#include <cstdint>
#include <queue>
#include <tuple>
#include <vector>

namespace orrery {

struct TimedEvent {
  enum class Kind : std::uint32_t { heard, flow_begins, flow_ends, sample };
  double date = 0;  // s
  Kind kind = Kind::heard;
  std::uint32_t subject = 0;  // tag of what is heard; flow
  std::uint32_t version = 0;  // of a flow: an event of another is stale
};

// Events of one date come out in the order they went in.
class EventQueue {
 public:
  void add(const TimedEvent& event) { entries_.push({event, added_++}); }
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] double next() const { return entries_.top().event.date; }
  TimedEvent take() {
    const TimedEvent event = entries_.top().event;
    entries_.pop();
    return event;
  }

 private:
  struct Entry {
    TimedEvent event;
    std::uint64_t number;
    bool operator<(const Entry& other) const {  // what comes out last is least
      return std::tie(event.date, number) > std::tie(other.event.date, other.number);
    }
  };
  std::priority_queue<Entry> entries_;
  std::uint64_t added_ = 0;
};

}  // namespace orrery
