// Plays the collectives between steps: gradients, parameters, embedding, gradient norm.
#pragma once

#include <vector>

#include "costmodels/estimate/traffic.hpp"
#include "sim/replay/idle.hpp"
#include "sim/replay/phase_player.hpp"
#include "sim/replay/replay_recorder.hpp"

namespace orrery {

// What the player of collectives asks of the player of programs.
class CollectiveHost {
 public:
  virtual ~CollectiveHost() = default;
  // A collective on the rank's GPUs starts (+1) or ends (-1).
  virtual void change_collectives(std::size_t rank, int change) = 0;
  // One that the rank may wait for has ended.
  virtual void advance(std::size_t rank) = 0;
};

class CollectivePlayer {
 public:
  CollectivePlayer(const TrafficFlows&, Network&, ReplayRecorder&, CollectiveHost&);

  // A rank's collectives run one after another, in the order it enters them. `id`: TrafficFlows::instance.
  void enter(std::size_t rank, std::size_t id);
  [[nodiscard]] Interval when(std::size_t id) const;  // s, kNever where it is not yet known

  // Events about collectives.
  void flow_ended(std::size_t id);
  void phase_ended(std::size_t id);

 private:
  struct CollectiveState {
    std::size_t missing = 0;  // members that have not entered, and collectives that run before it
    PhaseState flows;
    Interval when{kNever, kNever};
    bool prepared = false;
    std::vector<std::size_t> then;  // collectives that run after it
  };

  void start(std::size_t id);
  void end(std::size_t id);
  [[nodiscard]] const std::vector<FlowPhase>& phases(std::size_t id) const;

  const TrafficFlows& flows_;
  Network& network_;
  ReplayRecorder& recorder_;
  CollectiveHost& host_;
  std::vector<CollectiveState> collectives_;
  std::vector<int> last_;  // [rank]: entered; -1: none
};

}  // namespace orrery
