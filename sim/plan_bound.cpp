#include "sim/plan_bound.hpp"

#include <algorithm>

#include "sim/time_bound.hpp"
#include "strategies/pipeline_time.hpp"

namespace orrery {
namespace {

// Of one stage, in seconds.
struct BoundStage {
  StageWork work;   // of all chunks
  StageWork first;  // of the first chunk: what a schedule of several waits for on the way down and up
  LayerTraffic traffic;
};

std::vector<BoundStage> bound_stages(const PriceBook& book, const ParallelStrategy& plan,
                                     const Setting& setting) {
  const Backward pass = backward_of(plan.schedule);
  const std::vector<int>& layers = book.model().layers;
  const bool alike =
      std::all_of(layers.begin(), layers.end(), [&](int shape) { return shape == layers.front(); });
  std::vector<BoundStage> stages;
  const ShardCost* cost = nullptr;
  LayerTraffic of_layer;
  Ways ways;
  for (int stage = 0; stage < plan.pipeline; ++stage) {
    const int group = plan.stages[static_cast<std::size_t>(stage)].group;
    if (stage == 0 || group != plan.stages[static_cast<std::size_t>(stage - 1)].group) {
      cost = &book.shard(shard_key(plan, stage));
      ways = {plan.tensor(stage), plan.context, plan.expert, plan.data, {}};
      if (alike) of_layer = least_traffic(book, group, ways, setting);
    }
    BoundStage here;
    int count = 0;
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      const PartTimes times = least_times(book.part_times(*cost, plan.part(stage, chunk), plan.recompute),
                                          book.cluster().groups[static_cast<std::size_t>(group)], ways);
      const StageWork work{times.forward.value(), (times.forward + times.backward).value()};
      if (chunk == 0) here.first = {work.forward, pass == Backward::whole ? work.whole : work.forward};
      here.work.forward += work.forward;
      here.work.whole += work.whole;
      count += plan.part(stage, chunk).count;
    }
    here.traffic = {of_layer.reduced * count, of_layer.gathered * count};
    stages.push_back(here);
  }
  return stages;
}

}  // namespace

Seconds least_plan_time(const PriceBook& book, const ParallelStrategy& plan, const Setting& setting) {
  const std::vector<BoundStage> stages = bound_stages(book, plan, setting);
  const bool closed =
      plan.schedule == ScheduleKind::one_f_one_b || plan.schedule == ScheduleKind::gpipe;
  const PipelineShape shape{plan.schedule, static_cast<double>(plan.microbatches()), plan.pipeline};
  double above_forward = 0, above = 0, after = 0, most = 0, gathered = 0;
  for (const BoundStage& stage : stages) after += stage.work.whole;
  for (int s = 0; s < plan.pipeline; ++s) {
    const BoundStage& stage = stages[static_cast<std::size_t>(s)];
    after -= stage.work.whole;
    const double span = closed ? stage_span(stage.work, std::max(after, 0.0), s, shape)
                               : shape.microbatches * stage.work.whole;
    most = std::max(most, above_forward + span + std::max(above - above_forward, stage.traffic.reduced));
    gathered = std::max(gathered, stage.traffic.gathered);
    // Where ranks go on by themselves the next iteration begins while a stage is at work.
    if (validates_later(plan.schedule)) continue;
    above_forward += stage.first.forward;
    above += stage.first.whole;
  }
  return Seconds((most + gathered) * (1 - 1e-12));
}

}  // namespace orrery
