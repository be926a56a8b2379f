#include "tests/sim/random_plan.hpp"

#include <algorithm>
#include <random>

#include "strategies/placement.hpp"

namespace orrery {
namespace {

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : engine_(seed) {}
  int whole(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<std::uint32_t>(high - low + 1));
  }
  bool coin() { return whole(0, 1) == 1; }
  double real(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_()) / static_cast<double>(std::mt19937::max());
  }

 private:
  std::mt19937 engine_;
};

NodeGroup draw_group(Draw& draw, const std::string& name) {
  NodeGroup group;
  group.name = name;
  group.gpu.name = name;
  group.gpus_per_node = 4;
  group.count = {0, 64};
  group.gpu_link = {gigabytes_per_second(draw.real(20, 300)), microseconds(draw.real(0, 3))};
  group.nics_per_node = 1 << draw.whole(0, 2);
  group.nic = {gigabytes_per_second(draw.real(1, 50)), microseconds(draw.real(0, 5))};
  return group;
}

ClusterSpec draw_cluster(Draw& draw, Contention contention) {
  ClusterSpec cluster;
  cluster.name = "random";
  cluster.groups = {draw_group(draw, "a"), draw_group(draw, "b")};
  cluster.contention = contention;
  if (draw.coin()) {
    cluster.fabric.nodes_per_leaf = draw.whole(1, 3);
    cluster.fabric.oversubscription = draw.real(1, 4);
    cluster.fabric.latency = microseconds(draw.real(0, 2));
  }
  return cluster;
}

ScheduleShape draw_shape(Draw& draw) {
  ScheduleShape shape;
  shape.ranks = draw.whole(1, 5);
  shape.microbatches = draw.whole(1, 9);
  const int kind = draw.whole(0, 2);
  shape.kind = kind == 0 ? ScheduleKind::gpipe : ScheduleKind::one_f_one_b;
  shape.transfers = static_cast<TransferMode>(draw.whole(0, 2));
  if (kind == 2 && shape.ranks > 1) {
    shape.kind = ScheduleKind::interleaved;
    shape.transfers = draw.coin() ? TransferMode::eager : TransferMode::overlapped;
    shape.chunks = draw.whole(2, 3);
    shape.microbatches = shape.ranks * draw.whole(1, 3);
  }
  return shape;
}

ParallelStrategy strategy_for(Draw& draw, const ScheduleShape& shape) {
  ParallelStrategy strategy;
  strategy.pipeline = shape.ranks;
  strategy.data = draw.whole(1, 3);
  strategy.context = draw.whole(1, 2);
  const int tensor = 1 << draw.whole(0, 1);
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

}  // namespace

RandomPlan random_plan(std::uint32_t seed, Contention contention) {
  Draw draw(seed);
  const ClusterSpec cluster = draw_cluster(draw, contention);
  PricedPlan plan;
  plan.schedule = draw_shape(draw);
  const ParallelStrategy strategy = strategy_for(draw, plan.schedule);
  plan.replicas = strategy.data;
  plan.context = strategy.context;
  const int parts = plan.schedule.ranks * plan.schedule.chunks;
  for (int part = 0; part < parts; ++part) {
    PartTimes times;
    times.forward = milliseconds(draw.real(0.1, 3));
    times.backward = milliseconds(draw.real(0.1, 6));
    times.forward_tensor = times.forward * draw.real(0, 1);
    plan.parts.push_back(times);
    if (part > 0) plan.boundaries.push_back({Bytes(draw.real(1e3, 5e7)), draw_efficiency(draw)});
  }
  plan.distributed_optimizer = draw.coin();
  for (int part = 0; part < parts; ++part) {
    plan.reductions.push_back(
        {Bytes(draw.real(1e6, 1e9)), Bytes(draw.coin() ? 0 : 5e8), draw_efficiency(draw)});
  }
  for (int stage = 0; stage < plan.schedule.ranks; ++stage) {
    plan.optimizer.push_back(milliseconds(draw.real(0.1, 5)));
  }
  if (draw.coin()) plan.embedding_gradient = Bytes(draw.real(1e6, 1e8));
  plan.gradient_norm = draw.coin();
  Topology topology(cluster, strategy.nodes);
  plan.gpus = place(strategy, topology);
  std::string text =
      "seed " + std::to_string(seed) + ": " + std::string(to_text(plan.schedule.kind)) + " " +
      std::string(to_text(plan.schedule.transfers)) + " P" + std::to_string(plan.schedule.ranks) + " v" +
      std::to_string(plan.schedule.chunks) + " M" + std::to_string(plan.schedule.microbatches) + " D" +
      std::to_string(plan.replicas) + " C" + std::to_string(plan.context) + " lanes" +
      std::to_string(plan.gpus.front().size()) + " nics" + std::to_string(cluster.groups[0].nics_per_node) +
      "," + std::to_string(cluster.groups[1].nics_per_node) + " leaf" +
      std::to_string(cluster.fabric.nodes_per_leaf);
  return {std::move(plan), std::move(topology), std::move(text)};
}

}  // namespace orrery
