#include "tests/sim/random_plan.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <sstream>

#include "costmodels/plans/group_calls.hpp"
#include "strategies/placement.hpp"
#include "strategies/task_order.hpp"
#include "tests/costmodels/random_cluster.hpp"

namespace orrery {
namespace {

using test::Draw;

ScheduleShape draw_shape(Draw& draw) {
  ScheduleShape shape;
  const std::vector<ScheduleRow>& rows = schedule_table();
  do {
    const ScheduleRow& row = rows[static_cast<std::size_t>(draw.whole(0, static_cast<int>(rows.size()) - 1))];
    shape.kind = row.kind;
    shape.transfers = static_cast<TransferMode>(draw.whole(0, 2));
    shape.ranks = draw.whole(1, 5);
    shape.chunks = row.chunks > 0 ? row.chunks : draw.whole(2, 3);
    shape.microbatches = draw.whole(1, 9);
    shape.microbatch_group = draw.coin() ? 0 : draw.whole(1, 9);
  } while (schedule_obstacle(shape));
  return shape;
}

ParallelStrategy strategy_for(Draw& draw, const ScheduleShape& shape) {
  ParallelStrategy strategy;
  strategy.pipeline = shape.ranks;
  strategy.data = draw.whole(1, 3);
  strategy.context = draw.whole(1, 2);
  const int tensor = 1 << draw.whole(0, 2);
  const int first_of_second_group = draw.whole(0, shape.ranks);
  for (int stage = 0; stage < shape.ranks; ++stage) {
    strategy.stages.push_back({stage < first_of_second_group ? 0 : 1, tensor});
  }
  for (const int group : {0, 1}) {
    int gpus = 0;
    for (int stage = 0; stage < shape.ranks; ++stage) {
      const bool here = strategy.stages[static_cast<std::size_t>(stage)].group == group;
      gpus += here ? strategy.gpus_of_stage(stage) * strategy.data : 0;
    }
    strategy.nodes.push_back((gpus + 3) / 4);
  }
  return strategy;
}

TransferEfficiency draw_efficiency(Draw& draw) {
  return {draw.real(0.3, 1), draw.real(0.3, 1)};
}

// Prices for a plan whose schedule is drawn.
void draw_prices(Draw& draw, PricedPlan& plan) {
  const ScheduleShape& shape = plan.schedule;
  const bool split = schedule_row(shape.kind).split_backward;
  for (int part = 0; part < shape.ranks * shape.chunks; ++part) {
    PartTimes times;
    times.forward = milliseconds(draw.real(0.1, 3));
    times.backward = milliseconds(draw.real(0.1, 6));
    if (split) times.weight_gradient = milliseconds(draw.real(0.1, 3));
    times.forward_tensor = times.forward * draw.real(0, 1);
    plan.parts.push_back(times);
    if (part > 0) plan.boundaries.push_back({Bytes(draw.real(1e3, 5e7)), draw_efficiency(draw)});
    plan.reductions.push_back(
        {Bytes(draw.real(1e6, 1e8)), Bytes(0), draw_efficiency(draw), draw_efficiency(draw)});
  }
  plan.distributed_optimizer = draw.coin();
  for (PartReduction& reduction : plan.reductions) {
    if (plan.distributed_optimizer) reduction.gathered = reduction.gradients / 2;
  }
  for (int stage = 0; stage < shape.ranks; ++stage) plan.optimizer.push_back(milliseconds(draw.real(0.1, 5)));
  if (draw.coin()) plan.embedding_gradient = Bytes(draw.real(1e6, 1e8));
  plan.gradient_norm = draw.coin();
}

std::string describe(const PricedPlan& plan, const ClusterSpec& cluster) {
  std::ostringstream text;
  text << to_text(plan.schedule.kind) << " " << to_text(plan.schedule.transfers) << " P"
       << plan.schedule.ranks << " v" << plan.schedule.chunks << " M" << plan.schedule.microbatches << " G"
       << plan.schedule.group() << " D" << plan.replicas << " C" << plan.context << " lanes"
       << plan.gpus.front().size() << " leaf" << cluster.fabric.nodes_per_leaf << " nics";
  for (const NodeGroup& group : cluster.groups)
    text << " " << group.nics_per_node << "/" << group.gpus_per_node << " pcie" << group.pcie_switches;
  if (cluster.fabric.kind == FabricKind::rail_optimised) text << " rails";
  if (cluster.fabric.leaves_per_pod > 0) text << " pods of " << cluster.fabric.leaves_per_pod;
  if (!cluster.fabric.regions.empty()) text << " two regions";
  if (plan.distributed_optimizer) text << " distributed optimizer";
  if (plan.embedding_gradient) text << " embedding";
  if (plan.gradient_norm) text << " norm";
  return text.str();
}

void draw_expert_reductions(Draw& draw, PricedPlan& plan) {
  for (const PartReduction& dense : plan.reductions) {
    PartReduction experts = dense;
    experts.gradients *= draw.real(0.1, 2);
    experts.gathered = plan.distributed_optimizer ? experts.gradients / 2 : Bytes(0);
    plan.expert_reductions.push_back(experts);
  }
}

// Over how many replicas experts are spread; their gradients are those of every so many replicas.
void draw_experts(Draw& draw, PricedPlan& plan) {
  do {
    plan.expert = draw.whole(1, plan.replicas);
  } while (plan.replicas % plan.expert != 0);
  if (plan.expert > 1 && !draw.coin()) draw_expert_reductions(draw, plan);
}

// Tensor ranks with experts of their own, where all stages have equally many, and context ranks that share
// them.
void draw_expert_lanes(std::uint32_t seed, PricedPlan& plan) {
  Draw draw(seed + 0xE7);
  const std::size_t lanes = plan.gpus.front().size();
  const bool equal = std::all_of(plan.gpus.begin(), plan.gpus.end(),
                                 [&](const std::vector<int>& gpus) { return gpus.size() == lanes; });
  if (!equal) return;
  if (draw.coin()) plan.expert_tensor = static_cast<int>(lanes) / plan.context;
  do {
    plan.expert_context = draw.whole(1, plan.context);
  } while (plan.context % plan.expert_context != 0);
  if (plan.expert == 1 && plan.expert_context > 1 && draw.coin()) draw_expert_reductions(draw, plan);
}

// None where the drawn group has one member.
std::optional<GroupCall> draw_call(Draw& draw, const PricedPlan& plan) {
  GroupCall call;
  call.group = static_cast<RankGroup>(draw.whole(0, 2));
  if (group_members(plan, 0, 0, call.group).front().size() < 2) return std::nullopt;
  call.kind = static_cast<CollectiveKind>(draw.whole(0, 2));
  if (call.group == RankGroup::context && draw.coin()) call.kind = CollectiveKind::all_gather;
  if (call.group == RankGroup::expert) call.kind = CollectiveKind::all_to_all;
  call.bytes = Bytes(draw.real(1e3, 2e7));
  call.efficiency = draw_efficiency(draw);
  call.more = microseconds(draw.coin() ? draw.real(0, 20) : 0);
  call.times = draw.whole(1, 3);
  return call;
}

std::vector<PlayedPiece> draw_pieces(Draw& draw, const PricedPlan& plan, Seconds compute) {
  std::vector<PlayedPiece> pieces(static_cast<std::size_t>(draw.whole(1, 4)));
  for (PlayedPiece& piece : pieces) {
    const bool is_first = &piece == &pieces.front();  // every pass computes something
    if (is_first || draw.whole(0, 3) > 0) piece.compute = compute * draw.real(0, 0.5);
    piece.tensor = piece.compute * draw.real(0, 1);
    if (plan.calls.empty() || draw.whole(0, 3) == 0) continue;
    piece.call = draw.whole(0, static_cast<int>(plan.calls.size()) - 1);
    if (draw.coin()) piece.beside = compute * draw.real(0, 0.5);
  }
  return pieces;
}

void draw_pieces_of_parts(Draw& draw, const PricedPlan& plan, std::vector<PartTimes>& parts) {
  for (PartTimes& part : parts) {
    if (draw.whole(0, 3) > 0) part.forward_pieces = draw_pieces(draw, plan, part.forward);
    if (draw.whole(0, 3) > 0) part.backward_pieces = draw_pieces(draw, plan, part.backward);
  }
}

// Lanes of all ranks, in order: stage after stage, or replica after replica.
std::vector<std::vector<int>> aligned_placement(int stages, int replicas, int lanes, bool stage_after_stage) {
  std::vector<std::vector<int>> gpus;
  for (int replica = 0; replica < replicas; ++replica) {
    for (int stage = 0; stage < stages; ++stage) {
      const int place = stage_after_stage ? stage * replicas + replica : replica * stages + stage;
      gpus.emplace_back();
      for (int lane = 0; lane < lanes; ++lane) gpus.back().push_back(place * lanes + lane);
    }
  }
  return gpus;
}

}  // namespace

RandomPlan random_plan(std::uint32_t seed, Contention contention) {
  Draw draw(seed);
  const ClusterSpec cluster = test::random_cluster(draw, contention, 4);
  PricedPlan plan;
  plan.schedule = draw_shape(draw);
  const ParallelStrategy strategy = strategy_for(draw, plan.schedule);
  plan.replicas = strategy.data;
  plan.context = strategy.context;
  draw_prices(draw, plan);
  Topology topology(cluster, strategy.nodes);
  plan.gpus = place(strategy, topology);
  std::string text = "seed " + std::to_string(seed) + ": " + describe(plan, cluster);
  return {std::move(plan), std::move(topology), std::move(text)};
}

RandomPlan random_symmetric_plan(std::uint32_t seed, Contention contention) {
  Draw draw(seed);
  ClusterSpec cluster = test::random_cluster(draw, contention, 4);
  cluster.groups.pop_back();
  cluster.fabric.regions.clear();
  NodeGroup& group = cluster.groups.front();
  group.gpus_per_node = draw.coin() ? 4 : 8;
  group.nics_per_node = draw.coin() ? group.gpus_per_node : test::draw_power_of_two(draw, 4);
  group.pcie_switches = std::min(group.pcie_switches, group.gpus_per_node);
  PricedPlan plan;
  plan.schedule = draw_shape(draw);
  plan.replicas = 1 << draw.whole(0, 3);
  plan.context = draw.whole(1, 2);
  const int lanes = plan.context * (1 << draw.whole(0, 2));
  draw_prices(draw, plan);
  plan.gpus = aligned_placement(plan.stages(), plan.replicas, lanes, draw.coin());
  const int nodes = (plan.stages() * plan.replicas * lanes + group.gpus_per_node - 1) / group.gpus_per_node;
  group.count = {nodes, nodes};
  Topology topology(cluster, {nodes});
  std::string text = "symmetric seed " + std::to_string(seed) + ": " + describe(plan, cluster);
  return {std::move(plan), std::move(topology), std::move(text)};
}

RandomPlan shuffled(RandomPlan drawn, std::uint32_t seed) {
  Draw draw(seed + 0x5AFF);
  std::vector<std::vector<int>>& ranks = drawn.plan.gpus;
  const int what = draw.whole(0, 2);
  drawn.text += what == 0   ? " ranks trade places"
                : what == 1 ? " lanes trade places"
                            : " all GPUs trade places";
  if (what == 0) draw.shuffle(ranks);
  if (what == 1) {
    for (std::vector<int>& lanes : ranks) {
      if (draw.coin()) draw.shuffle(lanes);
    }
  }
  if (what == 2) {
    std::vector<int> gpus(static_cast<std::size_t>(drawn.topology.gpus()));
    std::iota(gpus.begin(), gpus.end(), 0);
    draw.shuffle(gpus);
    auto next = gpus.begin();
    for (std::vector<int>& lanes : ranks) {
      for (int& gpu : lanes) gpu = *next++;
    }
  }
  return drawn;
}

RandomPlan with_overlaps(RandomPlan drawn, std::uint32_t seed) {
  Draw draw(seed + 0x5EED);
  PricedPlan& plan = drawn.plan;
  plan.iterations = draw.whole(1, 3);
  plan.overlap_grad_reduce = draw.coin();
  plan.overlap_param_gather = draw.coin();
  if (draw.coin()) plan.bucket = Bytes(draw.real(5e6, 5e7));
  if (draw.coin()) plan.overlap_slowdown = draw.real(1, 1.3);
  if (draw.coin()) plan.algorithm = static_cast<CollectiveAlgorithm>(draw.coin() ? 0 : draw.whole(1, 3));
  std::ostringstream text;
  text << " iterations " << plan.iterations << " bucket " << plan.bucket.value() << " slowdown "
       << plan.overlap_slowdown << " " << (plan.algorithm ? to_text(*plan.algorithm) : "NCCL's choice");
  if (plan.overlap_grad_reduce) text << " overlap-grad-reduce";
  if (plan.overlap_param_gather) text << " overlap-param-gather";
  drawn.text += text.str();
  return drawn;
}

RandomPlan with_group_calls(RandomPlan drawn, std::uint32_t seed) {
  Draw draw(seed + 0xCA11);
  PricedPlan& plan = drawn.plan;
  draw_experts(draw, plan);
  draw_expert_lanes(seed, plan);
  std::ostringstream text;
  const int count = draw.whole(1, 5);
  for (int i = 0; i < count; ++i) {
    if (const auto call = draw_call(draw, plan)) plan.calls.push_back(*call);
  }
  for (const GroupCall& call : plan.calls) {
    text << " " << to_text(call.kind) << " over group " << static_cast<int>(call.group) << " x" << call.times;
  }
  draw_pieces_of_parts(draw, plan, plan.parts);
  drawn.text += " experts over " + std::to_string(plan.expert) + " x " + std::to_string(plan.expert_context) +
                " x " + std::to_string(plan.expert_tensor) + text.str();
  return drawn;
}

RandomPlan with_unequal_replicas(RandomPlan drawn, std::uint32_t seed) {
  Draw draw(seed + 0xD1FF);
  PricedPlan& plan = drawn.plan;
  std::ostringstream text;
  if (draw.coin()) {
    text << " microbatches";
    for (int replica = 0; replica < plan.replicas; ++replica) {
      ScheduleShape shape = plan.schedule;
      do {
        shape.microbatches = draw.whole(1, 9);
      } while (schedule_obstacle(shape) && draw.whole(0, 20) > 0);
      if (schedule_obstacle(shape)) shape.microbatches = plan.schedule.microbatches;
      const int leader = replica / plan.expert * plan.expert;
      plan.replica_microbatches.push_back(leader < replica
                                              ? plan.replica_microbatches[static_cast<std::size_t>(leader)]
                                              : shape.microbatches);
      text << " " << plan.replica_microbatches.back();
    }
  }
  if (draw.coin()) {
    PricedPlan other = plan;  // a second kind of replica, with prices of its own
    other.parts.clear(), other.boundaries.clear(), other.optimizer.clear(), other.reductions.clear();
    draw_prices(draw, other);
    if (!plan.calls.empty()) draw_pieces_of_parts(draw, plan, other.parts);
    plan.other_kinds = {{other.parts, other.boundaries, other.optimizer}};
    text << " kinds";
    for (int replica = 0; replica < plan.replicas; ++replica) {
      const int leader = replica / plan.expert * plan.expert;
      const int kind = draw.whole(0, 1);
      plan.kind_of_replica.push_back(leader < replica ? plan.kind_of_replica[static_cast<std::size_t>(leader)]
                                                      : kind);
      text << " " << plan.kind_of_replica.back();
    }
  }
  if (draw.coin()) {
    for (int rank = 0; rank < plan.replicas * plan.stages(); ++rank) {
      plan.slowness.push_back(draw.coin() ? 1.0 : draw.real(1, 3));
    }
    plan.slow_from = draw.whole(0, plan.iterations - 1);
    text << " slow from " << plan.slow_from;
  }
  if (draw.coin()) {
    plan.jitter = draw.real(0, 0.3);
    plan.seed = seed;
    text << " jitter " << plan.jitter;
  }
  drawn.text += text.str();
  return drawn;
}

RandomPlan with_optimizer_sets(RandomPlan drawn, std::uint32_t seed) {
  Draw draw(seed + 0x5E75);
  PricedPlan& plan = drawn.plan;
  if (!plan.distributed_optimizer) return drawn;
  const int copies_of_experts = plan.replicas * plan.context / (plan.expert * plan.expert_context);
  do {
    plan.optimizer_instances = draw.whole(1, copies_of_experts);
  } while (copies_of_experts % plan.optimizer_instances != 0);
  for (PartReduction& reduction : plan.reductions) reduction.across_efficiency = draw_efficiency(draw);
  drawn.text += " optimizer instances " + std::to_string(plan.optimizer_instances);
  return drawn;
}

RandomPlan with_unequal_tensor(RandomPlan drawn, std::uint32_t seed) {
  Draw draw(seed + 0x7E25);
  PricedPlan& plan = drawn.plan;
  for (BoundaryMessage& boundary : plan.boundaries) boundary.in_shards = draw.coin();
  for (int stage = 0; stage < plan.stages(); ++stage) {
    const int tensor = tensor_ways(plan, stage);
    if (tensor % 2 != 0 || draw.coin()) continue;
    for (int replica = 0; replica < plan.replicas; ++replica) {
      std::vector<int>& lanes = plan.gpus[static_cast<std::size_t>(replica * plan.stages() + stage)];
      std::vector<int> left;
      for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        if (static_cast<int>(lane) % tensor < tensor / 2) left.push_back(lanes[lane]);
      }
      lanes = std::move(left);
    }
    drawn.text += " half the tensor ranks in stage " + std::to_string(stage);
  }
  return drawn;
}

RandomPlan without_latency(RandomPlan drawn) {
  ClusterSpec cluster = drawn.topology.cluster();
  for (NodeGroup& group : cluster.groups)
    group.gpu_link.latency = group.nic.latency = group.pcie_uplink.latency = Seconds(0);
  cluster.fabric.latency = Seconds(0);
  for (RegionLink& region : cluster.fabric.regions) region.link.latency = Seconds(0);
  drawn.topology = Topology(cluster, drawn.topology.nodes());
  return drawn;
}

}  // namespace orrery
