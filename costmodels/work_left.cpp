#include "costmodels/work_left.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr int kKinds = 3;               // of compute steps
constexpr double kRounding = 1 + 1e-9;  // of sums in another order

// How much sooner than the last rank others begin the second iteration, in seconds: they have stepped before
// it. Unbounded without the norm of all gradients.
double lead_of_second(const PricedPlan& plan, int ranks) {
  if (!plan.gradient_norm) return std::numeric_limits<double>::infinity();
  if (plan.optimizer.empty()) return 0;
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double step = plan.optimizer_step(rank / plan.stages(), rank % plan.stages()).value();
    least = std::min(least, step);
    most = std::max(most, step);
  }
  return most - least;
}

}  // namespace

WorkLeft::WorkLeft(const PricedPlan& plan, const PlanPrograms& programs, const TrafficFlows& flows,
                   PlanTransfers& transfers, double limit)
    : plan_(plan), programs_(programs), flows_(flows), transfers_(transfers), limit_(limit * kRounding) {
  ORRERY_ENSURE(plan.iterations <= 2);
  ranks_.resize(static_cast<std::size_t>(flows.ranks()));
  behind_ = plan.iterations == 1 ? 0 : ranks_.size();
  const double lead = plan.iterations == 1 ? 0 : lead_of_second(plan, flows.ranks());
  passes_.assign(ranks_.size() * static_cast<std::size_t>(plan.schedule.chunks * kKinds), -1.0);
  for (int rank = 0; rank < flows.ranks() && !beyond_; ++rank) {
    double& left = ranks_[static_cast<std::size_t>(rank)].left;
    int iteration = 0;  // of the last pass
    for (std::size_t step = 0; step < steps_of(rank).size(); ++step) {
      const int of_step = iteration_of(rank, step, iteration);
      if (of_step + 1 == plan.iterations) left += least_of(rank, step, of_step);
      if (is_compute(steps_of(rank)[step].kind)) iteration = of_step;
    }
    check(left - lead);
  }
  if (!beyond_ && transfers.may_meet() && !plan.replicas_drift) check(transfers.busiest(sent()) - lead);
}

// Transfers of each kind in an iteration.
std::vector<double> WorkLeft::sent() const {
  std::vector<double> counts(transfers_.kinds());
  const double each = 1.0 / plan_.iterations;
  const auto add = [&](int kind) { counts[static_cast<std::size_t>(kind)] += each; };
  std::set<int> entered;  // collectives
  for (int rank = 0; rank < flows_.ranks(); ++rank) {
    const int replica = rank / plan_.stages(), stage = rank % plan_.stages();
    const Schedule& schedule = programs_.of(replica);
    for (const Step& step : steps_of(rank)) {
      for (const MessageId id : step.sends) {
        const Message what = schedule.message(id);
        add(transfers_.of_message(replica, what.boundary, what.gradient));
      }
      if (step.kind == StepKind::join || step.kind == StepKind::launch) {
        const int instance = flows_.instance(step.slot, replica);
        if (!entered.insert(instance).second) continue;
        for (const FlowPhase& phase : flows_.collective(instance).phases) add(transfers_.of_phase(phase));
      }
      if (!is_compute(step.kind) || step.pieces > 1) continue;
      const auto* pieces = pieces_of(plan_.part_times(replica, schedule.part(stage, step.chunk)), step.kind);
      if (pieces == nullptr) continue;
      for (const PlayedPiece& piece : *pieces) {
        if (!piece.call || flows_.calls().leader(rank, *piece.call) != rank) continue;
        for (const FlowPhase& phase : flows_.calls().phases(rank, *piece.call))
          add(transfers_.of_phase(phase));
      }
    }
  }
  return counts;
}

void WorkLeft::done(int rank, std::size_t step, int iteration, double now, double before) {
  RankWork& work = ranks_[static_cast<std::size_t>(rank)];
  if (!work.in_last && iteration > 0) {
    work.in_last = true;
    --behind_;
  }
  const int of_step = iteration_of(rank, step, iteration);
  if (of_step + 1 == plan_.iterations) work.left -= least_of(rank, step, of_step);
  // A gather that is waited for may be the next iteration's.
  const StepKind kind = steps_of(rank)[step].kind;
  if (behind_ == 0 && (is_compute(kind) || kind == StepKind::optimizer)) check(now + work.left - before);
}

// `current`: of the last pass. What the first pass of an iteration needs is received in that iteration.
int WorkLeft::iteration_of(int rank, std::size_t index, int current) const {
  const Schedule& schedule = programs_.of(rank / plan_.stages());
  const Step& step = steps_of(rank)[index];
  if (is_compute(step.kind)) return step.microbatch / schedule.shape.microbatches;
  if (step.kind != StepKind::exchange) return current;
  const MessageList& messages = step.sends.count > 0 ? step.sends : step.awaits;
  return schedule.message(*messages.begin()).microbatch / schedule.shape.microbatches;
}

// Seconds of a pass through a part, all its calls alone on their links.
double WorkLeft::least_of_pass(const PartTimes& part, StepKind kind, int rank) {
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

// Seconds of a step when nothing contends; 0 where that is not known.
double WorkLeft::least_of(int rank, std::size_t index, int iteration) {
  const int replica = rank / plan_.stages(), stage = rank % plan_.stages();
  const Schedule& schedule = programs_.of(replica);
  const Step& step = steps_of(rank)[index];
  const auto factor = [&] { return duration_factor(plan_, rank, iteration, index); };
  switch (step.kind) {
    case StepKind::forward:
    case StepKind::backward:
    case StepKind::weight_gradient: {
      const std::size_t pass =
          static_cast<std::size_t>((rank * plan_.schedule.chunks + step.chunk) * kKinds) +
          static_cast<std::size_t>(step.kind);
      const PartTimes& part = plan_.part_times(replica, schedule.part(stage, step.chunk));
      if (step.pieces > 1) {
        const bool is_even = pieces_of(part, step.kind) == nullptr;
        return is_even ? pass_time(part, step.kind).value() / step.pieces * factor() : 0;
      }
      if (passes_[pass] < 0) passes_[pass] = least_of_pass(part, step.kind, rank);
      return passes_[pass] * std::min(factor(), 1.0);  // calls are not slowed
    }
    case StepKind::exchange: {
      double longest = 0;
      for (const MessageList& list : {step.sends, step.awaits}) {
        for (const MessageId id : list) {
          const Message what = schedule.message(id);
          longest = std::max(longest,
                             transfers_.alone(transfers_.of_message(replica, what.boundary, what.gradient)));
        }
      }
      return longest;
    }
    case StepKind::optimizer:
      return plan_.optimizer_step(replica, stage).value() * factor();
    case StepKind::join:
    case StepKind::launch:
    case StepKind::await:
      break;
  }
  return 0;
}

}  // namespace orrery
