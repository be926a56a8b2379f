#include "sim/replay/replay.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "costmodels/estimate/estimate.hpp"
#include "platforms/errors.hpp"
#include "sim/replay/collective_player.hpp"
#include "sim/replay/idle.hpp"
#include "sim/replay/network.hpp"
#include "sim/replay/part_player.hpp"
#include "sim/replay/replay_recorder.hpp"
#include "sim/replay/replay_state.hpp"

namespace orrery {
namespace {

class Player : public EventSink, private PartHost, private CollectiveHost {
 public:
  Player(const PricedPlan& plan, const PlanPrograms& programs, const Topology& topology,
         const TrafficFlows& flows, const ReplayOptions& options)
      : plan_(plan),
        programs_(programs),
        flows_(flows),
        network_(topology),
        recorder_(plan, topology, flows, options),
        parts_(flows, network_, recorder_, *this),
        collectives_(flows, network_, recorder_, *this) {
    ranks_.resize(static_cast<std::size_t>(flows.ranks()));
    running_.resize(ranks_.size());
    second_starts_.resize(ranks_.size());
    std::size_t messages = 0;
    for (int replica = 0; replica < flows.replicas(); ++replica) {
      first_message_.push_back(messages);
      messages += static_cast<std::size_t>(programs.of(replica).message_count());
    }
    messages_.resize(messages);
    ends_.assign(static_cast<std::size_t>(plan.iterations), 0.0);
    recorder_.reserve(steps() * 2 + messages);
    network_.only_links(flows.links_crossed());
    if (recorder_.links().on()) network_.watch(recorder_.links());
  }

  Replay run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) advance(rank);
    network_.run(*this);
    check_finished();
    std::vector<double> ends_of_ranks;
    for (const RankState& state : ranks_) ends_of_ranks.push_back(state.idle_since);
    return {recorder_.finish(ends_of_ranks), std::move(ends_), std::move(second_starts_)};
  }

  void on_event(std::uint32_t tag) override {
    const std::size_t index = index_of(tag);
    switch (subject_of(tag)) {
      case Subject::rank:
        return compute_may_have_ended(index);
      case Subject::message:
        return flow_of_message_ended(index);
      case Subject::collective:
        return collectives_.flow_ended(index);
      case Subject::collective_end:
        return collectives_.phase_ended(index);
      case Subject::call:
        return parts_.flow_ended(index);
      case Subject::call_end:
        return parts_.phase_ended(index);
    }
  }

 private:
  int stage_of(std::size_t rank) const { return static_cast<int>(rank) % plan_.stages(); }
  int replica_of(std::size_t rank) const { return static_cast<int>(rank) / plan_.stages(); }
  const Schedule& schedule(std::size_t rank) const { return programs_.of(replica_of(rank)); }
  const std::vector<Step>& program(std::size_t rank) const {
    return schedule(rank).programs[static_cast<std::size_t>(stage_of(rank))];
  }
  std::size_t message_index(std::size_t rank, MessageId id) const {
    return first_message_[static_cast<std::size_t>(replica_of(rank))] + static_cast<std::size_t>(id);
  }
  MessageState& message(std::size_t rank, MessageId id) { return messages_[message_index(rank, id)]; }
  std::size_t instance(std::size_t rank, const Step& step) const {
    return static_cast<std::size_t>(flows_.instance(step.slot, replica_of(rank)));
  }
  std::size_t steps() const {
    std::size_t count = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) count += program(rank).size();
    return count;
  }

  // Goes on with a rank until it computes, waits or is done.
  void advance(std::size_t rank) override {
    RankState& state = ranks_[rank];
    while (!state.busy && state.step < program(rank).size()) {
      if (!play(rank, program(rank)[state.step])) return;
    }
  }

  // Returns false when the rank waits. A step that is over has been stepped past; one that computes is not.
  bool play(std::size_t rank, const Step& step) {
    switch (step.kind) {
      case StepKind::forward:
      case StepKind::backward:
      case StepKind::weight_gradient:
        return start_compute(rank, step);
      case StepKind::exchange:
        return advance_exchange(rank, step);
      case StepKind::launch:
        collectives_.enter(rank, instance(rank, step));
        next_step(rank);
        return true;
      case StepKind::join:
        if (!ranks_[rank].entered) {
          ranks_[rank].entered = true;
          collectives_.enter(rank, instance(rank, step));
        }
        return pass_collective(rank, step);
      case StepKind::await:
        return pass_collective(rank, step);
      case StepKind::optimizer:
        return start_optimizer(rank);
    }
    return true;
  }

  void next_step(std::size_t rank) {
    ranks_[rank].entered = false;
    ++ranks_[rank].step;
  }

  bool start_compute(std::size_t rank, const Step& step) {
    for (const MessageId id : step.awaits) {
      if (message(rank, id).end == kNever) return false;
    }
    record_wait(rank, step, {step.awaits});
    const int part_index = schedule(rank).part(stage_of(rank), step.chunk);
    const PartTimes& part = plan_.part_times(replica_of(rank), part_index);
    RankState& state = ranks_[rank];
    const int iteration = step.microbatch / schedule(rank).shape.microbatches;
    if (iteration == 1 && state.iteration == 0) second_starts_[rank] = network_.now();
    state.iteration = iteration;
    const double factor = duration_factor(plan_, static_cast<int>(rank), state.iteration, state.step);
    const double share = 1.0 / step.pieces;
    SpanRow span = recorder_.span(rank, SpanKind::weight_gradient);
    span.chunk = step.chunk;
    span.microbatch = step.microbatch;
    double work = part.weight_gradient.value();
    span.flops = part.weight_gradient_flops.value() * share;
    if (step.kind == StepKind::forward) {
      span.kind = SpanKind::forward;
      work = part.forward.value();
      span.tensor_communication = part.forward_tensor.value() * share * factor;
      span.flops = part.forward_flops.value() * share;
    } else if (step.kind == StepKind::backward) {
      span.kind = SpanKind::backward;
      work = part.backward.value();
      span.tensor_communication = part.backward_tensor.value() * share * factor;
      span.flops = part.backward_flops.value() * share;
    }
    if (const auto* pieces = pieces_of(part, step.kind)) {
      state.busy = true;
      parts_.start(rank, span, {pieces, step.pieces, factor});
    } else {
      start_work(rank, span, work * share * factor);
    }
    return true;
  }

  bool start_optimizer(std::size_t rank) {
    const double factor =
        duration_factor(plan_, static_cast<int>(rank), ranks_[rank].iteration, ranks_[rank].step);
    start_work(rank, recorder_.span(rank, SpanKind::optimizer),
               plan_.optimizer_step(replica_of(rank), stage_of(rank)).value() * factor);
    return true;
  }

  void start_work(std::size_t rank, SpanRow span, double work) override {
    span.start = network_.now();
    running_[rank] = {span, work, span.start, kNever};
    ranks_[rank].busy = ranks_[rank].computes = true;
    schedule_end(rank);
  }
  bool computes(std::size_t rank) const override { return ranks_[rank].computes; }

  double slowdown(std::size_t rank) const {
    const bool slowed =
        ranks_[rank].collectives_running > 0 && running_[rank].span.kind != SpanKind::optimizer;
    return slowed ? plan_.overlap_slowdown : 1.0;
  }

  void schedule_end(std::size_t rank) {
    Running& running = running_[rank];
    const double duration = running.work_left * slowdown(rank);
    running.ends = network_.now() + duration;
    network_.after(duration, tag_of(Subject::rank, rank));
  }

  // A collective on the rank's GPUs starts (+1) or ends (-1): what it computes goes on at another speed.
  void change_collectives(std::size_t rank, int change) override {
    const double before = slowdown(rank);
    if (ranks_[rank].computes) {
      Running& running = running_[rank];
      running.work_left -= (network_.now() - running.since) / before;
      running.since = network_.now();
    }
    ranks_[rank].collectives_running += change;
    if (ranks_[rank].computes && slowdown(rank) != before) schedule_end(rank);
  }

  void compute_may_have_ended(std::size_t rank) {
    RankState& state = ranks_[rank];
    if (!state.computes || network_.now() < running_[rank].ends) return;  // its end was moved since
    SpanRow& span = running_[rank].span;
    span.end = network_.now();
    recorder_.add(span);
    state.computes = false;
    state.idle_since = span.end;
    if (parts_.plays(rank)) {
      parts_.computed(rank);
    } else {
      task_over(rank);
    }
  }

  void call_over(std::size_t rank, Interval call) override {
    const Phase phase = program(rank)[ranks_[rank].step].phase;
    record_idle(rank, {call}, SpanKind::exposed_tp, bubble_of(phase));
  }

  void task_over(std::size_t rank) override {
    ranks_[rank].busy = false;
    note_end(rank);
    const Step& step = program(rank)[ranks_[rank].step];
    next_step(rank);
    for (const MessageId id : step.sends) send(rank, id);
    advance(rank);
  }

  void note_end(std::size_t rank) {
    double& end = ends_[static_cast<std::size_t>(ranks_[rank].iteration)];
    end = std::max(end, network_.now());
  }

  bool advance_exchange(std::size_t rank, const Step& step) {
    RankState& state = ranks_[rank];
    if (!state.entered) {
      state.entered = true;
      state.exchange_left = step.sends.count + step.awaits.count;
      for (const MessageId id : step.sends) post(rank, id);
      for (const MessageId id : step.awaits) post(rank, id);
    }
    if (state.exchange_left > 0) return false;
    record_wait(rank, step, {step.sends, step.awaits});
    next_step(rank);
    return true;
  }

  void post(std::size_t rank, MessageId id) {
    MessageState& state = message(rank, id);
    if (state.posted) {
      send(rank, id);
    } else {
      state.posted = true;
    }
  }

  // Starts the flows of a message of the replica that `rank` belongs to.
  void send(std::size_t rank, MessageId id) {
    const std::size_t index = message_index(rank, id);
    const Message what = schedule(rank).message(id);
    const std::vector<Flow>& flows = flows_.message(replica_of(rank), what.boundary, what.gradient);
    messages_[index].start = network_.now();
    messages_[index].flows_left = static_cast<std::uint32_t>(flows.size());
    for (const Flow& flow : flows) network_.start_flow(flow, tag_of(Subject::message, index));
  }

  void flow_of_message_ended(std::size_t index) {
    MessageState& state = messages_[index];
    if (--state.flows_left > 0) return;
    state.end = network_.now();
    const auto after = std::upper_bound(first_message_.begin(), first_message_.end(), index);
    const auto replica = static_cast<std::size_t>(after - first_message_.begin()) - 1;
    const Schedule& schedule = programs_.of(static_cast<int>(replica));
    const Message what = schedule.message(static_cast<MessageId>(index - first_message_[replica]));
    const std::size_t first_rank = replica * static_cast<std::size_t>(plan_.stages());
    const std::size_t from = first_rank + static_cast<std::size_t>(what.from_rank);
    const std::size_t to = first_rank + static_cast<std::size_t>(what.to_rank);
    recorder_.message(from, schedule, what, {state.start, state.end});
    for (const std::size_t rank : {to, from}) {
      if (ranks_[rank].exchange_left > 0) --ranks_[rank].exchange_left;
    }
    for (const std::size_t rank : {to, from}) advance(rank);
  }

  bool pass_collective(std::size_t rank, const Step& step) {
    const Interval collective = collectives_.when(instance(rank, step));
    if (collective.end == kNever) return false;
    record_idle(rank, {collective}, SpanKind::exposed_dp, bubble_of(step.phase));
    if (ends_iteration(plan_, schedule(rank).collectives[static_cast<std::size_t>(step.slot)].role))
      note_end(rank);
    next_step(rank);
    return true;
  }

  void record_wait(std::size_t rank, const Step& step, std::initializer_list<MessageList> waited) {
    transfers_.clear();
    for (const MessageList& list : waited) {
      for (const MessageId id : list) {
        const MessageState& state = message(rank, id);
        transfers_.push_back({state.start, state.end});
      }
    }
    record_idle(rank, transfers_, SpanKind::exposed_p2p, bubble_of(step.phase));
  }

  // Records what the rank did from the end of its last span until now: nothing.
  void record_idle(std::size_t rank, const std::vector<Interval>& transfers, SpanKind exposed,
                   SpanKind bubble) {
    RankState& state = ranks_[rank];
    split_idle({state.idle_since, network_.now()}, transfers, exposed, bubble, pieces_);
    for (const IdlePiece& piece : pieces_) {
      SpanRow span = recorder_.span(rank, piece.kind);
      span.start = piece.when.start;
      span.end = piece.when.end;
      recorder_.add(span);
    }
    state.idle_since = std::max(state.idle_since, network_.now());
  }

  // What a rank that never finished was waiting for.
  std::string awaited(std::size_t rank) const {
    const Step& step = program(rank)[ranks_[rank].step];
    if (step.kind == StepKind::join || step.kind == StepKind::await) return "the other ranks of a collective";
    MessageList ids = step.awaits;
    if (step.kind == StepKind::exchange) ids = step.awaits.count > 0 ? step.awaits : step.sends;
    for (const MessageId id : ids) {
      if (messages_[message_index(rank, id)].end != kNever) continue;
      const Message what = schedule(rank).message(id);
      return std::string(what.gradient ? "the gradient" : "the activation") + " of microbatch " +
             std::to_string(what.microbatch) + " from stage " + std::to_string(what.from_rank) +
             " to stage " + std::to_string(what.to_rank);
    }
    return "nothing known";
  }

  void check_finished() const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].step == program(rank).size()) continue;
      throw Defect("the schedule cannot finish: stage " + std::to_string(stage_of(rank)) + " of replica " +
                   std::to_string(replica_of(rank)) + " is stuck at step " +
                   std::to_string(ranks_[rank].step) + " of " + std::to_string(program(rank).size()) +
                   ", waiting for " + awaited(rank));
    }
  }

  const PricedPlan& plan_;
  const PlanPrograms& programs_;
  const TrafficFlows& flows_;
  Network network_;
  ReplayRecorder recorder_;
  PartPlayer parts_;
  CollectivePlayer collectives_;
  std::vector<RankState> ranks_;            // [replica * P + stage]
  std::vector<Running> running_;            // likewise
  std::vector<std::size_t> first_message_;  // [replica]
  std::vector<MessageState> messages_;
  std::vector<double> ends_;           // [iteration], s
  std::vector<double> second_starts_;  // [rank], s
  std::vector<Interval> transfers_;    // scratch
  std::vector<IdlePiece> pieces_;      // scratch
};

}  // namespace

Replay replay(const PricedPlan& plan, const PlanPrograms& programs, const Topology& topology,
              const TrafficFlows& flows, const ReplayOptions& options) {
  return Player(plan, programs, topology, flows, options).run();
}

}  // namespace orrery
