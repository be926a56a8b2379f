#include "sim/replay/part_player.hpp"

#include "platforms/errors.hpp"

namespace orrery {
namespace {

PhaseTags tags(std::size_t index) {
  return {tag_of(Subject::call, index), tag_of(Subject::call_end, index)};
}

}  // namespace

PartPlayer::PartPlayer(const TrafficFlows& flows, Network& network, ReplayRecorder& recorder, PartHost& host)
    : flows_(flows), network_(network), recorder_(recorder), host_(host) {
  states_.resize(static_cast<std::size_t>(flows.ranks()));
  calls_.resize(2 * states_.size());
}

void PartPlayer::start(std::size_t rank, const SpanRow& span, const PiecesOfStep& step) {
  PieceState& at = states_[rank];
  at.pieces = step.whole;
  if (step.cuts > 1) {
    at.inside = cut_pieces(*step.whole, at.cut, step.cuts);
    at.pieces = &at.inside;
    at.cut = (at.cut + 1) % step.cuts;
  }
  at.next = 0;
  at.factor = step.factor;
  at.span = span;
  go_on(rank);
}

void PartPlayer::computed(std::size_t rank) {
  go_on(rank);
}

// Until the rank computes or waits, or the part is over.
void PartPlayer::go_on(std::size_t rank) {
  PieceState& at = states_[rank];
  while (at.next < at.pieces->size()) {
    const PlayedPiece& piece = (*at.pieces)[at.next];
    switch (at.at) {
      case Stands::before:
        at.at = Stands::calling;
        if (piece.compute.value() > 0) return work(rank, piece, piece.compute, piece.tensor);
        break;
      case Stands::calling:
        at.at = Stands::waiting;
        at.call_is_over = !piece.call;
        if (!piece.call) break;
        enter(rank, *piece.call);
        if (piece.beside.value() > 0) work(rank, piece, piece.beside, Seconds(0));
        return;
      case Stands::waiting:
        if (!at.call_is_over || host_.computes(rank)) return;
        if (piece.call) host_.call_over(rank, at.call);
        at.at = Stands::before;
        ++at.next;
        break;
    }
  }
  at.pieces = nullptr;
  host_.task_over(rank);
}

void PartPlayer::work(std::size_t rank, const PlayedPiece& piece, Seconds time, Seconds tensor) {
  const PieceState& at = states_[rank];
  SpanRow span = at.span;
  span.tensor_communication = tensor.value() * at.factor;
  span.flops = piece.flops.value() * (time / (piece.compute + piece.beside));
  host_.start_work(rank, span, time.value() * at.factor);
}

void PartPlayer::enter(std::size_t rank, int call) {
  const GroupCalls& calls = flows_.calls();
  const int leader = calls.leader(static_cast<int>(rank), call);
  const std::size_t index = 2 * static_cast<std::size_t>(leader) + (calls.is_over_replicas(call) ? 1 : 0);
  CallState& state = calls_[index];
  ORRERY_ENSURE(state.entered == 0 || state.call == call);
  if (++state.entered < calls.member_count(call)) {
    state.call = call;
    return;
  }
  state = {{}, 0, call, network_.now()};
  start_phase(network_, phases(index), state.flows, tags(index));
}

const std::vector<FlowPhase>& PartPlayer::phases(std::size_t index) const {
  return flows_.calls().phases(static_cast<int>(index / 2), calls_[index].call);
}

void PartPlayer::flow_ended(std::size_t index) {
  flow_of_phase_ended(network_, phases(index), calls_[index].flows, tags(index));
}

void PartPlayer::phase_ended(std::size_t index) {
  if (calls_[index].flows.phase < phases(index).size()) {
    start_phase(network_, phases(index), calls_[index].flows, tags(index));
  } else {
    end_call(index);
  }
}

void PartPlayer::end_call(std::size_t index) {
  const CallState ended = calls_[index];
  const Interval when{ended.start, network_.now()};
  const std::vector<int> members = flows_.calls().members(static_cast<int>(index / 2), ended.call);
  recorder_.call(ended.call, members, states_[static_cast<std::size_t>(members.front())].span, when);
  for (const int member : members) {
    PieceState& at = states_[static_cast<std::size_t>(member)];
    at.call_is_over = true;
    at.call = when;
  }
  for (const int member : members) go_on(static_cast<std::size_t>(member));
}

}  // namespace orrery
