#include "costmodels/estimate/host_traffic.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "costmodels/estimate/traffic.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

void add_hops(TrafficClass& to, const std::vector<Flow>& flows) {
  for (const Flow& flow : flows) {
    if (flow.from != flow.to) to.hops.push_back({flow.from, flow.to, flow.wire});
  }
}

// Phase by phase, those of all replicas side by side.
class PhaseClasses {
 public:
  void add(const std::vector<FlowPhase>& phases) {
    if (classes_.size() < phases.size()) classes_.resize(phases.size());
    for (std::size_t i = 0; i < phases.size(); ++i) add_hops(classes_[i], phases[i].flows);
  }
  void finish(double times, std::vector<TrafficClass>& all) {
    for (TrafficClass& phase : classes_) {
      phase.times = times;
      if (!phase.hops.empty()) all.push_back(std::move(phase));
    }
  }

 private:
  std::vector<TrafficClass> classes_;
};

// How often parts of a stage play a call for one microbatch.
std::map<int, int> uses_of_calls(const PricedPlan& plan, int stage) {
  std::map<int, int> uses;
  for (int part = 0; part < static_cast<int>(plan.parts.size()); ++part) {
    if (plan.rank_of_part(part) != stage) continue;
    const PartTimes& times = plan.part_times(0, part);
    for (const auto* pieces : {&times.forward_pieces, &times.backward_pieces}) {
      for (const PlayedPiece& piece : *pieces) {
        if (piece.call) ++uses[*piece.call];
      }
    }
  }
  return uses;
}

int most_microbatches(const PricedPlan& plan, const PlanPrograms& programs) {
  int most = 0;
  for (int replica = 0; replica < plan.replicas; ++replica) {
    most = std::max(most, programs.of(replica).shape.microbatches);
  }
  return most;
}

}  // namespace

std::vector<TrafficClass> traffic_classes(const PricedPlan& plan, const PlanPrograms& programs,
                                          const Topology& topology) {
  const TrafficFlows flows(plan, programs, topology, Folding::off);
  const Schedule& schedule = programs.programs.front();
  const int microbatches = most_microbatches(plan, programs);
  std::vector<TrafficClass> all;
  for (int boundary = 0; boundary < schedule.boundaries(); ++boundary) {
    for (const bool gradient : {false, true}) {
      TrafficClass messages{{}, static_cast<double>(microbatches)};
      for (int replica = 0; replica < plan.replicas; ++replica) {
        add_hops(messages, flows.message(replica, boundary, gradient));
      }
      if (!messages.hops.empty()) all.push_back(std::move(messages));
    }
  }
  for (int slot = 0; slot < static_cast<int>(schedule.collectives.size()); ++slot) {
    std::set<int> instances;
    for (int replica = 0; replica < plan.replicas; ++replica) instances.insert(flows.instance(slot, replica));
    PhaseClasses classes;
    for (const int instance : instances) classes.add(flows.collective(instance).phases);
    classes.finish(1.0 / plan.iterations, all);
  }
  for (int stage = 0; stage < plan.stages() && !plan.calls.empty(); ++stage) {
    for (const auto& [call, uses] : uses_of_calls(plan, stage)) {
      PhaseClasses classes;
      for (int replica = 0; replica < plan.replicas; ++replica) {
        const int rank = replica * plan.stages() + stage;
        if (flows.calls().leader(rank, call) == rank) classes.add(flows.calls().phases(rank, call));
      }
      classes.finish(static_cast<double>(uses) * microbatches, all);
    }
  }
  return all;
}

HostTraffic::HostTraffic(const std::vector<TrafficClass>& classes, const Topology& topology)
    : classes_(classes),
      topology_(topology),
      shared_(topology.cluster().contention == Contention::shared),
      busy_(topology.links().size(), 0.0) {
  ORRERY_ENSURE(!topology.has_cut());
  for (int gpu = 0; gpu < topology.gpus(); ++gpu) {
    if (topology.device(gpu).local == 0) first_gpu_.push_back(gpu);
  }
  hosts_.resize(first_gpu_.size());
  std::iota(hosts_.begin(), hosts_.end(), 0);
  classes_of_.resize(hosts_.size());
  for (std::size_t i = 0; i < classes.size(); ++i) {
    std::set<int> nodes;
    for (const TrafficClass::Hop& hop : classes[i].hops) {
      nodes.insert({topology.device(hop.from).node, topology.device(hop.to).node});
      if (!topology.same_node(hop.from, hop.to)) bytes_ += hop.wire.value() * classes[i].times;
    }
    for (const int node : nodes) classes_of_[at(node)].push_back(static_cast<int>(i));
    costs_.push_back(cost_of(classes[i]));
  }
}

TrafficCost HostTraffic::cost() const {
  ClassCost sum;
  for (std::size_t i = 0; i < costs_.size(); ++i) {
    sum.seconds += costs_[i].seconds * classes_[i].times;
    sum.crossing += costs_[i].crossing * classes_[i].times;
  }
  return {Seconds(sum.seconds), Seconds(sum.crossing), Bytes(bytes_)};
}

void HostTraffic::swap(int node, int other) {
  swap({{node, other}});
}

void HostTraffic::swap(const std::vector<std::pair<int, int>>& nodes) {
  std::set<int> changed;
  for (const auto& [a, b] : nodes) {
    std::swap(hosts_[at(a)], hosts_[at(b)]);
    for (const int node : {a, b}) changed.insert(classes_of_[at(node)].begin(), classes_of_[at(node)].end());
  }
  swapped_ = nodes;
  replaced_.clear();
  for (const int index : changed) {
    replaced_.emplace_back(index, costs_[at(index)]);
    costs_[at(index)] = cost_of(classes_[at(index)]);
  }
}

void HostTraffic::take_back() {
  for (const auto& [a, b] : swapped_) std::swap(hosts_[at(a)], hosts_[at(b)]);
  for (const auto& [index, cost] : replaced_) costs_[at(index)] = cost;
  swapped_.clear();
  replaced_.clear();
}

int HostTraffic::host_gpu(int gpu) const {
  const Device& device = topology_.device(gpu);
  return first_gpu_[at(hosts_[at(device.node)])] + device.local;
}

HostTraffic::ClassCost HostTraffic::cost_of(const TrafficClass& flows) {
  ClassCost cost;
  double latest = 0, busiest = 0;
  for (const TrafficClass::Hop& hop : flows.hops) {
    const Route route = topology_.route(host_gpu(hop.from), host_gpu(hop.to));
    double latency = 0;
    for (int i = 0; i < route.count; ++i) {
      const int link = route.links[at(i)];
      const LinkSpec& spec = topology_.links()[at(link)].spec;
      const double busy = hop.wire.value() / spec.bandwidth.value();
      latency += spec.latency.value();
      if (busy_[at(link)] == 0) touched_.push_back(link);
      busy_[at(link)] = shared_ ? busy_[at(link)] + busy : std::max(busy_[at(link)], busy);
      if (!topology_.same_node(hop.from, hop.to)) cost.crossing += busy;
    }
    latest = std::max(latest, latency);
  }
  for (const int link : touched_) {
    busiest = std::max(busiest, busy_[at(link)]);
    busy_[at(link)] = 0;
  }
  touched_.clear();
  cost.seconds = latest + busiest;
  return cost;
}

}  // namespace orrery
