#include "sim/replay.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "costmodels/traffic.hpp"
#include "platforms/errors.hpp"
#include "sim/idle.hpp"
#include "sim/link_recorder.hpp"
#include "sim/network.hpp"

namespace orrery {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Tags of events: what they are about in the low two bits, which one above.
enum class Subject : std::uint32_t { rank = 0, message = 1, collective = 2, collective_end = 3 };
std::uint32_t tag_of(Subject subject, std::size_t index) {
  return static_cast<std::uint32_t>(index << 2U) | static_cast<std::uint32_t>(subject);
}

struct MessageState {
  double start = kNever;  // s, when its flows set off
  double end = kNever;    // s, when the last of them arrived
  std::uint16_t flows_left = 0;
  bool posted = false;  // by one end of a rendezvous
};

struct CollectiveState {
  std::size_t missing = 0;     // members not there yet
  std::size_t flows_left = 0;  // of all lanes
  double start = kNever;
};

// Where a pipeline rank of one replica stands.
struct RankState {
  std::size_t step = 0;  // in its program; past the end: in its tail
  std::size_t tail_step = 0;
  double idle_since = 0;       // s, end of its last span
  int exchange_left = 0;       // messages of the exchange it is in that are not over
  bool busy = false;           // computing: an event of its own will come
  bool in_exchange = false;
  bool in_collective = false;
};

class Player : public EventSink {
 public:
  Player(const PricedPlan& plan, const Schedule& schedule, const Topology& topology, const ReplayOptions& options)
      : plan_(plan),
        schedule_(schedule),
        topology_(topology),
        lanes_(lanes_to_play(plan, topology)),
        all_lanes_(static_cast<int>(plan.gpus.front().size())),
        tail_(make_tail(plan, topology, lanes_)),
        network_(topology),
        recorder_(topology, options.link_bins, options.expected) {
    ranks_.resize(plan.gpus.size());
    messages_.resize(static_cast<std::size_t>(schedule.message_count()) * static_cast<std::size_t>(plan.replicas));
    for (const TailCollective& collective : tail_.collectives) {
      CollectiveState state;
      state.missing = collective.ranks.size();
      for (const CollectiveFlows& lane : collective.lanes) state.flows_left += lane.flows.size();
      collectives_.push_back(state);
    }
    reserve();
  }

  Timeline run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) advance(rank);
    network_.run(*this);
    check_finished();
    return finish();
  }

  void on_event(std::uint32_t tag) override {
    const std::size_t index = tag >> 2U;
    switch (static_cast<Subject>(tag & 3U)) {
      case Subject::rank: return compute_ended(index);
      case Subject::message: return flow_of_message_ended(index);
      case Subject::collective: return flow_of_collective_ended(index);
      case Subject::collective_end: return collective_ended(index);
    }
  }

 private:
  int stage_of(std::size_t rank) const { return static_cast<int>(rank % static_cast<std::size_t>(plan_.stages())); }
  std::size_t replica_of(std::size_t rank) const { return rank / static_cast<std::size_t>(plan_.stages()); }
  const std::vector<Step>& program(std::size_t rank) const {
    return schedule_.programs[static_cast<std::size_t>(stage_of(rank))];
  }
  std::size_t message_index(std::size_t rank, MessageId id) const {
    return replica_of(rank) * static_cast<std::size_t>(schedule_.message_count()) + static_cast<std::size_t>(id);
  }
  MessageState& message(std::size_t rank, MessageId id) { return messages_[message_index(rank, id)]; }
  const PartTimes& part(std::size_t rank, const Step& step) const {
    return plan_.parts[static_cast<std::size_t>(step.chunk * plan_.stages() + stage_of(rank))];
  }

  // Goes on with a rank until it computes, waits or is done.
  void advance(std::size_t rank) {
    RankState& state = ranks_[rank];
    while (!state.busy) {
      if (state.step == program(rank).size()) {
        if (!advance_tail(rank)) return;
        continue;
      }
      const Step& step = program(rank)[state.step];
      if (!(step.kind == StepKind::exchange ? advance_exchange(rank, step) : start_compute(rank, step))) return;
    }
  }

  bool start_compute(std::size_t rank, const Step& step) {
    for (const MessageId id : step.awaits) {
      if (message(rank, id).end == kNever) return false;
    }
    record_wait(rank, step, step.awaits);
    const PartTimes& times = part(rank, step);
    SpanRow span = span_of(rank, step.kind == StepKind::forward    ? SpanKind::forward
                                 : step.kind == StepKind::backward ? SpanKind::backward
                                                                   : SpanKind::weight_gradient);
    Seconds duration = times.weight_gradient;
    if (step.kind == StepKind::forward) {
      duration = times.forward;
      span.tensor_communication = times.forward_tensor.value();
      span.flops = times.forward_flops.value();
    } else if (step.kind == StepKind::backward) {
      duration = times.backward;
      span.tensor_communication = times.backward_tensor.value();
      span.flops = times.backward_flops.value();
    }
    span.chunk = step.chunk;
    span.microbatch = step.microbatch;
    start_busy(rank, span, duration);
    return true;
  }

  void start_busy(std::size_t rank, SpanRow span, Seconds duration) {
    span.start = network_.now();
    span.end = span.start + duration.value();
    append(timeline_.spans, span);
    ranks_[rank].busy = true;
    ranks_[rank].idle_since = span.end;
    network_.after(duration.value(), tag_of(Subject::rank, rank));
  }

  void compute_ended(std::size_t rank) {
    RankState& state = ranks_[rank];
    state.busy = false;
    state.idle_since = network_.now();
    if (state.step < program(rank).size()) {
      const Step& step = program(rank)[state.step];
      ++state.step;
      for (const MessageId id : step.sends) send(rank, id);
    } else {
      ++state.tail_step;
    }
    advance(rank);
  }

  bool advance_exchange(std::size_t rank, const Step& step) {
    RankState& state = ranks_[rank];
    if (!state.in_exchange) {
      state.in_exchange = true;
      state.exchange_left = step.sends.count + step.awaits.count;
      for (const MessageId id : step.sends) post(rank, id);
      for (const MessageId id : step.awaits) post(rank, id);
    }
    if (state.exchange_left > 0) return false;
    MessageList both = step.sends;
    for (const MessageId id : step.awaits) both.push(id);
    record_wait(rank, step, both);
    state.in_exchange = false;
    ++state.step;
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
    MessageState& state = messages_[index];
    state.start = network_.now();
    state.flows_left = static_cast<std::uint16_t>(lanes_.size());
    const Message what = schedule_.message(id);
    const int replica = static_cast<int>(replica_of(rank));
    for (const int lane : lanes_) {
      const Flow flow = lane_flow(plan_, topology_, replica, what, lane);
      start(flow, tag_of(Subject::message, index));
    }
  }

  void start(const Flow& flow, std::uint32_t tag) {
    network_.start_flow(topology_.route(flow.from, flow.to), topology_.path(flow.from, flow.to).latency, flow.wire, tag);
  }

  void flow_of_message_ended(std::size_t index) {
    MessageState& state = messages_[index];
    if (--state.flows_left > 0) return;
    state.end = network_.now();
    const auto count = static_cast<std::size_t>(schedule_.message_count());
    const Message what = schedule_.message(static_cast<MessageId>(index % count));
    const std::size_t first_rank = index / count * static_cast<std::size_t>(plan_.stages());
    const std::size_t from = first_rank + static_cast<std::size_t>(what.from_rank);
    const std::size_t to = first_rank + static_cast<std::size_t>(what.to_rank);
    record_message(from, what, state);
    for (const std::size_t rank : {to, from}) {
      if (ranks_[rank].in_exchange) --ranks_[rank].exchange_left;
    }
    for (const std::size_t rank : {to, from}) advance(rank);
  }

  // Returns false when the rank waits or is done.
  bool advance_tail(std::size_t rank) {
    RankState& state = ranks_[rank];
    if (state.in_collective || state.tail_step == tail_.programs[rank].size()) return false;
    const TailStep step = tail_.programs[rank][state.tail_step];
    if (step.is_optimizer) {
      start_busy(rank, span_of(rank, SpanKind::optimizer), plan_.optimizer[static_cast<std::size_t>(stage_of(rank))]);
      return true;
    }
    state.in_collective = true;
    const auto id = static_cast<std::size_t>(step.collective);
    if (--collectives_[id].missing == 0) start_collective(id);
    return false;
  }

  void start_collective(std::size_t id) {
    collectives_[id].start = network_.now();
    for (const CollectiveFlows& lane : tail_.collectives[id].lanes) {
      for (const Flow& flow : lane.flows) {
        start(flow, tag_of(Subject::collective, id));
      }
    }
  }

  void flow_of_collective_ended(std::size_t id) {
    if (--collectives_[id].flows_left > 0) return;
    Seconds tail;
    for (const CollectiveFlows& lane : tail_.collectives[id].lanes) tail = std::max(tail, lane.tail);
    network_.after(tail.value(), tag_of(Subject::collective_end, id));
  }

  void collective_ended(std::size_t id) {
    const TailCollective& collective = tail_.collectives[id];
    const Interval transfer{collectives_[id].start, network_.now()};
    for (const int member : collective.ranks) {
      const auto rank = static_cast<std::size_t>(member);
      RankState& state = ranks_[rank];
      record_idle(rank, {transfer}, SpanKind::exposed_dp, SpanKind::bubble_drain);
      record_collective(rank, collective, transfer);
      state.in_collective = false;
      ++state.tail_step;
    }
    for (const int member : collective.ranks) advance(static_cast<std::size_t>(member));
  }

  SpanRow span_of(std::size_t rank, SpanKind kind) const {
    SpanRow span;
    span.kind = kind;
    span.rank = static_cast<std::int32_t>(rank);
    span.stage = static_cast<std::int16_t>(stage_of(rank));
    return span;
  }

  void record_wait(std::size_t rank, const Step& step, const MessageList& waited) {
    transfers_.clear();
    for (const MessageId id : waited) {
      const MessageState& state = message(rank, id);
      transfers_.push_back({state.start, state.end});
    }
    record_idle(rank, transfers_, SpanKind::exposed_p2p, bubble_of(step.phase));
  }

  // Records what the rank did from the end of its last span until now: nothing.
  void record_idle(std::size_t rank, const std::vector<Interval>& transfers, SpanKind exposed, SpanKind bubble) {
    RankState& state = ranks_[rank];
    split_idle({state.idle_since, network_.now()}, transfers, exposed, bubble, pieces_);
    for (const IdlePiece& piece : pieces_) {
      SpanRow span = span_of(rank, piece.kind);
      span.start = piece.when.start;
      span.end = piece.when.end;
      append(timeline_.spans, span);
    }
    state.idle_since = std::max(state.idle_since, network_.now());
  }

  void record_message(std::size_t from, const Message& what, const MessageState& state) {
    SpanRow span = span_of(from, SpanKind::send);
    span.stream = Stream::network;
    span.chunk = static_cast<std::int16_t>((what.boundary + (what.gradient ? 1 : 0)) / plan_.stages());
    span.microbatch = what.microbatch;
    span.start = state.start;
    span.end = state.end;
    span.bytes = plan_.boundaries[static_cast<std::size_t>(what.boundary)].bytes.value() * all_lanes_;
    append(timeline_.spans, span);
    if (!recorder_.on()) return;
    for (int lane = 0; lane < all_lanes_; ++lane) {
      recorder_.add(lane_flow(plan_, topology_, static_cast<int>(replica_of(from)), what, lane), {state.start, state.end});
    }
  }

  void record_collective(std::size_t rank, const TailCollective& collective, Interval when) {
    SpanRow span = span_of(rank, span_kind(collective.lanes.front().kind));
    span.stream = Stream::network;
    span.start = when.start;
    span.end = when.end;
    for (const CollectiveFlows& lane : collective.lanes) {
      for (const Flow& flow : lane.flows) {
        const std::vector<int>& gpus = plan_.gpus[rank];
        const bool mine = std::find(gpus.begin(), gpus.end(), flow.from) != gpus.end();
        if (mine) span.bytes += flow.payload.value() * all_lanes_ / static_cast<double>(lanes_.size());
      }
    }
    append(timeline_.spans, span);
    if (!recorder_.on() || static_cast<int>(rank) != collective.ranks.front()) return;
    for (const CollectiveFlows& lane : collective.lanes) {
      for (const Flow& flow : lane.flows) recorder_.add(flow, when);
    }
  }

  static SpanKind span_kind(CollectiveKind kind) {
    switch (kind) {
      case CollectiveKind::reduce_scatter: return SpanKind::reduce_scatter;
      case CollectiveKind::all_gather: return SpanKind::all_gather;
      case CollectiveKind::all_reduce:
      case CollectiveKind::all_to_all: break;
    }
    return SpanKind::all_reduce;
  }

  void reserve() {
    std::size_t steps = 0;
    for (const auto& steps_of_rank : schedule_.programs) steps += steps_of_rank.size();
    const auto replicas = static_cast<std::size_t>(plan_.replicas);
    timeline_.spans.reserve(2 * steps * replicas + messages_.size() + 4 * ranks_.size());
  }

  void check_finished() const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankState& state = ranks_[rank];
      if (state.step == program(rank).size() && state.tail_step == tail_.programs[rank].size()) continue;
      throw Defect("the schedule cannot finish: stage " + std::to_string(stage_of(rank)) + " of replica " +
                   std::to_string(replica_of(rank)) + " is stuck at step " + std::to_string(state.step) + " of " +
                   std::to_string(program(rank).size()));
    }
  }

  Timeline finish() {
    for (const RankState& state : ranks_) timeline_.makespan = std::max(timeline_.makespan, state.idle_since);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].idle_since < timeline_.makespan) {
        SpanRow span = span_of(rank, SpanKind::bubble_drain);
        span.start = ranks_[rank].idle_since;
        span.end = timeline_.makespan;
        append(timeline_.spans, span);
      }
      timeline_.ranks.push_back(rank_info(rank));
    }
    recorder_.write(timeline_);
    return std::move(timeline_);
  }

  RankInfo rank_info(std::size_t rank) const {
    const std::vector<int>& gpus = plan_.gpus[rank];
    RankInfo info;
    info.device = gpus.front();
    info.node = topology_.device(gpus.front()).node;
    info.gpu = topology_.group_of(gpus.front()).gpu.name;
    info.stage = stage_of(rank);
    info.replica = static_cast<int>(replica_of(rank));
    info.gpus = static_cast<int>(gpus.size());
    return info;
  }

  const PricedPlan& plan_;
  const Schedule& schedule_;
  const Topology& topology_;
  std::vector<int> lanes_;  // played
  int all_lanes_;           // of the plan
  Tail tail_;
  Network network_;
  LinkRecorder recorder_;
  std::vector<RankState> ranks_;        // [replica * P + stage]
  std::vector<MessageState> messages_;  // [replica][message id]
  std::vector<CollectiveState> collectives_;
  Timeline timeline_;
  std::vector<Interval> transfers_;  // scratch
  std::vector<IdlePiece> pieces_;    // scratch
};

}  // namespace

Timeline replay(const PricedPlan& plan, const Schedule& schedule, const Topology& topology,
                const ReplayOptions& options) {
  return Player(plan, schedule, topology, options).run();
}

}  // namespace orrery
