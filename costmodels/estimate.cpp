#include "costmodels/estimate.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "costmodels/traffic.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

Seconds duration(const PartTimes& part, StepKind kind) {
  switch (kind) {
    case StepKind::forward: return part.forward;
    case StepKind::backward: return part.backward;
    case StepKind::weight_gradient: return part.weight_gradient;
    case StepKind::exchange: break;
  }
  return Seconds(0);
}

// Plays the programs by resuming ranks whose messages have become known, each step once.
class Recurrence {
 public:
  Recurrence(const Schedule& schedule, const std::vector<PartTimes>& parts, const std::vector<Seconds>& transfers)
      : schedule_(schedule), parts_(parts), transfers_(transfers) {
    const auto ranks = static_cast<std::size_t>(schedule.ranks);
    const auto messages = static_cast<std::size_t>(schedule.message_count());
    next_step_.assign(ranks, 0);
    now_.assign(ranks, 0.0);
    posted_.assign(messages, kUnknown);
    arrival_.assign(messages, kUnknown);
    entered_exchange_.assign(ranks, false);
  }

  std::vector<Seconds> run() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      ready_.push_back(rank);
      while (!ready_.empty()) {
        const int next = ready_.back();
        ready_.pop_back();
        advance(next);
      }
    }
    std::vector<Seconds> ends;
    for (std::size_t rank = 0; rank < now_.size(); ++rank) {
      ORRERY_ENSURE(next_step_[rank] == schedule_.programs[rank].size());
      ends.emplace_back(now_[rank]);
    }
    return ends;
  }

 private:
  void advance(int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const std::vector<Step>& program = schedule_.programs[at];
    while (next_step_[at] < program.size()) {
      const Step& step = program[next_step_[at]];
      if (!(step.kind == StepKind::exchange ? exchange(rank, step) : compute(rank, step))) return;
      ++next_step_[at];
    }
  }

  // Each returns false when the step must wait for a message whose time is not yet known.
  bool compute(int rank, const Step& step) {
    double& now = now_[static_cast<std::size_t>(rank)];
    double start = now;
    for (const MessageId id : step.awaits) start = std::max(start, arrival_[static_cast<std::size_t>(id)]);
    if (start == kUnknown) return false;
    const auto part = static_cast<std::size_t>(step.chunk * schedule_.ranks + rank);
    now = start + duration(parts_[part], step.kind).value();
    for (const MessageId id : step.sends) arrive(id, now, schedule_.message(id).to_rank);
    return true;
  }

  bool exchange(int rank, const Step& step) {
    const auto at = static_cast<std::size_t>(rank);
    if (!entered_exchange_[at]) {
      entered_exchange_[at] = true;
      for (const MessageId id : step.sends) post(id, rank);
      for (const MessageId id : step.awaits) post(id, rank);
    }
    double end = now_[at];
    for (const MessageId id : step.sends) end = std::max(end, arrival_[static_cast<std::size_t>(id)]);
    for (const MessageId id : step.awaits) end = std::max(end, arrival_[static_cast<std::size_t>(id)]);
    if (end == kUnknown) return false;
    now_[at] = end;
    entered_exchange_[at] = false;
    return true;
  }

  // A rendezvous: the second of the two ends to post sets the message off and wakes the first.
  void post(MessageId id, int rank) {
    double& posted = posted_[static_cast<std::size_t>(id)];
    const double now = now_[static_cast<std::size_t>(rank)];
    if (posted == kUnknown) {
      posted = now;
      return;
    }
    const Message message = schedule_.message(id);
    arrive(id, std::max(posted, now), message.from_rank == rank ? message.to_rank : message.from_rank);
  }

  void arrive(MessageId id, double start, int waiting_rank) {
    const auto boundary = static_cast<std::size_t>(schedule_.message(id).boundary);
    arrival_[static_cast<std::size_t>(id)] = start + transfers_[boundary].value();
    ready_.push_back(waiting_rank);
  }

  const Schedule& schedule_;
  const std::vector<PartTimes>& parts_;
  const std::vector<Seconds>& transfers_;
  std::vector<std::size_t> next_step_;
  std::vector<double> now_, posted_, arrival_;  // s
  std::vector<bool> entered_exchange_;
  std::vector<int> ready_;
};

// Time of a message over every boundary of a replica, all played lanes together.
std::vector<Seconds> transfer_times(const PricedPlan& plan, const Topology& topology, int replica,
                                    const std::vector<int>& lanes) {
  std::vector<Seconds> times;
  std::vector<Flow> flows;
  for (int boundary = 0; boundary + 1 < static_cast<int>(plan.parts.size()); ++boundary) {
    Message message;
    message.boundary = boundary;
    message.from_rank = boundary % plan.stages();
    message.to_rank = (boundary + 1) % plan.stages();
    flows.clear();
    for (const int lane : lanes) flows.push_back(lane_flow(plan, topology, replica, message, lane));
    times.push_back(together(topology, flows));
  }
  return times;
}

Seconds collective_time(const Topology& topology, const TailCollective& collective) {
  std::vector<Flow> flows;
  Seconds tail;
  for (const CollectiveFlows& lane : collective.lanes) {
    flows.insert(flows.end(), lane.flows.begin(), lane.flows.end());
    tail = std::max(tail, lane.tail);
  }
  return together(topology, flows) + tail;
}

// Plays the tail: every rank goes through its steps, a collective starts when its last member is there. All ranks
// list their common collectives in one order, so going round the ranks ends.
Seconds play_tail(const PricedPlan& plan, const Topology& topology, const Tail& tail, std::vector<Seconds> now) {
  std::vector<std::size_t> next(now.size(), 0);
  std::vector<std::size_t> arrived(tail.collectives.size(), 0);
  std::vector<Seconds> start(tail.collectives.size());
  std::vector<std::size_t> ready(now.size());
  for (std::size_t rank = 0; rank < ready.size(); ++rank) ready[rank] = rank;
  while (!ready.empty()) {
    const std::size_t rank = ready.back();
    ready.pop_back();
    if (next[rank] == tail.programs[rank].size()) continue;
    const TailStep step = tail.programs[rank][next[rank]];
    if (step.is_optimizer) {
      now[rank] += plan.optimizer[rank % static_cast<std::size_t>(plan.stages())];
      ++next[rank];
      ready.push_back(rank);
      continue;
    }
    const auto id = static_cast<std::size_t>(step.collective);
    const TailCollective& collective = tail.collectives[id];
    start[id] = std::max(start[id], now[rank]);
    if (++arrived[id] < collective.ranks.size()) continue;
    const Seconds end = start[id] + collective_time(topology, collective);
    for (const int member : collective.ranks) {
      now[static_cast<std::size_t>(member)] = end;
      ++next[static_cast<std::size_t>(member)];
      ready.push_back(static_cast<std::size_t>(member));
    }
  }
  return *std::max_element(now.begin(), now.end());
}

}  // namespace

std::vector<Seconds> pipeline_ends(const Schedule& schedule, const std::vector<PartTimes>& parts,
                                   const std::vector<Seconds>& transfers) {
  return Recurrence(schedule, parts, transfers).run();
}

Seconds estimate_iteration(const PricedPlan& plan, const Schedule& schedule, const Topology& topology) {
  const std::vector<int> lanes = lanes_to_play(plan, topology);
  std::map<std::vector<Seconds>, std::vector<Seconds>> ends_by_transfers;  // replicas that see equal links
  std::vector<Seconds> now;
  for (int replica = 0; replica < plan.replicas; ++replica) {
    std::vector<Seconds> transfers = transfer_times(plan, topology, replica, lanes);
    auto found = ends_by_transfers.find(transfers);
    if (found == ends_by_transfers.end()) {
      std::vector<Seconds> ends = pipeline_ends(schedule, plan.parts, transfers);
      found = ends_by_transfers.emplace(std::move(transfers), std::move(ends)).first;
    }
    now.insert(now.end(), found->second.begin(), found->second.end());
  }
  return play_tail(plan, topology, make_tail(plan, topology, lanes), std::move(now));
}

}  // namespace orrery
