// Events by date.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

namespace orrery {

// Events of one date come out in the order they went in. Replicas that do alike have theirs at the same
// dates: the heap holds lines of events that wait for one date, not events.
template <class Event>
class DateQueue {
 public:
  DateQueue() { recent_.fill({std::numeric_limits<double>::quiet_NaN(), kNone}); }

  void add(double date, const Event& event) {  // s
    const std::uint32_t place = free_place();
    places_[place] = {event, kNone};
    Recent& recent = recent_of(date);
    if (recent.date == date) {
      places_[recent.last].next = place;
    } else {
      lines_.push_back({date, added_++, place});
      std::push_heap(lines_.begin(), lines_.end(), std::greater<>());
      recent.date = date;
    }
    recent.last = place;
  }
  [[nodiscard]] bool empty() const { return lines_.empty(); }
  [[nodiscard]] double next() const { return lines_.front().date; }  // s
  Event take() {
    Line& line = lines_.front();
    const std::uint32_t place = line.first;
    const std::uint32_t next = places_[place].next;
    if (next == kNone) {
      Recent& recent = recent_of(line.date);
      if (recent.last == place) recent = {std::numeric_limits<double>::quiet_NaN(), kNone};
      std::pop_heap(lines_.begin(), lines_.end(), std::greater<>());
      lines_.pop_back();
    } else {
      line.first = next;
    }
    places_[place].next = free_;
    free_ = place;
    return places_[place].event;
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t kRecent = 1024;

  struct Place {
    Event event;
    std::uint32_t next = kNone;  // place of the line, or free one
  };
  // A date that another pushed out of `recent_` may come again: the newer line is then behind the older.
  struct Line {
    double date = 0;  // s
    std::uint64_t number = 0;
    std::uint32_t first = kNone;  // place
    bool operator>(const Line& other) const {
      return std::tie(date, number) > std::tie(other.date, other.number);
    }
  };
  struct Recent {
    double date = 0;             // s; not a number: none
    std::uint32_t last = kNone;  // place, the end of its line
  };

  std::uint32_t free_place() {
    if (free_ == kNone) {
      places_.emplace_back();
      return static_cast<std::uint32_t>(places_.size() - 1);
    }
    return std::exchange(free_, places_[free_].next);
  }
  Recent& recent_of(double date) { return recent_[std::hash<double>()(date) % kRecent]; }

  std::vector<Place> places_;
  std::uint32_t free_ = kNone;
  std::vector<Line> lines_;  // a heap
  std::uint64_t added_ = 0;
  std::array<Recent, kRecent> recent_;
};

}  // namespace orrery
