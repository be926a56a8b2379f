// Transfers over links that carry others at the same time, played in the order of time.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "costmodels/collectives/flow.hpp"
#include "costmodels/estimate/date_queue.hpp"
#include "platforms/topology.hpp"

namespace orrery {

// What the flows of one transfer, which start together, ask of a link.
struct LinkDemand {
  int link = 0;
  double busy = 0;     // s, of all of them at the link's bandwidth
  double flows = 0;    // that share it
  double latency = 0;  // s, before the first arrives
};
std::vector<LinkDemand> uses_of(const Topology&, const std::vector<Flow>&);  // by link

// Transfers that do the same to the same links.
struct TransferKind {
  std::vector<LinkDemand> uses;  // by link
  double alone = 0;              // s, at least
  bool meets_itself = false;     // two of them may be on their way at once
};

// Every link shares its bandwidth evenly among the flows on it (SEMANTICS 4) as if its other links were free
// for each of them: a transfer takes as long as its slowest link says.
class SharedLinks {
 public:
  explicit SharedLinks(const std::vector<TransferKind>& kinds);

  // Whether it can meet another; if not, it takes what it takes alone.
  [[nodiscard]] bool shares(int kind) const { return !kinds_[static_cast<std::size_t>(kind)].uses.empty(); }
  [[nodiscard]] double now() const { return now_; }  // s

  // At `time`, now or later. `tag`: of the caller, told at the end.
  void start(double time, int kind, std::uint64_t tag);
  // An end of nothing at that time.
  void remind(double time, std::uint64_t tag) {
    add(time, What::reminder, static_cast<std::uint32_t>(tag), static_cast<std::uint32_t>(tag >> 32));
  }

  struct End {
    double time = 0;  // s, now or later
    std::uint64_t tag = 0;
  };
  // Goes on to the next that is known; absent: nothing is on its way.
  std::optional<End> next();

 private:
  enum class What : std::uint32_t { reminder, arrival, link, undisturbed };
  struct Event {
    What what = What::reminder;
    std::uint32_t subject = 0;  // transfer or link; lower half of a reminder's tag
    std::uint32_t version = 0;  // of it: an event of another is stale; upper half of the tag
  };
  // One that finds all its links free holds them, and is over without another event unless one comes that
  // needs a link it is on: then it is put on its links as if it had been there since it came.
  struct Transfer {
    int kind = 0;
    std::uint64_t tag = 0;
    double start = 0;
    std::size_t arrived = 0;    // uses
    std::size_t left = 0;       // uses that are not over
    double undisturbed = 0;     // s, its end if it holds its links until then
    std::uint32_t version = 0;  // of `undisturbed`
  };
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  // Flows that share a link evenly progress alike: each transfer is over once every flow on the link has had
  // as much of it (seconds at full bandwidth) as one of its own needs, counted from its arrival.
  struct Link {
    double since = 0;     // s
    double progress = 0;  // until then
    double flows = 0;
    std::uint32_t version = 0;
    std::size_t holder = kNone;  // transfer
    struct Done {
      double progress = 0;
      std::size_t transfer = 0;
      double flows = 0;
      bool operator<(const Done& other) const {
        return std::tie(progress, transfer) > std::tie(other.progress, other.transfer);
      }
    };
    std::priority_queue<Done> under_way;
  };

  void add(double time, What what, std::uint32_t subject, std::uint32_t version) {
    events_.add(time, {what, subject, version});
  }
  [[nodiscard]] const std::vector<LinkDemand>& asked_by(const Transfer& transfer) const {
    return kinds_[static_cast<std::size_t>(transfer.kind)].uses;
  }
  [[nodiscard]] Link& link_of(const LinkDemand& use) { return links_[static_cast<std::size_t>(use.link)]; }
  [[nodiscard]] bool is_held(const Link& link) const {
    return link.holder != kNone && transfers_[link.holder].undisturbed > now_;
  }
  [[nodiscard]] End over(std::size_t transfer);
  void arrive(std::size_t transfer);
  bool hold(std::size_t transfer);     // false where a link of it is not free
  void disturb(std::size_t transfer);  // that holds its links
  void let_go(std::size_t transfer);
  void join(std::size_t transfer, const LinkDemand&, double time);
  void expect_end(std::size_t link);
  std::optional<End> leave(std::size_t link);

  std::vector<TransferKind> kinds_;  // uses by latency, of links_
  std::vector<Link> links_;
  std::vector<Transfer> transfers_;
  std::vector<std::size_t> free_;  // of transfers_
  DateQueue<Event> events_;
  double now_ = 0;
};

}  // namespace orrery
