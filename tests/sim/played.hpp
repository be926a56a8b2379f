// Replays in child processes, summed up.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "costmodels/estimate/estimate.hpp"
#include "sim/replay/children.hpp"
#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/sim/random_plan.hpp"
#include "traces/accounting.hpp"

namespace orrery::test {

// Each replay needs a process of its own. `Value` is copied byte by byte.
template <class Value>
Value in_child(const std::function<Value()>& work) {
  const ChildTask task = [&] {
    const Value value = work();
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const std::string bytes = run_in_children({task}, 1).front();
  Value value;
  REQUIRE(bytes.size() == sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

struct PlayedTimes {
  double makespan = 0;   // s
  double iteration = 0;  // s
};

inline PlayedTimes replayed(const PricedPlan& plan, const Topology& topology,
                            Folding folding = Folding::off) {
  return in_child<PlayedTimes>([&] {
    const PlanPrograms programs = make_programs(plan);
    const TrafficFlows flows(plan, programs, topology, folding);
    const Replay run = replay(plan, programs, topology, flows, {});
    static_cast<void>(account(run.timeline));  // throws where spans overlap, leave gaps or miss the makespan
    return PlayedTimes{run.timeline.makespan, steady_iteration(run.iteration_ends).value()};
  });
}

inline PlayedTimes estimated(const PricedPlan& plan, const Topology& topology,
                             Folding folding = Folding::off) {
  const PlanPrograms programs = make_programs(plan);
  const TrafficFlows flows(plan, programs, topology, folding);
  const Estimate estimated = estimate(plan, programs, topology, flows);
  return {estimated.makespan.value(), estimated.iteration.value()};
}

}  // namespace orrery::test
