#include "costmodels/estimate/paths_left.hpp"

#include <algorithm>

#include "costmodels/estimate/estimate.hpp"

namespace orrery {
namespace {

constexpr int kKinds = 3;  // of compute steps

}  // namespace

PathsLeft::PathsLeft(const PricedPlan& plan, const PlanPrograms& programs, const TrafficFlows& flows,
                     PlanTransfers& transfers)
    : plan_(plan), programs_(programs), flows_(flows), transfers_(transfers) {
  std::size_t messages = 0;
  for (int replica = 0; replica < flows.replicas(); ++replica) {
    first_message_.push_back(messages);
    messages += static_cast<std::size_t>(programs.of(replica).message_count());
  }
  arrivals_.assign(messages, kNothing);
  met_.assign(messages, 0);
  ranks_.resize(static_cast<std::size_t>(flows.ranks()));
  passes_.assign(ranks_.size() * static_cast<std::size_t>(plan.schedule.chunks * kKinds), -1.0);
  for (int rank = 0; rank < flows.ranks(); ++rank) {
    RankPaths& at = ranks_[static_cast<std::size_t>(rank)];
    at.first = first_of_last(rank);
    at.next = steps_of(rank).size();
    at.after.assign(at.next - at.first, 0.0);
    ready_.push_back(rank);
  }
  while (!ready_.empty()) {
    const int rank = ready_.back();
    ready_.pop_back();
    go_back(rank);
  }
}

std::size_t PathsLeft::first_of_last(int rank) const {
  const int before = schedule(rank).shape.microbatches * (plan_.iterations - 1);
  const auto is_of_last = [&](const Step& step) {
    if (is_compute(step.kind)) return step.microbatch >= before;
    if (step.kind != StepKind::exchange) return false;
    const MessageList& messages = step.sends.count > 0 ? step.sends : step.awaits;
    return *messages.begin() % schedule(rank).all_microbatches() >= before;
  };
  const std::vector<Step>& steps = steps_of(rank);
  return static_cast<std::size_t>(std::find_if(steps.begin(), steps.end(), is_of_last) - steps.begin());
}

void PathsLeft::go_back(int rank) {
  RankPaths& at = ranks_[static_cast<std::size_t>(rank)];
  while (at.next > at.first && pass(rank, at.next - 1)) --at.next;
}

// False while it is not known what follows.
bool PathsLeft::pass(int rank, std::size_t index) {
  const Step& step = steps_of(rank)[index];
  switch (step.kind) {
    case StepKind::forward:
    case StepKind::backward:
    case StepKind::weight_gradient:
    case StepKind::optimizer:
      return pass_compute(rank, index);
    case StepKind::exchange:
      return pass_exchange(rank, step);
    case StepKind::join:
    case StepKind::launch:
    case StepKind::await:
      pass_collective(rank, step);
      return true;
  }
  return true;
}

bool PathsLeft::pass_compute(int rank, std::size_t index) {
  RankPaths& at = ranks_[static_cast<std::size_t>(rank)];
  const Step& step = steps_of(rank)[index];
  double after = std::max(at.tail, 0.0);
  for (const MessageId id : step.sends) {
    if (arrival(rank, id) == kNothing) return false;
    after = std::max(after, sent_in(rank, id) + arrival(rank, id));
  }
  at.after[index - at.first] = after;
  at.tail = computed_in(rank, index) + after;
  for (const MessageId id : step.awaits) {
    arrival(rank, id) = at.tail;
    wake_ends(rank, id);
  }
  return true;
}

// Neither side goes on before a message is over.
bool PathsLeft::pass_exchange(int rank, const Step& step) {
  RankPaths& at = ranks_[static_cast<std::size_t>(rank)];
  const auto for_each = [&](auto what) {
    for (const MessageList& list : {step.sends, step.awaits}) {
      for (const MessageId id : list) what(id);
    }
  };
  const auto sides = [&](MessageId id) -> std::uint8_t& {
    return met_[first_message_[static_cast<std::size_t>(rank / plan_.stages())] +
                static_cast<std::size_t>(id)];
  };
  if (!at.has_met) {
    at.has_met = true;
    for_each([&](MessageId id) {
      arrival(rank, id) = std::max(arrival(rank, id), at.tail);
      ++sides(id);
      wake_ends(rank, id);
    });
  }
  bool is_known = true;
  for_each([&](MessageId id) { is_known = is_known && sides(id) == 2; });
  if (!is_known) return false;
  for_each([&](MessageId id) { at.tail = std::max(at.tail, sent_in(rank, id) + arrival(rank, id)); });
  at.has_met = false;
  return true;
}

void PathsLeft::pass_collective(int rank, const Step& step) {
  RankPaths& at = ranks_[static_cast<std::size_t>(rank)];
  const CollectiveRole role = schedule(rank).collectives[static_cast<std::size_t>(step.slot)].role;
  if (step.kind != StepKind::launch && ends_iteration(plan_, role)) at.tail = std::max(at.tail, 0.0);
  if (step.kind == StepKind::await) {
    at.awaited[step.slot] = at.tail;
    return;
  }
  double behind = at.collectives;
  if (step.kind == StepKind::join) behind = std::max(behind, at.tail);
  if (const auto found = at.awaited.find(step.slot); found != at.awaited.end())
    behind = std::max(behind, found->second);
  at.collectives = collective_in(rank, step) + behind;
  at.tail = std::max(at.tail, at.collectives);
}

double& PathsLeft::arrival(int rank, MessageId id) {
  return arrivals_[first_message_[static_cast<std::size_t>(rank / plan_.stages())] +
                   static_cast<std::size_t>(id)];
}

// Either may wait for what was found.
void PathsLeft::wake_ends(int rank, MessageId id) {
  const Message what = schedule(rank).message(id);
  const int first = rank - rank % plan_.stages();
  for (const int stage : {what.from_rank, what.to_rank}) {
    if (first + stage != rank) ready_.push_back(first + stage);
  }
}

double PathsLeft::sent_in(int rank, MessageId id) {
  const Message what = schedule(rank).message(id);
  return transfers_.alone(transfers_.of_message(rank / plan_.stages(), what.boundary, what.gradient));
}

double PathsLeft::collective_in(int rank, const Step& step) {
  double sum = 0;
  for (const FlowPhase& phase : flows_.collective(flows_.instance(step.slot, rank / plan_.stages())).phases)
    sum += transfers_.alone(transfers_.of_phase(phase)) + phase.tail.value();
  return sum;
}

// All its calls alone on their links.
double PathsLeft::pass_in(const PartTimes& part, StepKind kind, int rank) {
  const std::vector<PlayedPiece>* pieces = pieces_of(part, kind);
  if (pieces == nullptr) return pass_time(part, kind).value();
  double sum = 0;
  for (const PlayedPiece& piece : *pieces) {
    double call = 0;
    if (piece.call) {
      const int leader = flows_.calls().leader(rank, *piece.call);
      for (const FlowPhase& phase : flows_.calls().phases(leader, *piece.call))
        call += transfers_.alone(transfers_.of_phase(phase)) + phase.tail.value();
    }
    sum += piece.compute.value() + std::max(piece.beside.value(), call);
  }
  return sum;
}

// Of a compute or optimizer step; 0 where that is not known.
double PathsLeft::computed_in(int rank, std::size_t index) {
  const int replica = rank / plan_.stages(), stage = rank % plan_.stages();
  const Step& step = steps_of(rank)[index];
  const double factor = duration_factor(plan_, rank, plan_.iterations - 1, index);
  if (step.kind == StepKind::optimizer) return plan_.optimizer_step(replica, stage).value() * factor;
  const PartTimes& part = plan_.part_times(replica, schedule(rank).part(stage, step.chunk));
  if (step.pieces > 1) {
    const bool is_even = pieces_of(part, step.kind) == nullptr;
    return is_even ? pass_time(part, step.kind).value() / step.pieces * factor : 0;
  }
  double& known = passes_[static_cast<std::size_t>((rank * plan_.schedule.chunks + step.chunk) * kKinds) +
                          static_cast<std::size_t>(step.kind)];
  if (known < 0) known = pass_in(part, step.kind, rank);
  return known * std::min(factor, 1.0);  // calls are not slowed
}

}  // namespace orrery
