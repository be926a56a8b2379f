// Writes down what a replay does.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "costmodels/estimate/traffic.hpp"
#include "sim/replay/idle.hpp"
#include "sim/replay/link_recorder.hpp"
#include "sim/replay/replay.hpp"

namespace orrery {

class ReplayRecorder {
 public:
  ReplayRecorder(const PricedPlan&, const Topology&, const TrafficFlows&, const ReplayOptions&);

  void reserve(std::size_t spans) { timeline_.spans.reserve(spans); }
  [[nodiscard]] SpanRow span(std::size_t rank, SpanKind) const;  // with its rank and stage filled in
  void add(const SpanRow& span) { append(timeline_.spans, span); }
  void message(std::size_t from, const Schedule&, const Message&, Interval when);
  void collective(int instance, const std::vector<int>& members, Interval when);
  // A call of parts that `like` says chunk and microbatch of.
  void call(int index, const std::vector<int>& members, const SpanRow& like, Interval when);
  LinkRecorder& links() { return links_; }
  // `ends[rank]`: end of its last span. What is left until the makespan is drain.
  Timeline finish(const std::vector<double>& ends);

 private:
  // A span of the network stream on each member: its rank, and the bytes its GPUs send.
  void spans(const std::vector<FlowPhase>&, SpanRow like, const std::vector<int>& members);
  double sent_by(std::size_t rank, const std::vector<FlowPhase>&);
  const std::unordered_map<int, double>& sent_by_gpus(const std::vector<FlowPhase>&);
  [[nodiscard]] RankInfo rank_info(std::size_t rank) const;

  const PricedPlan& plan_;
  const Topology& topology_;
  const TrafficFlows& flows_;
  double lanes_each_;
  // B that the GPUs of a rank send in phases. Those of a plan's flows stay where they are.
  std::map<std::pair<const std::vector<FlowPhase>*, std::size_t>, double> sent_;
  std::unordered_map<const std::vector<FlowPhase>*, std::unordered_map<int, double>> sent_by_gpus_;
  LinkRecorder links_;
  Timeline timeline_;
};

}  // namespace orrery
