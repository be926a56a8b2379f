#include "sim/replay/collective_run.hpp"

#include <cstdio>
#include <cstdlib>

#include "costmodels/collectives/collective_bound.hpp"
#include "costmodels/collectives/collective_choice.hpp"
#include "platforms/errors.hpp"
#include "sim/replay/children.hpp"
#include "sim/replay/network.hpp"

namespace orrery {
namespace {

// Starts each phase when the one before is over.
class PhasePlayer : public EventSink {
 public:
  PhasePlayer(const Topology& topology, const std::vector<FlowPhase>& phases)
      : network_(topology), phases_(phases) {}

  Seconds play() {
    start();
    network_.run(*this);
    return Seconds(network_.now());
  }

  void on_event(std::uint32_t tag) override {
    if (tag == kTail) {
      ++phase_;
      start();
    } else if (--flying_ == 0) {
      network_.after(phases_[phase_].tail.value(), kTail);
    }
  }

 private:
  static constexpr std::uint32_t kFlow = 0, kTail = 1;

  void start() {
    if (phase_ == phases_.size()) return;
    flying_ = phases_[phase_].flows.size();
    for (const Flow& flow : phases_[phase_].flows) network_.start_flow(flow, kFlow);
  }

  Network network_;
  const std::vector<FlowPhase>& phases_;
  std::size_t phase_ = 0, flying_ = 0;
};

// nccl-tests, doc/PERFORMANCE.md.
double bus_factor(const NamedCollective& collective, double ranks) {
  if (!collective.kind) return 1;
  const double share = (ranks - 1) / ranks;
  return *collective.kind == CollectiveKind::all_reduce ? 2 * share : share;
}

struct Play {
  PlayedAlgorithm result;
  std::vector<FlowPhase> phases;
};

std::vector<Play> plays_of(const Topology& topology, const CollectiveQuestion& question, Bytes bytes) {
  const auto& [collective, gpus, sizes, wanted] = question;
  std::vector<Play> plays;
  const CollectiveCall call{collective.kind.value_or(CollectiveKind::all_reduce), {}, bytes, {}, gpus};
  const BroadcastCall broadcast{{}, bytes, {}, gpus};
  const CollectiveAlgorithm chosen =
      collective.kind ? nccl_choice(topology, call) : CollectiveAlgorithm::ring;
  const Seconds least = collective.kind ? least_time(topology, call) : least_time(topology, broadcast);
  for (const CollectiveAlgorithm algorithm :
       {CollectiveAlgorithm::ring, CollectiveAlgorithm::double_binary_tree, CollectiveAlgorithm::hierarchical,
        CollectiveAlgorithm::direct}) {
    if (!can_run(algorithm, collective) || (wanted && algorithm != *wanted)) continue;
    Play play{{bytes, algorithm, algorithm == chosen, Seconds(0), least,
               bus_factor(collective, static_cast<double>(gpus.size()))},
              {}};
    if (collective.kind) {
      CollectiveCall by_it = call;
      by_it.algorithm = algorithm;
      play.phases = collective_flows(topology, by_it);
    } else {
      BroadcastCall by_it = broadcast;
      by_it.algorithm = algorithm;
      play.phases = broadcast_flows(topology, by_it);
    }
    plays.push_back(std::move(play));
  }
  return plays;
}

void require_joined(const Topology& topology, const std::vector<int>& gpus) {
  if (!topology.has_cut()) return;
  for (const int from : gpus) {
    for (const int to : gpus) {
      const auto obstacle = from == to ? std::nullopt : topology.route_obstacle(from, to);
      if (obstacle)
        throw InputError("cluster " + topology.cluster().name, *obstacle, "GPUs that all reach each other");
    }
  }
}

}  // namespace

const std::vector<NamedCollective>& named_collectives() {
  static const std::vector<NamedCollective> all{{"all_reduce", CollectiveKind::all_reduce},
                                                {"reduce_scatter", CollectiveKind::reduce_scatter},
                                                {"all_gather", CollectiveKind::all_gather},
                                                {"all_to_all", CollectiveKind::all_to_all},
                                                {"broadcast", std::nullopt}};
  return all;
}

bool can_run(CollectiveAlgorithm algorithm, const NamedCollective& collective) {
  return collective.kind ? can_run(algorithm, *collective.kind) : can_broadcast(algorithm);
}

std::vector<PlayedAlgorithm> play_alone(const Topology& topology, const CollectiveQuestion& question,
                                        int jobs) {
  require_joined(topology, question.gpus);
  std::vector<Play> plays;
  for (const Bytes bytes : question.sizes) {
    for (Play& play : plays_of(topology, question, bytes)) plays.push_back(std::move(play));
  }
  std::vector<ChildTask> tasks;
  for (const Play& play : plays) {
    tasks.push_back([&] {
      char text[32];
      std::snprintf(text, sizeof text, "%.17g", PhasePlayer(topology, play.phases).play().value());
      return std::string(text);
    });
  }
  const std::vector<std::string> answers = run_in_children(tasks, jobs);
  std::vector<PlayedAlgorithm> results;
  for (std::size_t i = 0; i < plays.size(); ++i) {
    plays[i].result.time = Seconds(std::strtod(answers[i].c_str(), nullptr));
    results.push_back(plays[i].result);
  }
  return results;
}

}  // namespace orrery
