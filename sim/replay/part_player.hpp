// Plays parts in pieces: compute, then a collective of the rank's groups, and so on.
#pragma once

#include <vector>

#include "costmodels/estimate/traffic.hpp"
#include "sim/replay/idle.hpp"
#include "sim/replay/phase_player.hpp"
#include "sim/replay/replay_recorder.hpp"

namespace orrery {

// What the player of parts asks of the player of programs.
class PartHost {
 public:
  virtual ~PartHost() = default;
  // Computes for `work` s at full speed and says so (PartPlayer::computed).
  virtual void start_work(std::size_t rank, SpanRow, double work) = 0;
  [[nodiscard]] virtual bool computes(std::size_t rank) const = 0;
  // The rank has waited for a collective that was on its way over that time.
  virtual void call_over(std::size_t rank, Interval) = 0;
  virtual void task_over(std::size_t rank) = 0;
};

// A pass of a part, or one of the steps that it is cut into.
struct PiecesOfStep {
  const std::vector<PlayedPiece>* whole = nullptr;
  int cuts = 1;
  double factor = 1.0;  // on durations
};

class PartPlayer {
 public:
  PartPlayer(const TrafficFlows&, Network&, ReplayRecorder&, PartHost&);

  // `span`: kind, chunk and microbatch of what is computed.
  void start(std::size_t rank, const SpanRow& span, const PiecesOfStep&);
  [[nodiscard]] bool plays(std::size_t rank) const { return states_[rank].pieces != nullptr; }
  void computed(std::size_t rank);

  // Events about calls: 2 x leader, one more for those over replicas.
  void flow_ended(std::size_t index);
  void phase_ended(std::size_t index);

 private:
  enum class Stands { before, calling, waiting };
  // Where a rank stands.
  struct PieceState {
    const std::vector<PlayedPiece>* pieces = nullptr;  // null: it is in no part
    std::size_t next = 0;
    Stands at = Stands::before;
    bool call_is_over = false;
    Interval call;
    int cut = 0;                      // of the steps that the pass is cut into
    std::vector<PlayedPiece> inside;  // what `pieces` points to then
    double factor = 1.0;
    SpanRow span;
  };
  struct CallState {
    PhaseState flows;
    std::size_t entered = 0;  // members that wait for the others
    int call = 0;
    double start = kNever;  // s
  };

  void go_on(std::size_t rank);
  void work(std::size_t rank, const PlayedPiece&, Seconds time, Seconds tensor);
  void enter(std::size_t rank, int call);
  void end_call(std::size_t index);
  [[nodiscard]] const std::vector<FlowPhase>& phases(std::size_t index) const;

  const TrafficFlows& flows_;
  Network& network_;
  ReplayRecorder& recorder_;
  PartHost& host_;
  std::vector<PieceState> states_;  // [rank]
  std::vector<CallState> calls_;    // [2 x leader, + 1 over replicas]
};

}  // namespace orrery
