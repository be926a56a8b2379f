#include "costmodels/estimate/estimate.hpp"

#include <algorithm>

#include "costmodels/estimate/launched_collectives.hpp"
#include "costmodels/estimate/plan_transfers.hpp"
#include "costmodels/estimate/work_left.hpp"
#include "costmodels/plans/folding.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

// Where a rank stands in a part that is played in pieces.
struct PieceState {
  std::size_t next = 0;
  enum class Stands { before, calling, waiting } at = Stands::before;
  double call_end = kUnknown;  // s
  int cut = 0;                 // of the steps that a task is cut into
};

struct RankState {
  PieceState piece;
  std::size_t step = 0;
  int iteration = 0;     // of its last compute step: what follows the pipeline belongs to it
  double now = 0;        // s
  bool entered = false;  // the exchange or collective of its step
  double reminder = -1;  // s, when it may have computed beside collectives
};

// A call that its members have begun to enter. A rank leads at most one of its own and one over replicas.
struct CallState {
  std::vector<int> entered;  // ranks
  double start = 0;          // s, of the last to enter
  PhaseProgress phases;
};

// What an event is about.
enum class Subject : std::uint64_t { message, collective, call, rank };
std::uint64_t tag_of(Subject subject, std::size_t index) {
  return static_cast<std::uint64_t>(index) * 4 + static_cast<std::uint64_t>(subject);
}

// Plays the programs by resuming ranks whose messages and collectives have become known, each step once. A
// rank is played as far ahead as it is known; only transfers that may meet others, and what is computed
// beside them, come in the order of time.
class Recurrence {
 public:
  Recurrence(const PricedPlan& plan, const PlanPrograms& programs, const Topology& topology,
             const TrafficFlows& flows, std::optional<Seconds> limit = {})
      : plan_(plan),
        programs_(programs),
        flows_(flows),
        transfers_(plan, programs, topology, flows),
        collectives_(flows) {
    std::size_t messages = 0;
    for (int replica = 0; replica < flows.replicas(); ++replica) {
      first_message_.push_back(messages);
      messages += static_cast<std::size_t>(programs.of(replica).message_count());
    }
    ranks_.resize(static_cast<std::size_t>(flows.ranks()));
    posted_.assign(messages, kUnknown);
    arrival_.assign(messages, kUnknown);
    ends_.assign(static_cast<std::size_t>(plan.iterations), 0.0);
    if (!plan.calls.empty()) calls_.resize(2 * ranks_.size());
    if (limit && plan.iterations <= 2) left_.emplace(plan, programs, flows, transfers_, limit->value());
  }

  // Absent: beyond the limit.
  std::optional<Estimate> run() {
    if (is_beyond_limit()) return std::nullopt;
    links_ = transfers_.shared_links();
    for (int rank = 0; rank < flows_.ranks(); ++rank) {
      ready_.push_back(rank);
      advance_ready();
    }
    while (links_ && !is_beyond_limit()) {
      const auto event = links_->next();
      if (!event) break;
      const auto index = static_cast<std::size_t>(event->tag / 4);
      const auto subject = static_cast<Subject>(event->tag % 4);
      if (subject == Subject::rank) {
        ready_.push_back(static_cast<int>(index));
      } else {
        ended(subject, index, event->time);
      }
      advance_ready();
    }
    if (is_beyond_limit()) return std::nullopt;
    double makespan = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ORRERY_ENSURE(ranks_[rank].step == program(static_cast<int>(rank)).size());
      makespan = std::max(makespan, ranks_[rank].now);
    }
    return Estimate{Seconds(makespan), steady_iteration(ends_)};
  }

 private:
  int stage_of(int rank) const { return rank % plan_.stages(); }
  int replica_of(int rank) const { return rank / plan_.stages(); }
  const Schedule& schedule(int rank) const { return programs_.of(replica_of(rank)); }
  const std::vector<Step>& program(int rank) const {
    return schedule(rank).programs[static_cast<std::size_t>(stage_of(rank))];
  }
  RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::size_t message_index(int rank, MessageId id) const {
    return first_message_[static_cast<std::size_t>(replica_of(rank))] + static_cast<std::size_t>(id);
  }
  int iteration_of(const Step& step, int rank) const {
    return step.microbatch / schedule(rank).shape.microbatches;
  }

  double before_last() const { return ends_.size() > 1 ? ends_.front() : 0; }
  bool is_beyond_limit() const { return left_ && left_->is_beyond_limit(); }

  void advance_ready() {
    while (!ready_.empty() && !is_beyond_limit()) {
      const int rank = ready_.back();
      ready_.pop_back();
      advance(rank);
    }
  }

  // Sends `kind`: what is `ended` is told when that is known.
  void send(double start, int kind, Subject subject, std::size_t index) {
    if (links_ && links_->shares(kind)) {
      links_->start(start, kind, tag_of(subject, index));
    } else {
      ended(subject, index, start + transfers_.alone(kind));
    }
  }

  void ended(Subject subject, std::size_t index, double time) {
    if (subject == Subject::message) return message_ended(index, time);
    PhaseProgress& at = phases_of(subject, index);
    const Seconds tail = (*at.all)[at.next].tail;
    ++at.next;
    next_phase(subject, index, time + tail.value());
  }

  // Of a collective or a call.
  PhaseProgress& phases_of(Subject subject, std::size_t index) {
    return subject == Subject::collective ? collectives_.phases(static_cast<int>(index))
                                          : calls_[index].phases;
  }

  void next_phase(Subject subject, std::size_t index, double time) {
    const PhaseProgress& at = phases_of(subject, index);
    if (at.next < at.all->size()) return send(time, transfers_.of_phase((*at.all)[at.next]), subject, index);
    if (subject == Subject::collective) return collective_over(static_cast<int>(index), time);
    call_over(index, time);
  }

  void advance(int rank) {
    RankState& at = state(rank);
    const std::vector<Step>& steps = program(rank);
    while (at.step < steps.size()) {
      if (!play(rank, steps[at.step])) return;
      if (left_) left_->done(rank, at.step, at.now, before_last());
      at.entered = false;
      ++at.step;
    }
  }

  // False when the step must wait for something whose time is not yet known.
  bool play(int rank, const Step& step) {
    RankState& at = state(rank);
    switch (step.kind) {
      case StepKind::forward:
      case StepKind::backward:
      case StepKind::weight_gradient:
        return compute(rank, step);
      case StepKind::exchange:
        return exchange(rank, step);
      case StepKind::launch:
        if (!at.entered) enter(rank, flows_.instance(step.slot, replica_of(rank)));
        return true;
      case StepKind::join:
        if (!at.entered) enter(rank, flows_.instance(step.slot, replica_of(rank)));
        at.entered = true;
        return wait_for(rank, step);
      case StepKind::await:
        return wait_for(rank, step);
      case StepKind::optimizer:
        return optimizer(rank);
    }
    return true;
  }

  bool compute(int rank, const Step& step) {
    RankState& at = state(rank);
    const PartTimes& part =
        plan_.part_times(replica_of(rank), schedule(rank).part(stage_of(rank), step.chunk));
    const double factor = duration_factor(plan_, rank, iteration_of(step, rank), at.step);
    if (!at.entered) {
      double start = at.now;
      for (const MessageId id : step.awaits) start = std::max(start, arrival_[message_index(rank, id)]);
      if (start == kUnknown) return false;
      at.now = start;
      at.iteration = iteration_of(step, rank);
      at.entered = true;
    }
    const std::vector<PlayedPiece>* pieces = pieces_of(part, step.kind);
    if (pieces != nullptr) {
      if (!play_pieces(rank, step, *pieces, factor)) return false;
    } else {
      const double work = pass_time(part, step.kind).value() / step.pieces * factor;
      if (!compute_until(rank, work)) return false;
    }
    note_end(rank, at.now);
    for (const MessageId id : step.sends) send_message(rank, id, at.now);
    return true;
  }

  bool compute_until(int rank, double work) {
    const double end = computed_by(rank, state(rank).now, work);
    if (end == kUnknown) return false;
    state(rank).now = end;
    return true;
  }

  // Goes on with a part in pieces; false when what it needs to know is not yet known.
  bool play_pieces(int rank, const Step& step, const std::vector<PlayedPiece>& whole, double factor) {
    PieceState& at = state(rank).piece;
    const std::vector<PlayedPiece> part =
        step.pieces > 1 ? cut_pieces(whole, at.cut, step.pieces) : std::vector<PlayedPiece>();
    const std::vector<PlayedPiece>& pieces = step.pieces > 1 ? part : whole;
    for (; at.next < pieces.size(); ++at.next) {
      if (!play_piece(rank, pieces[at.next], factor)) return false;
    }
    at.next = 0;
    at.cut = (at.cut + 1) % step.pieces;
    return true;
  }

  bool play_piece(int rank, const PlayedPiece& piece, double factor) {
    PieceState& at = state(rank).piece;
    if (at.at == PieceState::Stands::before) {
      if (!compute_until(rank, piece.compute.value() * factor)) return false;
      if (!piece.call) return true;
      at.at = PieceState::Stands::calling;
      enter_call(rank, *piece.call);
    }
    if (at.at == PieceState::Stands::calling) {
      if (!compute_until(rank, piece.beside.value() * factor)) return false;
      at.at = PieceState::Stands::waiting;
    }
    if (at.call_end == kUnknown) return false;
    state(rank).now = std::max(state(rank).now, at.call_end);
    at.call_end = kUnknown;
    at.at = PieceState::Stands::before;
    return true;
  }

  void enter_call(int rank, int call) {
    const int leader = flows_.calls().leader(rank, call);
    const auto index = 2 * static_cast<std::size_t>(leader) + (flows_.calls().is_over_replicas(call) ? 1 : 0);
    CallState& under_way = calls_[index];
    under_way.entered.push_back(rank);
    under_way.start = std::max(under_way.start, state(rank).now);
    if (under_way.entered.size() < flows_.calls().member_count(call)) return;
    under_way.phases.all = &flows_.calls().phases(leader, call);
    next_phase(Subject::call, index, under_way.start);
  }

  void call_over(std::size_t index, double end) {
    for (const int member : calls_[index].entered) {
      state(member).piece.call_end = end;
      ready_.push_back(member);
    }
    calls_[index] = {};
  }

  // The end of `work` seconds of compute from `start`: slower while a launched collective is on its way.
  double computed_by(int rank, double start, double work) {
    if (plan_.overlap_slowdown <= 1.0 || !collectives_.has_launched(rank)) return start + work;
    const auto [end, is_known] = collectives_.compute(rank, start, work, plan_.overlap_slowdown);
    if (is_known) return end;
    if (!links_) return kUnknown;
    if (end <= links_->now()) return end;
    RankState& at = state(rank);
    if (at.reminder != end) links_->remind(end, tag_of(Subject::rank, static_cast<std::size_t>(rank)));
    at.reminder = end;
    return kUnknown;
  }

  bool optimizer(int rank) {
    RankState& at = state(rank);
    at.now += plan_.optimizer_step(replica_of(rank), stage_of(rank)).value() *
              duration_factor(plan_, rank, at.iteration, at.step);
    note_end(rank, at.now);
    return true;
  }

  void note_end(int rank, double end) {
    auto& iteration_end = ends_[static_cast<std::size_t>(state(rank).iteration)];
    iteration_end = std::max(iteration_end, end);
  }

  bool exchange(int rank, const Step& step) {
    RankState& at = state(rank);
    if (!at.entered) {
      at.entered = true;
      for (const MessageId id : step.sends) post(rank, id);
      for (const MessageId id : step.awaits) post(rank, id);
    }
    double end = at.now;
    for (const MessageId id : step.sends) end = std::max(end, arrival_[message_index(rank, id)]);
    for (const MessageId id : step.awaits) end = std::max(end, arrival_[message_index(rank, id)]);
    if (end == kUnknown) return false;
    at.now = end;
    return true;
  }

  // A rendezvous: the second of the two ends to post sets the message off.
  void post(int rank, MessageId id) {
    double& posted = posted_[message_index(rank, id)];
    const double now = state(rank).now;
    if (posted == kUnknown) {
      posted = now;
    } else {
      send_message(rank, id, std::max(posted, now));
    }
  }

  void send_message(int rank, MessageId id, double start) {
    const Message what = schedule(rank).message(id);
    send(start, transfers_.of_message(replica_of(rank), what.boundary, what.gradient), Subject::message,
         message_index(rank, id));
  }

  // Goes on with both ends: either may wait for it.
  void message_ended(std::size_t index, double end) {
    arrival_[index] = end;
    const auto after = std::upper_bound(first_message_.begin(), first_message_.end(), index);
    const int replica = static_cast<int>(after - first_message_.begin()) - 1;
    const auto id = static_cast<MessageId>(index - first_message_[static_cast<std::size_t>(replica)]);
    const Message what = programs_.of(replica).message(id);
    for (const int stage : {what.from_rank, what.to_rank}) ready_.push_back(replica * plan_.stages() + stage);
  }

  void enter(int rank, int id) {
    if (collectives_.enter(rank, id, state(rank).now)) start_collective(id);
  }

  void start_collective(int id) {
    collectives_.phases(id).all = &flows_.collective(id).phases;
    next_phase(Subject::collective, static_cast<std::size_t>(id), collectives_.start(id));
  }

  void collective_over(int id, double end) {
    const auto followers = collectives_.over(id, end);
    ready_.insert(ready_.end(), followers.ranks.begin(), followers.ranks.end());
    for (const int next : followers.collectives) {
      if (collectives_.follow(next, end)) start_collective(next);
    }
  }

  bool wait_for(int rank, const Step& step) {
    const int id = flows_.instance(step.slot, replica_of(rank));
    const double end = collectives_.end(id);
    if (end == kUnknown) {
      collectives_.wake_after(id, rank);
      return false;
    }
    RankState& at = state(rank);
    at.now = std::max(at.now, end);
    if (ends_iteration(plan_, schedule(rank).collectives[static_cast<std::size_t>(step.slot)].role)) {
      note_end(rank, at.now);
    }
    return true;
  }

  const PricedPlan& plan_;
  const PlanPrograms& programs_;
  const TrafficFlows& flows_;
  PlanTransfers transfers_;
  std::optional<SharedLinks> links_;
  std::vector<RankState> ranks_;            // [replica * P + stage]
  std::vector<std::size_t> first_message_;  // [replica]
  std::vector<double> posted_, arrival_;    // [message], s
  LaunchedCollectives collectives_;
  std::vector<CallState> calls_;  // [leader * 2 + over replicas]
  std::vector<double> ends_;      // [iteration], s
  std::vector<int> ready_;
  std::optional<WorkLeft> left_;  // where there is a limit
};

// By paths on which nothing contends.
bool is_beyond(Seconds limit, const PricedPlan& plan, const PlanPrograms& programs, const Topology& topology,
               const TrafficFlows& flows) {
  if (plan.iterations > 2) return false;
  PlanTransfers transfers(plan, programs, topology, flows);
  return WorkLeft(plan, programs, flows, transfers, limit.value()).is_beyond_limit();
}

}  // namespace

bool ends_iteration(const PricedPlan& plan, CollectiveRole role) {
  return role != CollectiveRole::parameters || !plan.overlap_param_gather || plan.iterations == 1;
}

Seconds steady_iteration(const std::vector<double>& ends) {
  if (ends.size() < 2) return Seconds(ends.back());
  return Seconds((ends.back() - ends.front()) / static_cast<double>(ends.size() - 1));
}

Estimate estimate(const PricedPlan& plan, const PlanPrograms& programs, const Topology& topology,
                  const TrafficFlows& flows) {
  return *Recurrence(plan, programs, topology, flows).run();
}

Seconds estimate_iteration(const PricedPlan& plan, const PlanPrograms& programs, const Topology& topology) {
  const TrafficFlows flows(plan, programs, topology,
                           may_meet(plan, topology) ? Folding::of_estimates : Folding::of_paths);
  return estimate(plan, programs, topology, flows).iteration;
}

std::optional<Seconds> estimate_within(Seconds limit, const PricedPlan& plan, const PlanPrograms& programs,
                                       const Topology& topology) {
  std::optional<TrafficFlows> flows(std::in_place, plan, programs, topology, Folding::of_paths);
  if (flows->has_whole_rings() && may_meet(plan, topology)) {
    // More replicas must be played, maybe all; a few may tell already that it takes too long.
    if (is_beyond(limit, plan, programs, topology, *flows)) return std::nullopt;
    flows.emplace(plan, programs, topology, Folding::of_estimates);
  }
  const auto found = Recurrence(plan, programs, topology, *flows, limit).run();
  return found && found->iteration <= limit ? std::optional(found->iteration) : std::nullopt;
}

}  // namespace orrery
