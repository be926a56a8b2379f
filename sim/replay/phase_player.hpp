// Plays collectives phase by phase on the network.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "costmodels/collectives/collective_flows.hpp"
#include "sim/replay/network.hpp"

namespace orrery {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Tags of events: what they are about in the low three bits, which one above.
enum class Subject : std::uint32_t {
  rank = 0,
  message = 1,
  collective = 2,
  collective_end = 3,
  call = 4,  // of a part: the two calls that a rank may lead are 2 x rank and, over replicas, one more
  call_end = 5,
};
inline std::uint32_t tag_of(Subject subject, std::size_t index) {
  return static_cast<std::uint32_t>(index << 3U) | static_cast<std::uint32_t>(subject);
}
inline Subject subject_of(std::uint32_t tag) {
  return static_cast<Subject>(tag & 7U);
}
inline std::size_t index_of(std::uint32_t tag) {
  return tag >> 3U;
}

struct PhaseState {
  std::size_t phase = 0;       // being played
  std::size_t flows_left = 0;  // of it
};

// Who hears of the end of a flow, and of the end of a phase with its tail.
struct PhaseTags {
  std::uint32_t flow, end;
};

// Starts the flows of the next phase that has any; without one left, the end is heard of at once.
inline void start_phase(Network& network, const std::vector<FlowPhase>& phases, PhaseState& state,
                        PhaseTags tags) {
  while (state.phase < phases.size() && phases[state.phase].flows.empty()) ++state.phase;
  if (state.phase == phases.size()) {
    network.after(0.0, tags.end);
    return;
  }
  state.flows_left = phases[state.phase].flows.size();
  for (const Flow& flow : phases[state.phase].flows) network.start_flow(flow, tags.flow);
}

inline void flow_of_phase_ended(Network& network, const std::vector<FlowPhase>& phases, PhaseState& state,
                                PhaseTags tags) {
  if (--state.flows_left > 0) return;
  network.after(phases[state.phase].tail.value(), tags.end);
  ++state.phase;
}

}  // namespace orrery
