#include "costmodels/estimate.hpp"

#include <algorithm>
#include <limits>

#include "costmodels/collective_choice.hpp"
#include "costmodels/message_sharing.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

// How often messages are timed again beside those that the pass before found on their links.
constexpr int kSharingPasses = 4;

Seconds duration(const PartTimes& part, StepKind kind) {
  switch (kind) {
    case StepKind::forward:
      return part.forward;
    case StepKind::backward:
      return part.backward;
    case StepKind::weight_gradient:
      return part.weight_gradient;
    case StepKind::exchange:
    case StepKind::join:
    case StepKind::launch:
    case StepKind::await:
    case StepKind::optimizer:
      break;
  }
  return Seconds(0);
}

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
  int iteration = 0;          // of its last compute step: what follows the pipeline belongs to it
  double now = 0;             // s
  bool entered = false;       // the exchange or collective of its step
  int last_collective = -1;   // that it entered: the next one runs after it
  std::vector<int> launched;  // collectives that may still slow its compute down
};

struct CollectiveState {
  bool entered = false;     // by any member
  std::size_t missing = 0;  // members that have not entered, and collectives that run before it
  double start = 0;
  double end = kUnknown;
  std::vector<int> then;     // collectives that run after it
  std::vector<int> waiting;  // ranks
};

// A call over several ranks, by its leader; a rank has at most one under way.
struct CallState {
  std::vector<int> entered;  // ranks
  double start = 0;          // s, of the last to enter
};

// Plays the programs by resuming ranks whose messages and collectives have become known, each step once.
class Recurrence {
 public:
  Recurrence(const PricedPlan& plan, const PlanPrograms& programs, const Topology& topology,
             const TrafficFlows& flows)
      : plan_(plan), programs_(programs), topology_(topology), flows_(flows) {
    for (int replica = 0; replica < flows.replicas(); ++replica) {
      first_message_.push_back(messages_);
      messages_ += static_cast<std::size_t>(programs.of(replica).message_count());
    }
    const int boundaries = programs.programs.front().boundaries();
    transfers_.resize(static_cast<std::size_t>(flows.replicas() * boundaries * 2));
    uses_.resize(transfers_.size());
    for (int boundary = 0; boundary < boundaries; ++boundary) {
      for (const bool gradient : {false, true}) time_messages(boundary, gradient);
    }
    durations_.assign(static_cast<std::size_t>(flows.instances()), kUnknown);
    const std::size_t callers = plan.calls.empty() ? 0 : static_cast<std::size_t>(flows.ranks());
    call_times_.resize(callers * plan.calls.size(), kUnknown);
    if (topology.cluster().contention == Contention::shared && !topology.gpus_have_own_links())
      starts_.resize(messages_);
  }

  // Of the passes that share links the one that takes least: starts that an earlier pass found too close
  // together make the next one too slow, whose starts are then apart.
  Estimate run() {
    Estimate result = pass();
    for (int i = 0; i < kSharingPasses && time_beside_others(); ++i) {
      const Estimate shared = pass();
      if (i == 0 || shared.makespan < result.makespan) result = shared;
    }
    return result;
  }

 private:
  Estimate pass() {
    ranks_.assign(static_cast<std::size_t>(flows_.ranks()), {});
    posted_.assign(messages_, kUnknown);
    arrival_.assign(messages_, kUnknown);
    collectives_.assign(durations_.size(), {});
    ends_.assign(static_cast<std::size_t>(plan_.iterations), 0.0);
    calls_.assign(plan_.calls.empty() ? 0 : ranks_.size(), {});
    for (int rank = 0; rank < flows_.ranks(); ++rank) {
      ready_.push_back(rank);
      while (!ready_.empty()) {
        const int next = ready_.back();
        ready_.pop_back();
        advance(next);
      }
    }
    double makespan = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ORRERY_ENSURE(ranks_[rank].step == program(static_cast<int>(rank)).size());
      makespan = std::max(makespan, ranks_[rank].now);
    }
    return {Seconds(makespan), steady_iteration(ends_)};
  }

  // Times every message of the last pass beside those of other boundaries that were under way then. False
  // when none took longer for it.
  bool time_beside_others() {
    if (starts_.empty()) return false;
    message_times_.resize(messages_);
    bool longer = false;
    std::vector<int> together;
    for (int replica = 0; replica < flows_.replicas(); ++replica) {
      if (first_sender(replica) < replica) continue;
      if (plan_.replicas_drift) {
        longer |= time_messages_of({replica});
      } else {
        together.push_back(replica);
      }
    }
    if (!together.empty()) longer |= time_messages_of(together);
    copy_to_replicas_in_step();
    return longer;
  }

  // Of replicas whose messages may meet; whether any does.
  bool time_messages_of(const std::vector<int>& replicas) {
    std::vector<SentMessage> sent;
    std::vector<std::size_t> indices;  // of `sent`, in starts_
    for (const int replica : replicas) {
      const std::size_t first = first_message_[static_cast<std::size_t>(replica)];
      for (int id = 0; id < programs_.of(replica).message_count(); ++id) {
        indices.push_back(first + static_cast<std::size_t>(id));
        sent.push_back({starts_[indices.back()], static_cast<int>(transfer_index(replica, id))});
      }
    }
    const std::vector<double> beside = durations_beside_others(uses_, sent);
    constexpr double kRounding = 1e-9;
    bool longer = false;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const double alone = transfers_[static_cast<std::size_t>(sent[i].kind)];
      const bool meets = beside[i] > alone * (1 + kRounding);
      longer |= meets;
      message_times_[indices[i]] = meets ? beside[i] : alone;
    }
    return longer;
  }

  void copy_to_replicas_in_step() {
    for (int replica = 0; replica < flows_.replicas(); ++replica) {
      const auto from = first_message_[static_cast<std::size_t>(first_sender(replica))];
      const auto to = first_message_[static_cast<std::size_t>(replica)];
      if (from == to) continue;
      const auto count = static_cast<std::ptrdiff_t>(programs_.of(replica).message_count());
      const auto begin = message_times_.begin() + static_cast<std::ptrdiff_t>(from);
      std::copy(begin, begin + count, message_times_.begin() + static_cast<std::ptrdiff_t>(to));
    }
  }

  // Of those that send at the same time as a replica, itself among them.
  int first_sender(int replica) const {
    int first = 0;
    while (!sends_with(replica, first)) ++first;
    return first;
  }
  bool sends_with(int a, int b) const { return plan_.replicas_drift ? a == b : in_step(a, b); }

  std::size_t transfer_index(int replica, MessageId id) const {
    const Message what = programs_.of(replica).message(id);
    return static_cast<std::size_t>((replica * programs_.of(replica).boundaries() + what.boundary) * 2 +
                                    (what.gradient ? 1 : 0));
  }

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

  void advance(int rank) {
    RankState& at = state(rank);
    const std::vector<Step>& steps = program(rank);
    while (at.step < steps.size()) {
      if (!play(rank, steps[at.step])) return;
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
      const double work = duration(part, step.kind).value() / step.pieces * factor;
      if (!compute_until(rank, work)) return false;
    }
    note_end(rank, at.now);
    for (const MessageId id : step.sends) arrive(rank, id, at.now, schedule(rank).message(id).to_rank);
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
    if (!flows_.calls().is_over_replicas(call)) {
      state(rank).piece.call_end = state(rank).now + call_time(leader, call);
      return;
    }
    CallState& under_way = calls_[static_cast<std::size_t>(leader)];
    under_way.entered.push_back(rank);
    under_way.start = std::max(under_way.start, state(rank).now);
    if (under_way.entered.size() < flows_.calls().members(leader, call).size()) return;
    for (const int member : under_way.entered) {
      state(member).piece.call_end = under_way.start + call_time(leader, call);
      if (member != rank) ready_.push_back(member);
    }
    under_way = {};
  }

  double call_time(int leader, int call) {
    double& time =
        call_times_[static_cast<std::size_t>(leader) * plan_.calls.size() + static_cast<std::size_t>(call)];
    if (time == kUnknown) time = time_alone(topology_, flows_.calls().phases(leader, call)).value();
    return time;
  }

  // The end of `work` seconds of compute from `start`: slower while a launched collective is on its way.
  double computed_by(int rank, double start, double work) {
    RankState& at = state(rank);
    if (plan_.overlap_slowdown <= 1.0 || at.launched.empty()) return start + work;
    std::vector<std::pair<double, double>> busy;
    for (const int id : at.launched) {
      CollectiveState& collective = collectives_[static_cast<std::size_t>(id)];
      if (collective.end == kUnknown) {
        collective.waiting.push_back(rank);
        return kUnknown;
      }
      if (collective.end > start) busy.emplace_back(collective.start, collective.end);
    }
    if (busy.empty()) at.launched.clear();
    std::sort(busy.begin(), busy.end());
    double now = start;
    for (const auto& [begin, end] : busy) {
      const double free = std::max(0.0, begin - now);
      if (work <= free) return now + work;
      work -= free;
      now = std::max(now, begin);
      const double slowed = std::max(0.0, end - now) / plan_.overlap_slowdown;
      if (work <= slowed) return now + work * plan_.overlap_slowdown;
      work -= slowed;
      now = std::max(now, end);
    }
    return now + work;
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

  // A rendezvous: the second of the two ends to post sets the message off and wakes the first.
  void post(int rank, MessageId id) {
    double& posted = posted_[message_index(rank, id)];
    const double now = state(rank).now;
    if (posted == kUnknown) {
      posted = now;
      return;
    }
    const Message message = schedule(rank).message(id);
    arrive(rank, id, std::max(posted, now),
           message.from_rank == stage_of(rank) ? message.to_rank : message.from_rank);
  }

  void arrive(int rank, MessageId id, double start, int waiting_stage) {
    const int replica = replica_of(rank);
    const std::size_t index = message_index(rank, id);
    if (!starts_.empty()) starts_[index] = start;
    arrival_[index] =
        start + (message_times_.empty() ? transfers_[transfer_index(replica, id)] : message_times_[index]);
    ready_.push_back(replica * plan_.stages() + waiting_stage);
  }

  void enter(int rank, int id) {
    RankState& at = state(rank);
    CollectiveState& collective = collectives_[static_cast<std::size_t>(id)];
    if (!collective.entered) {
      collective.entered = true;
      collective.missing = flows_.members(id).size();
      double& duration = durations_[static_cast<std::size_t>(id)];
      if (duration == kUnknown) duration = time_of(id);
    }
    if (at.last_collective >= 0) {
      CollectiveState& before = collectives_[static_cast<std::size_t>(at.last_collective)];
      if (before.end == kUnknown) {
        before.then.push_back(id);
        ++collective.missing;
      } else {
        collective.start = std::max(collective.start, before.end);
      }
    }
    at.last_collective = id;
    at.launched.push_back(id);
    collective.start = std::max(collective.start, at.now);
    if (--collective.missing == 0) finish(id);
  }

  // Replicas that do the same at the same time send at the same time: those of one kind with as many
  // microbatches.
  bool in_step(int a, int b) const {
    if (plan_.jitter > 0 || !plan_.slowness.empty()) return a == b;
    return programs_.of_replica[static_cast<std::size_t>(a)] ==
               programs_.of_replica[static_cast<std::size_t>(b)] &&
           plan_.other_prices(a) == plan_.other_prices(b);
  }

  std::vector<int> in_step_with(int replica) const {
    std::vector<int> all;
    for (int other = 0; other < flows_.replicas(); ++other) {
      if (in_step(replica, other)) all.push_back(other);
    }
    return all;
  }

  void time_messages(int boundary, bool gradient) {
    const int boundaries = programs_.programs.front().boundaries();
    for (int first = 0; first < flows_.replicas(); ++first) {
      if (first_sender(first) < first) continue;
      std::vector<int> replicas;
      for (int other = first; other < flows_.replicas(); ++other) {
        if (sends_with(first, other)) replicas.push_back(other);
      }
      std::vector<const std::vector<Flow>*> sets;
      for (const int replica : replicas) sets.push_back(&flows_.message(replica, boundary, gradient));
      const std::vector<Seconds> times = each_together(topology_, sets);
      const int kind = (first * boundaries + boundary) * 2 + (gradient ? 1 : 0);
      uses_[static_cast<std::size_t>(kind)] = uses_of(topology_, sets);
      for (std::size_t i = 0; i < replicas.size(); ++i) {
        transfers_[static_cast<std::size_t>((replicas[i] * boundaries + boundary) * 2 + (gradient ? 1 : 0))] =
            times[i].value();
      }
    }
  }

  // Of a collective of one replica: beside those of the replicas in step with it.
  double time_of(int id) const {
    const int slot = id / flows_.replicas(), replica = id % flows_.replicas();
    const PlayedCollective& own = flows_.collective(id);
    if (flows_.replicas() == 1 || flows_.instance(slot, 1) == flows_.instance(slot, 0))
      return time_alone(topology_, own.phases).value();
    double time = 0;
    const std::vector<int> replicas = in_step_with(replica);
    for (std::size_t phase = 0; phase < own.phases.size(); ++phase) {
      std::vector<const std::vector<Flow>*> sets{&own.phases[phase].flows};
      for (const int other : replicas) {
        const auto& phases = flows_.collective(flows_.instance(slot, other)).phases;
        if (other != replica && phase < phases.size()) sets.push_back(&phases[phase].flows);
      }
      time += (each_together(topology_, sets).front() + own.phases[phase].tail).value();
    }
    return time;
  }

  void finish(int id) {
    CollectiveState& collective = collectives_[static_cast<std::size_t>(id)];
    collective.end = collective.start + durations_[static_cast<std::size_t>(id)];
    for (const int rank : collective.waiting) ready_.push_back(rank);
    const std::vector<int> then = std::move(collective.then);
    for (const int next : then) {
      CollectiveState& after = collectives_[static_cast<std::size_t>(next)];
      after.start = std::max(after.start, collective.end);
      if (--after.missing == 0) finish(next);
    }
  }

  bool wait_for(int rank, const Step& step) {
    const int id = flows_.instance(step.slot, replica_of(rank));
    CollectiveState& collective = collectives_[static_cast<std::size_t>(id)];
    if (collective.end == kUnknown) {
      collective.waiting.push_back(rank);
      return false;
    }
    RankState& at = state(rank);
    at.now = std::max(at.now, collective.end);
    if (ends_iteration(plan_, schedule(rank).collectives[static_cast<std::size_t>(step.slot)].role)) {
      note_end(rank, at.now);
    }
    return true;
  }

  const PricedPlan& plan_;
  const PlanPrograms& programs_;
  const Topology& topology_;
  const TrafficFlows& flows_;
  std::vector<RankState> ranks_;
  std::vector<std::size_t> first_message_;  // [replica]
  std::vector<double>
      transfers_;  // [(replica * boundaries + boundary) * 2 + gradient], s: rails differ by way
  std::vector<std::vector<LinkUse>> uses_;  // likewise, of the first of replicas in step with all of them
  std::size_t messages_ = 0;
  std::vector<double> posted_, arrival_;  // [message], s
  std::vector<double> starts_;            // [message], s; empty where every GPU has its own links
  std::vector<double> message_times_;     // [message], s; empty before any met another
  std::vector<CollectiveState> collectives_;
  std::vector<double> durations_;   // [collective], s
  std::vector<CallState> calls_;    // [leader]
  std::vector<double> call_times_;  // [leader][call], s
  std::vector<double> ends_;        // [iteration], s
  std::vector<int> ready_;
};

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
  return Recurrence(plan, programs, topology, flows).run();
}

Seconds estimate_iteration(const PricedPlan& plan, const PlanPrograms& programs, const Topology& topology) {
  const TrafficFlows flows(plan, programs, topology, Folding::on);
  return estimate(plan, programs, topology, flows).iteration;
}

}  // namespace orrery
