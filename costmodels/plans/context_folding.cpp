// Context ranks that provably do the same, and flows between the GPUs that are played for others.
#include <algorithm>
#include <tuple>

#include "costmodels/plans/folding.hpp"
#include "costmodels/plans/group_calls.hpp"

namespace orrery {
namespace {

// What a GPU sends or receives in one phase of flows: with which played GPU, and how.
struct FlowEnd {
  int gpu = 0;
  bool is_sender = false;
  int far_image = 0;
  bool inside = false;  // of one node
  double wire = 0;      // B

  [[nodiscard]] auto what() const { return std::tuple(is_sender, far_image, inside, wire); }
  [[nodiscard]] auto key() const { return std::tuple(gpu, is_sender, far_image, inside, wire); }
};

// Checks whether every GPU does what its image does.
class ImageCheck {
 public:
  ImageCheck(const PricedPlan& plan, const Topology& topology, int replicas, int contexts)
      : plan_(plan),
        topology_(topology),
        replicas_(replicas),
        images_(played_images(plan, topology, replicas, contexts)) {}

  bool holds(const std::vector<int>& lanes) {
    for (std::size_t gpu = 0; gpu < images_.size(); ++gpu) {
      if (images_[gpu] < 0) continue;
      if (topology_.device(static_cast<int>(gpu)).group != topology_.device(images_[gpu]).group) return false;
    }
    const std::vector<int> like = stages_alike(plan_, topology_);
    for (int stage = 0; stage < plan_.stages(); ++stage) {
      for (int replica = 0; replica < replicas_; ++replica) {
        if (!messages_alike(replica, stage, lanes) || !calls_alike(replica, stage, lanes)) return false;
      }
      // What a stage sends its copies lies as what one that is like it sends its own.
      if (like[static_cast<std::size_t>(stage)] == stage && !rings_alike(stage, lanes)) return false;
    }
    return true;
  }

 private:
  // Both ways between a stage and the next; from the last to the first: of interleaved schedules, and the
  // embedding's gradient.
  bool messages_alike(int replica, int stage, const std::vector<int>& lanes) {
    const std::vector<int>& here = plan_.lanes(replica, stage);
    const std::vector<int>& next = plan_.lanes(replica, (stage + 1) % plan_.stages());
    for (const int lane : lanes) {
      const auto l = static_cast<std::size_t>(lane);
      if (here[l] != next[l]) add(here[l], next[l], 0);
    }
    return ends_alike();
  }

  bool calls_alike(int replica, int stage, const std::vector<int>& lanes) {
    for (const int call : calls_of_stage(plan_, replica, stage)) {
      const auto& flows = plan_.calls[static_cast<std::size_t>(call)];
      if (!phases_alike(call_flows(plan_, topology_, flows, replica, stage, lanes))) return false;
    }
    return true;
  }

  // Shares of the bytes in a ring are the same whatever its kind.
  bool rings_alike(int stage, const std::vector<int>& lanes) {
    for (const int lane : lanes) {
      if (lane >= tensor_ways(plan_, stage)) continue;
      const CollectiveCall ring{CollectiveKind::all_reduce,
                                CollectiveAlgorithm::ring,
                                Bytes(1e6),
                                {},
                                reduction_members(plan_, stage, lane)};
      if (!phases_alike(collective_flows(topology_, ring))) return false;
    }
    return true;
  }

  bool phases_alike(const std::vector<FlowPhase>& phases) {
    for (const FlowPhase& phase : phases) {
      for (const Flow& flow : phase.flows) add(flow.from, flow.to, flow.wire.value());
      if (!ends_alike()) return false;
    }
    return true;
  }

  void add(int from, int to, double wire) {
    const bool inside = topology_.same_node(from, to);
    ends_.push_back({from, true, image(to), inside, wire});
    ends_.push_back({to, false, image(from), inside, wire});
  }

  // Of the ends added since the last call.
  bool ends_alike() {
    std::sort(ends_.begin(), ends_.end(),
              [](const FlowEnd& a, const FlowEnd& b) { return a.key() < b.key(); });
    bool alike = true;
    for (std::size_t at = 0; alike && at < ends_.size();) {
      const auto own = ends_of(ends_[at].gpu);
      const auto of_image = ends_of(image(ends_[at].gpu));
      alike = std::equal(own.first, own.second, of_image.first, of_image.second,
                         [](const FlowEnd& a, const FlowEnd& b) { return a.what() == b.what(); });
      at = static_cast<std::size_t>(own.second - ends_.begin());
    }
    ends_.clear();
    return alike;
  }

  using Ends = std::pair<std::vector<FlowEnd>::const_iterator, std::vector<FlowEnd>::const_iterator>;
  [[nodiscard]] Ends ends_of(int gpu) const {
    const auto before = [](const FlowEnd& end, int number) { return end.gpu < number; };
    const auto first = std::lower_bound(ends_.begin(), ends_.end(), gpu, before);
    return {first, std::lower_bound(first, ends_.end(), gpu + 1, before)};
  }

  [[nodiscard]] int image(int gpu) const { return images_[static_cast<std::size_t>(gpu)]; }

  const PricedPlan& plan_;
  const Topology& topology_;
  int replicas_;
  std::vector<int> images_;
  std::vector<FlowEnd> ends_;  // scratch
};

bool plays_context_groups_alone(const PricedPlan& plan) {
  return std::all_of(plan.calls.begin(), plan.calls.end(),
                     [](const GroupCall& call) { return call.group == RankGroup::context; });
}

bool stages_are_alike(const PricedPlan& plan) {
  return std::all_of(plan.gpus.begin(), plan.gpus.end(),
                     [&](const auto& lanes) { return lanes.size() == plan.gpus.front().size(); });
}

}  // namespace

std::vector<int> played_images(const PricedPlan& plan, const Topology& topology, int replicas, int contexts) {
  std::vector<int> images(static_cast<std::size_t>(topology.gpus()), -1);
  const auto played = static_cast<std::size_t>(replicas * plan.stages());
  for (std::size_t rank = 0; rank < plan.gpus.size(); ++rank) {
    const std::vector<int>& lanes = plan.gpus[rank];
    const std::size_t tensor = lanes.size() / static_cast<std::size_t>(plan.context);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      const std::size_t of_image = lane % (tensor * static_cast<std::size_t>(contexts));
      images[static_cast<std::size_t>(lanes[lane])] = plan.gpus[rank % played][of_image];
    }
  }
  return images;
}

std::vector<FlowPhase> folded(const Topology& topology, const std::vector<int>& images,
                              std::vector<FlowPhase> phases) {
  for (FlowPhase& phase : phases) {
    std::vector<Flow> played;
    for (Flow& flow : phase.flows) {
      if (images[static_cast<std::size_t>(flow.from)] != flow.from) continue;
      const int image = images[static_cast<std::size_t>(flow.to)];
      if (image != flow.to) {
        const bool inside = topology.same_node(flow.from, flow.to);
        flow.route.links[1] = (inside ? topology.gpu_link_up(image) : topology.nic_up(image)) + 1;
        flow.to = image;
      }
      played.push_back(flow);
    }
    phase.flows = std::move(played);
  }
  return phases;
}

int context_period(const PricedPlan& plan, const Topology& topology, int replicas,
                   const std::vector<int>& lanes) {
  const bool may_fold = plan.context > 1 && topology.gpus_have_own_links() && stages_are_alike(plan) &&
                        plays_context_groups_alone(plan) && plan.expert_reductions.empty() &&
                        plan.optimizer_instances == 1 && in_rings(plan, topology);
  for (int period = 1; may_fold && period < plan.context; ++period) {
    if (plan.context % period == 0 && ImageCheck(plan, topology, replicas, period).holds(lanes))
      return period;
  }
  return plan.context;
}

}  // namespace orrery
