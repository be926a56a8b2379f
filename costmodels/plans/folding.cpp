#include "costmodels/plans/folding.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "costmodels/collectives/collective_choice.hpp"
#include "costmodels/collectives/collective_flows.hpp"
#include "costmodels/plans/group_calls.hpp"

namespace orrery {
namespace {

// Whether every route crosses the link its first GPU sends by and the one its last GPU receives by, no other.
bool routes_are_direct(const ClusterSpec& cluster) {
  return !cluster.network && cluster.fabric.nodes_per_leaf == 0 &&
         std::all_of(cluster.groups.begin(), cluster.groups.end(), [&](const NodeGroup& group) {
           return group.pcie_switches == 0 && group.region == cluster.groups.front().region;
         });
}

// Whether lanes lie as others do, so many GPUs on: whole nodes of their group.
bool are_shifted(const Topology& topology, const std::vector<int>& lanes, const std::vector<int>& others,
                 int shift) {
  if (lanes.size() != others.size()) return false;
  const int group = topology.device(others.front()).group;
  if (shift % topology.group_of(others.front()).gpus_per_node != 0) return false;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (lanes[lane] - others[lane] != shift || topology.device(lanes[lane]).group != group ||
        topology.device(others[lane]).group != group)
      return false;
  }
  return true;
}

// Of all replicas.
bool is_shifted(const PricedPlan& plan, const Topology& topology, int stage, int other) {
  const int shift = plan.lanes(0, stage).front() - plan.lanes(0, other).front();
  for (int replica = 0; replica < plan.replicas; ++replica) {
    if (!are_shifted(topology, plan.lanes(replica, stage), plan.lanes(replica, other), shift)) return false;
  }
  return true;
}

// Of collectives over replicas: of the replicas that are played, or of all.
enum class Hops { folded, whole };

// Checks whether a shift by `period` replicas maps links and paths onto themselves.
class ShiftCheck {
 public:
  ShiftCheck(const PricedPlan& plan, const Topology& topology, int period)
      : plan_(plan),
        topology_(topology),
        period_(period),
        own_links_(topology.gpus_have_own_links()),
        direct_(routes_are_direct(topology.cluster())),
        as_catalogued_(!topology.cluster().network && topology.cluster().links.empty()) {
    for (int stage = 0; stage < plan.stages(); ++stage) {
      pairs_.push_back(overlaps_of_lanes(plan, stage, (stage + 1) % plan.stages()));
    }
    if (own_links_) return;
    for (auto* blocks : {&block_of_link_, &image_block_, &preimage_block_}) {
      blocks->assign(topology.links().size(), -1);
    }
    image_.resize(topology.links().size());
    preimage_.resize(topology.links().size());
  }

  bool holds(Hops hops) {
    for (int replica = 0; replica < plan_.replicas; ++replica) {
      for (int stage = 0; stage < plan_.stages(); ++stage) {
        if (!links_map(replica, stage) || !messages_alike(replica, stage)) return false;
        if (!groups_alike(replica, stage)) return false;
      }
    }
    return hops == Hops::whole || rings_alike();
  }

 private:
  bool rings_alike() const {
    const std::vector<int> like = stages_alike(plan_, topology_);
    for (int stage = 0; stage < plan_.stages(); ++stage) {
      if (like[static_cast<std::size_t>(stage)] != stage) continue;
      for (int lane = 0; lane < tensor_ways(plan_, stage); ++lane) {
        if (!ring_alike(reduction_members(plan_, stage, lane), period_ * plan_.context)) return false;
        if (!expert_rings_alike(stage, lane)) return false;
      }
    }
    return true;
  }

  bool same_path(int a, int b, int base_a, int base_b) const {
    // The links of a direct route are equal to those of its image: links_map has seen to that.
    if (direct_) return topology_.same_node(a, b) == topology_.same_node(base_a, base_b);
    return topology_.same_node(a, b) == topology_.same_node(base_a, base_b) &&
           topology_.path(a, b) == topology_.path(base_a, base_b) && topology_.route(a, b).count <= 2;
  }

  bool links_map(int replica, int stage) {
    if (own_links_) return true;
    const std::vector<int>& here = plan_.lanes(replica, stage);
    const std::vector<int>& base = plan_.lanes(replica % period_, stage);
    if (as_catalogued_) return nics_map(base, here, replica / period_);
    for (std::size_t lane = 0; lane < here.size(); ++lane) {
      const bool maps =
          map(topology_.gpu_link_up(base[lane]), topology_.gpu_link_up(here[lane]), replica / period_) &&
          map(topology_.nic_up(base[lane]), topology_.nic_up(here[lane]), replica / period_);
      if (!maps) return false;
    }
    return true;
  }

  // Where nothing is said of single links, those of one group are equal; a GPU link belongs to its GPU alone.
  bool nics_map(const std::vector<int>& base, const std::vector<int>& here, int block) {
    if (topology_.device(base.front()).group != topology_.device(here.front()).group) return false;
    for (std::size_t lane = 0; lane < here.size(); ++lane) {
      const int from = topology_.nic_up(base[lane]), to = topology_.nic_up(here[lane]);
      const bool seen =
          lane > 0 && from == topology_.nic_up(base[lane - 1]) && to == topology_.nic_up(here[lane - 1]);
      if (!seen && !one_to_one(from, to, block)) return false;
    }
    return true;
  }

  bool map(int base, int link, int block) {
    const auto b = static_cast<std::size_t>(base);
    const auto l = static_cast<std::size_t>(link);
    if (topology_.links()[b].spec != topology_.links()[l].spec) return false;
    if (topology_.links()[b + 1].spec != topology_.links()[l + 1].spec) return false;  // the way back
    return one_to_one(base, link, block);
  }

  // Within a block, and no link in two blocks.
  bool one_to_one(int base, int link, int block) {
    const auto b = static_cast<std::size_t>(base);
    const auto l = static_cast<std::size_t>(link);
    if (block_of_link_[l] >= 0 && block_of_link_[l] != block) return false;
    block_of_link_[l] = block;
    if (image_block_[b] == block && image_[b] != link) return false;
    if (preimage_block_[l] == block && preimage_[l] != base) return false;
    image_block_[b] = preimage_block_[l] = block;
    image_[b] = link;
    preimage_[l] = base;
    return true;
  }

  bool messages_alike(int replica, int stage) const {
    const int next = (stage + 1) % plan_.stages();
    const int base = replica % period_;
    for (const LaneMessage& pair : pairs_[static_cast<std::size_t>(stage)]) {
      const auto from = static_cast<std::size_t>(pair.from), to = static_cast<std::size_t>(pair.to);
      if (!same_path(plan_.lanes(replica, stage)[from], plan_.lanes(replica, next)[to],
                     plan_.lanes(base, stage)[from], plan_.lanes(base, next)[to])) {
        return false;
      }
    }
    return true;
  }

  // Every two members of a group that plays collectives; blocks of replicas that share experts are shifted
  // whole.
  bool groups_alike(int replica, int stage) const {
    if (plan_.calls.empty()) return true;
    const std::vector<int>& lanes = plan_.lanes(replica, stage);
    const std::vector<int>& base_lanes = plan_.lanes(replica % period_, stage);
    const bool shifted =
        direct_ && are_shifted(topology_, lanes, base_lanes, lanes.front() - base_lanes.front());
    if (shifted && !plays_calls(plan_, RankGroup::expert)) return true;  // groups of its own lanes
    for (const RankGroup kind : played_groups(plan_, replica, stage)) {
      const auto here = group_members(plan_, replica, stage, kind);
      const auto base = group_members(plan_, replica % period_, stage, kind);
      for (std::size_t group = 0; group < here.size(); ++group) {
        for (std::size_t a = 0; a < here[group].size(); ++a) {
          for (std::size_t b = 0; b < a; ++b) {
            if (!same_path(here[group][a], here[group][b], base[group][a], base[group][b])) return false;
          }
        }
      }
    }
    return true;
  }

  bool expert_rings_alike(int stage, int lane) const {
    if (plan_.expert_reductions.empty()) return true;
    const int members = (period_ / plan_.expert) * (plan_.context / plan_.expert_context);
    const auto rings = expert_reduction_rings(plan_, stage, lane);
    return std::all_of(rings.begin(), rings.end(),
                       [&](const std::vector<int>& ring) { return ring_alike(ring, members); });
  }

  // `period`: members of the ring in one period of replicas.
  bool ring_alike(const std::vector<int>& members, int period) const {
    const auto step = static_cast<std::size_t>(period);
    const std::size_t count = members.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t base = i % step;
      if (!same_path(members[i], members[(i + 1) % count], members[base], members[(base + 1) % count]))
        return false;
    }
    return true;
  }

  const PricedPlan& plan_;
  const Topology& topology_;
  int period_;
  std::vector<std::vector<LaneMessage>> pairs_;  // [stage]: lanes that talk with the next stage
  bool own_links_, direct_, as_catalogued_;
  std::vector<int> block_of_link_, image_, preimage_, image_block_, preimage_block_;
};

// Whether every replica is of the kind of the one `period` before it and has its microbatches.
bool repeats(const std::vector<int>& of_replica, int period) {
  for (std::size_t replica = static_cast<std::size_t>(period); replica < of_replica.size(); ++replica) {
    if (of_replica[replica] != of_replica[replica - static_cast<std::size_t>(period)]) return false;
  }
  return true;
}

bool replicas_alike(const PricedPlan& plan, int period) {
  return repeats(plan.kind_of_replica, period) && repeats(plan.replica_microbatches, period);
}

// Beside the forwards that hide them.
bool has_long_messages(const PricedPlan& plan, const Topology& topology) {
  constexpr double kLong = 0.1;
  Seconds forward = plan.parts.front().forward;
  for (const PartTimes& part : plan.parts) forward = std::min(forward, part.forward);
  const std::vector<Seconds> messages = transfer_times(plan, topology);
  return std::any_of(messages.begin(), messages.end(),
                     [&](Seconds message) { return message > kLong * forward; });
}

int least_period(const PricedPlan& plan, const Topology& topology, Hops hops) {
  if (plan.jitter > 0 || !plan.slowness.empty()) return plan.replicas;
  const bool shares_experts = !plan.expert_reductions.empty() || plays_calls(plan, RankGroup::expert);
  const int least = shares_experts ? plan.expert : 1;
  for (int period = least; period < plan.replicas; period += least) {
    if (plan.replicas % period == 0 && replicas_alike(plan, period) &&
        ShiftCheck(plan, topology, period).holds(hops))
      return period;
  }
  return plan.replicas;
}

}  // namespace

bool in_rings(const PricedPlan& plan, const Topology& topology) {
  if (plan.algorithm) return *plan.algorithm == CollectiveAlgorithm::ring;
  const CollectiveKind kind = gradient_collective(plan.distributed_optimizer, plan.all_reduces_gradients);
  if (kind != CollectiveKind::all_reduce) return true;
  const auto go_round = [&](const std::vector<PartReduction>& reductions, const auto& members_of) {
    std::vector<std::optional<Collective>> of_stages(static_cast<std::size_t>(plan.stages()));
    for (std::size_t part = 0; part < reductions.size(); ++part) {
      const PartReduction& reduction = reductions[part];
      if (reduction.gradients.value() <= 0) continue;  // nothing is sent
      const int stage = plan.rank_of_part(static_cast<int>(part));
      std::optional<Collective>& op = of_stages[static_cast<std::size_t>(stage)];
      if (!op) op = as_operator(topology, {kind, std::nullopt, {}, {}, members_of(stage)});
      op->bytes = reduction.gradients / bucket_count(plan, reduction);
      if (nccl_choice(*op) != CollectiveAlgorithm::ring) return false;
    }
    return true;
  };
  return go_round(plan.reductions, [&](int stage) { return reduction_members(plan, stage, 0); }) &&
         go_round(plan.expert_reductions,
                  [&](int stage) { return expert_reduction_rings(plan, stage, 0).front(); });
}

std::size_t most_lanes(const PricedPlan& plan) {
  std::size_t most = 0;
  for (const std::vector<int>& lanes : plan.gpus) most = std::max(most, lanes.size());
  return most;
}

std::vector<int> reduction_members(const PricedPlan& plan, int stage, int lane) {
  const int tensor = tensor_ways(plan, stage);
  std::vector<int> gpus;
  for (int replica = 0; replica < plan.replicas; ++replica) {
    for (int context = 0; context < plan.context; ++context) {
      gpus.push_back(plan.lanes(replica, stage)[static_cast<std::size_t>(context * tensor + lane % tensor)]);
    }
  }
  return gpus;
}

std::vector<std::vector<int>> expert_reduction_rings(const PricedPlan& plan, int stage, int lane) {
  const std::vector<int> all = reduction_members(plan, stage, lane);
  std::vector<std::vector<int>> rings(static_cast<std::size_t>(plan.expert * plan.expert_context));
  for (std::size_t at = 0; at < all.size(); ++at) {
    const int replica = static_cast<int>(at) / plan.context, context = static_cast<int>(at) % plan.context;
    const int ring = replica % plan.expert * plan.expert_context + context % plan.expert_context;
    rings[static_cast<std::size_t>(ring)].push_back(all[at]);
  }
  return rings;
}

std::vector<std::vector<int>> optimizer_sets(const PricedPlan& plan, const std::vector<int>& copies) {
  std::vector<std::vector<int>> sets(static_cast<std::size_t>(plan.optimizer_instances));
  for (std::size_t at = 0; at < copies.size(); ++at) {
    sets[at * sets.size() / copies.size()].push_back(copies[at]);
  }
  return sets;
}

std::vector<std::vector<int>> across_optimizer_sets(const PricedPlan& plan, const std::vector<int>& copies) {
  if (plan.optimizer_instances == 1) return {};
  std::vector<std::vector<int>> places(copies.size() / static_cast<std::size_t>(plan.optimizer_instances));
  for (std::size_t at = 0; at < copies.size(); ++at) places[at % places.size()].push_back(copies[at]);
  return places;
}

std::optional<std::string> cut_route(const PricedPlan& plan, const Topology& topology) {
  if (!topology.has_cut()) return std::nullopt;
  std::optional<std::string> obstacle;
  const auto talk = [&](int from, int to) {
    if (!obstacle && from != to) obstacle = topology.route_obstacle(from, to);
  };
  const auto all_talk = [&](const std::vector<int>& gpus) {
    for (const int from : gpus) {
      for (const int to : gpus) talk(from, to);
    }
  };
  for (int replica = 0; replica < plan.replicas; ++replica) {
    std::vector<int> firsts;  // of the stages: who reduce the gradient norm
    for (int stage = 0; stage < plan.stages(); ++stage) {
      const std::vector<int>& here = plan.lanes(replica, stage);
      const std::vector<int>& next = plan.lanes(replica, (stage + 1) % plan.stages());
      for (const LaneMessage& pair : overlaps_of_lanes(plan, stage, (stage + 1) % plan.stages())) {
        talk(here[static_cast<std::size_t>(pair.from)], next[static_cast<std::size_t>(pair.to)]);
        talk(next[static_cast<std::size_t>(pair.to)], here[static_cast<std::size_t>(pair.from)]);
      }
      for (const RankGroup kind : {RankGroup::tensor, RankGroup::context, RankGroup::expert}) {
        for (const std::vector<int>& group : group_members(plan, replica, stage, kind)) all_talk(group);
      }
      firsts.push_back(here.front());
    }
    if (plan.gradient_norm) all_talk(firsts);
  }
  for (int stage = 0; stage < plan.stages(); ++stage) {
    for (int lane = 0; lane < tensor_ways(plan, stage); ++lane)
      all_talk(reduction_members(plan, stage, lane));
  }
  return obstacle;
}

bool may_meet(const PricedPlan& plan, const Topology& topology) {
  if (topology.cluster().contention != Contention::shared) return false;
  if (!topology.gpus_have_own_links() || !plan.calls.empty()) return true;
  return plan.schedule.chunks > 1 &&
         (plan.schedule.transfers == TransferMode::blocking || has_long_messages(plan, topology));
}

std::vector<int> stages_alike(const PricedPlan& plan, const Topology& topology) {
  std::vector<int> like(static_cast<std::size_t>(plan.stages()));
  std::iota(like.begin(), like.end(), 0);
  if (!topology.gpus_have_own_links()) return like;
  for (int stage = 1; stage < plan.stages(); ++stage) {
    for (int other = 0; other < stage; ++other) {
      if (like[static_cast<std::size_t>(other)] != other || !is_shifted(plan, topology, stage, other))
        continue;
      like[static_cast<std::size_t>(stage)] = other;
      break;
    }
  }
  return like;
}

int folding_period(const PricedPlan& plan, const Topology& topology) {
  if (plan.optimizer_instances > 1 || !in_rings(plan, topology)) return plan.replicas;
  return least_period(plan, topology, Hops::folded);
}

int period_of_paths(const PricedPlan& plan, const Topology& topology) {
  return least_period(plan, topology, Hops::whole);
}

}  // namespace orrery
