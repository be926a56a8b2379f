// The event engine of a replay: a clock, timers, and flows that share links. SimGrid plays those that do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "costmodels/collectives/flow.hpp"
#include "platforms/topology.hpp"
#include "sim/replay/link_recorder.hpp"

namespace orrery {

// Hears of every event once, in the order of simulated time.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_event(std::uint32_t tag) = 0;
};

// SimGrid keeps one engine a process and never resets its clock: one Network a process, ever (see
// run_in_children).
class Network {
 public:
  static constexpr std::size_t kMany = 64;

  // Links share their bandwidth max-min fairly among the flows that cross them, all flows alike, or give
  // every flow all of it where the cluster's contention is ideal. From `many` on, flows that begin together
  // are given their rates here (fair_shares.hpp), not by SimGrid, and so are all others after them.
  explicit Network(const Topology&, std::size_t many = kMany);
  ~Network();

  [[nodiscard]] double now() const;  // s

  void after(double delay, std::uint32_t tag);  // s
  // Waits for the latency of the flow's path, then moves its bytes at the rate the links of its route give. A
  // route without links takes no time beyond the latency.
  void start_flow(const Flow&, std::uint32_t tag);
  // Before `run`: flows will cross no other links than these, by index. SimGrid need not be told of the
  // others, which takes it ten microseconds each; else it is told of all.
  void only_links(std::vector<bool> crossed);

  // From now on adds to the recorder what every flow moved in each of its time bins.
  void watch(LinkRecorder&);

  // Returns when no event is left.
  void run(EventSink&);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string simgrid_version();

}  // namespace orrery
