#include "sim/replay/replay_recorder.hpp"

#include <algorithm>

namespace orrery {
namespace {

SpanKind span_kind(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::reduce_scatter:
      return SpanKind::reduce_scatter;
    case CollectiveKind::all_gather:
      return SpanKind::all_gather;
    case CollectiveKind::all_reduce:
    case CollectiveKind::all_to_all:
      break;
  }
  return SpanKind::all_reduce;
}

SpanKind span_kind(RankGroup group) {
  switch (group) {
    case RankGroup::tensor:
      break;
    case RankGroup::context:
      return SpanKind::context_exchange;
    case RankGroup::expert:
      return SpanKind::expert_exchange;
  }
  return SpanKind::tensor_collective;
}

}  // namespace

ReplayRecorder::ReplayRecorder(const PricedPlan& plan, const Topology& topology, const TrafficFlows& flows,
                               const ReplayOptions& options)
    : plan_(plan),
      topology_(topology),
      flows_(flows),
      lanes_each_(flows.lanes_each()),
      links_(topology, options.link_bins, options.expected) {}

SpanRow ReplayRecorder::span(std::size_t rank, SpanKind kind) const {
  SpanRow span;
  span.kind = kind;
  span.rank = static_cast<std::int32_t>(rank);
  span.stage = static_cast<std::int16_t>(static_cast<int>(rank) % plan_.stages());
  return span;
}

void ReplayRecorder::message(std::size_t from, const Schedule& schedule, const Message& what, Interval when) {
  SpanRow row = span(from, SpanKind::send);
  row.stream = Stream::network;
  const int part = what.boundary + (what.gradient ? 1 : 0);
  row.chunk = static_cast<std::int16_t>(schedule.chunk_of_part[static_cast<std::size_t>(part)]);
  row.microbatch = what.microbatch;
  row.start = when.start;
  row.end = when.end;
  const int replica = static_cast<int>(from) / plan_.stages();
  const std::vector<Flow>& flows = flows_.message(replica, what.boundary, what.gradient);
  for (const Flow& flow : flows) row.bytes += flow.payload.value() * lanes_each_;
  add(row);
}

void ReplayRecorder::collective(int instance, const std::vector<int>& members, Interval when) {
  const PlayedCollective& collective = flows_.collective(instance);
  SpanRow like;
  like.kind = span_kind(collective.kind);
  like.start = when.start;
  like.end = when.end;
  spans(collective.phases, like, members);
}

void ReplayRecorder::call(int index, const std::vector<int>& members, const SpanRow& like, Interval when) {
  SpanRow row;
  row.kind = span_kind(flows_.calls().call(index).group);
  row.chunk = like.chunk;
  row.microbatch = like.microbatch;
  row.start = when.start;
  row.end = when.end;
  spans(flows_.calls().phases(members.front(), index), row, members);
}

void ReplayRecorder::spans(const std::vector<FlowPhase>& phases, SpanRow like,
                           const std::vector<int>& members) {
  like.stream = Stream::network;
  for (const int member : members) {
    SpanRow row = like;
    row.rank = member;
    row.stage = static_cast<std::int16_t>(member % plan_.stages());
    row.bytes = sent_by(static_cast<std::size_t>(member), phases);
    add(row);
  }
}

double ReplayRecorder::sent_by(std::size_t rank, const std::vector<FlowPhase>& phases) {
  const auto [known, is_new] = sent_.try_emplace({&phases, rank}, 0.0);
  if (!is_new) return known->second;
  const std::unordered_map<int, double>& sent = sent_by_gpus(phases);
  for (const int gpu : plan_.gpus[rank]) {
    const auto found = sent.find(gpu);
    if (found != sent.end()) known->second += found->second * lanes_each_;
  }
  return known->second;
}

const std::unordered_map<int, double>& ReplayRecorder::sent_by_gpus(const std::vector<FlowPhase>& phases) {
  const auto [known, is_new] = sent_by_gpus_.try_emplace(&phases);
  if (!is_new) return known->second;
  for (const FlowPhase& phase : phases) {
    for (const Flow& flow : phase.flows) known->second[flow.from] += flow.payload.value();
  }
  return known->second;
}

Timeline ReplayRecorder::finish(const std::vector<double>& ends) {
  timeline_.makespan = *std::max_element(ends.begin(), ends.end());
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    if (ends[rank] < timeline_.makespan) {
      SpanRow row = span(rank, SpanKind::bubble_drain);
      row.start = ends[rank];
      row.end = timeline_.makespan;
      add(row);
    }
    timeline_.ranks.push_back(rank_info(rank));
  }
  links_.write(timeline_);
  return std::move(timeline_);
}

// A played rank stands for its GPUs, and for those of the replicas folded onto it.
RankInfo ReplayRecorder::rank_info(std::size_t rank) const {
  const std::vector<int>& gpus = plan_.gpus[rank];
  RankInfo info;
  info.device = gpus.front();
  info.node = topology_.device(gpus.front()).node;
  info.gpu = topology_.group_of(gpus.front()).gpu.name;
  info.stage = static_cast<int>(rank) % plan_.stages();
  info.replica = static_cast<int>(rank) / plan_.stages();
  info.gpus = static_cast<int>(gpus.size()) * flows_.replicas_each();
  return info;
}

}  // namespace orrery
