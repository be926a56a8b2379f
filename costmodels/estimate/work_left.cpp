#include "costmodels/estimate/work_left.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "costmodels/estimate/estimate.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

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

// Whether ranks of a replica begin the second iteration as their optimizer steps end.
bool begins_after_step(const PricedPlan& plan, const PlanPrograms& programs) {
  const std::vector<CollectiveSlot>& slots = programs.programs.front().collectives;
  const bool has_gathers = std::any_of(slots.begin(), slots.end(), [](const CollectiveSlot& slot) {
    return slot.role == CollectiveRole::parameters;
  });
  const bool waits_for_gathers = has_gathers && ends_iteration(plan, CollectiveRole::parameters);
  return !waits_for_gathers && plan.jitter <= 0 && plan.slowness.empty();
}

}  // namespace

WorkLeft::WorkLeft(const PricedPlan& plan, const PlanPrograms& programs, const TrafficFlows& flows,
                   PlanTransfers& transfers, double limit)
    : plan_(plan),
      programs_(programs),
      flows_(flows),
      transfers_(transfers),
      paths_(plan, programs, flows, transfers),
      limit_(limit * kRounding) {
  ORRERY_ENSURE(plan.iterations <= 2);
  const bool is_second = plan.iterations == 2;
  in_last_.assign(static_cast<std::size_t>(flows.ranks()), is_second ? 0 : 1);
  behind_ = is_second ? in_last_.size() : 0;
  const double lead = is_second ? lead_of_second(plan, flows.ranks()) : 0;
  if (!is_second || begins_after_step(plan, programs)) check(least_path() - lead);
  if (!beyond_ && transfers.may_meet() && !plan.replicas_drift) check(transfers.busiest(sent()) - lead);
}

// Seconds of the last iteration. A second one is counted from the end of the first on its last rank, which
// may be of any replica.
double WorkLeft::least_path() const {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (int replica = 0; replica < flows_.replicas(); ++replica) {
    double longest = 0;
    for (int stage = 0; stage < plan_.stages(); ++stage)
      longest = std::max(longest, paths_.whole(replica * plan_.stages() + stage));
    least = std::min(least, longest);
    most = std::max(most, longest);
  }
  return plan_.iterations == 1 ? most : least;
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

void WorkLeft::done(int rank, std::size_t step, double now, double before) {
  if (!paths_.has_begun(rank, step)) return;
  if (!in_last_[static_cast<std::size_t>(rank)]) {
    in_last_[static_cast<std::size_t>(rank)] = true;
    --behind_;
  }
  if (behind_ > 0) return;
  const StepKind kind = steps_of(rank)[step].kind;
  if (is_compute(kind) || kind == StepKind::optimizer) check(now + paths_.after(rank, step) - before);
}

}  // namespace orrery
