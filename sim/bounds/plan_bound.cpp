#include "sim/bounds/plan_bound.hpp"

#include <algorithm>

#include "costmodels/memory/memory.hpp"
#include "sim/bounds/priced_bounds.hpp"
#include "sim/bounds/traffic_bound.hpp"
#include "strategies/pipeline_time.hpp"

namespace orrery {
namespace {

// Of one stage, in seconds.
struct BoundStage {
  StageWork work;   // of all chunks
  StageWork first;  // of the first chunk: what a schedule of several waits for on the way down and up
  LeastTraffic traffic;
  double step = 0;  // of the optimizer
};

// `priced`: the parts of the plan, where they are known.
BoundStage bound_stage(const PriceBook& book, const ParallelStrategy& plan, int stage,
                       const std::vector<PartTimes>* priced) {
  const StageDevices& devices = plan.stages[static_cast<std::size_t>(stage)];
  const ShardCost& cost = book.shard(shard_key(plan, stage));
  const Ways ways{devices.tensor, plan.context, plan.expert, plan.data, {}};
  BoundStage here;
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    const int part = part_of(plan.schedule, plan.pipeline, stage, chunk);
    const PartTimes times =
        priced != nullptr
            ? (*priced)[static_cast<std::size_t>(part)]
            : least_times(book.part_times(cost, plan.part(stage, chunk), plan.recompute, plan.gpus()),
                          book.cluster(), devices.group, ways);
    const StageWork work{times.forward.value(),
                         (times.forward + times.backward + times.weight_gradient).value()};
    if (chunk == 0) {
      const bool whole = backward_of(plan.schedule) == Backward::whole;
      here.first = {work.forward, whole ? work.whole : work.forward};
    }
    here.work.forward += work.forward;
    here.work.whole += work.whole;
    const LeastTraffic traffic = least_traffic(book, plan, part);
    here.traffic.reduced += traffic.reduced;
    here.traffic.gathered += traffic.gathered;
  }
  // Where ranks go on by themselves the next iteration begins while others step.
  if (!validates_later(plan.schedule)) {
    const double parameters = optimizer_shard_parameters(book.model(), plan, stage);
    here.step = book.optimizer(devices.group, parameters, plan.optimizer_offload).value();
  }
  return here;
}

// Whether a stage does what the one before it does: neither has an end of the model, and layers are alike.
bool as_before(const PriceBook& book, const ParallelStrategy& plan, int stage) {
  const auto s = static_cast<std::size_t>(stage);
  if (stage < 2 || stage + 1 == plan.pipeline || !(plan.stages[s] == plan.stages[s - 1])) return false;
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    const LayerRange& here = plan.part(stage, chunk);
    const LayerRange& before = plan.part(stage - 1, chunk);
    if (here.count != before.count) return false;
    const auto shapes = book.model().layers.begin();
    if (!std::equal(shapes + here.first, shapes + here.first + here.count, shapes + before.first))
      return false;
  }
  return true;
}

// Seconds of a message to the next stage; 0 of the last.
std::vector<double> transfers(const PriceBook& book, const ParallelStrategy& plan) {
  std::vector<double> times;
  for (int stage = 0; stage + 1 < plan.pipeline; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    const bool known =
        stage > 0 && plan.stages[s + 1] == plan.stages[s] && plan.stages[s] == plan.stages[s - 1];
    times.push_back(known ? times.back() : least_transfer(book, plan, stage));
  }
  times.push_back(0);
  return times;
}

// stage_span with messages. Of 1f1b with blocking transfers nothing is computed beside them: each way through
// the schedule waits for those of its own stage that lie on it, over the boundaries above and below.
double span_with_messages(const StageWork& work, double after, double above, double below, int stage,
                          const PipelineShape& shape) {
  const double microbatches = shape.microbatches;
  const double fill = std::min<double>(shape.stages - stage - 1, microbatches - 1);
  const double lesser = std::min(work.forward, work.whole - work.forward);
  const double both = above + below;
  const double all = microbatches * work.whole;
  double span = std::max(all + (microbatches + fill) * both - above,
                         all + after - fill * lesser + (microbatches - 1) * both);
  if (fill < microbatches - 1)
    span = std::max(span, all - fill * work.whole + 2 * after + (microbatches - fill - 1) * both - below);
  return span;
}

Seconds least_time(const PriceBook& book, const ParallelStrategy& plan,
                   const std::vector<BoundStage>& stages) {
  const std::vector<double> messages = transfers(book, plan);
  const bool gpipe = plan.schedule == ScheduleKind::gpipe;
  const bool one_f_one_b = plan.schedule == ScheduleKind::one_f_one_b;
  const bool blocking = one_f_one_b && plan.transfers == TransferMode::blocking;
  const bool whole = backward_of(plan.schedule) == Backward::whole;
  const PipelineShape shape{plan.schedule, static_cast<double>(plan.microbatches()), plan.pipeline};
  double above_forward = 0, above = 0, after = 0, most = 0, last = 0, message_above = 0;
  double first_step = stages.front().step;  // the soonest done
  for (std::size_t s = 0; s < stages.size(); ++s) after += stages[s].work.whole + 2 * messages[s];
  for (int s = 0; s < plan.pipeline; ++s) {
    const BoundStage& stage = stages[static_cast<std::size_t>(s)];
    const double message = messages[static_cast<std::size_t>(s)];
    after -= stage.work.whole;
    const double trip = std::max(after, 0.0);
    const double span = blocking ? span_with_messages(stage.work, trip, message_above, message, s, shape)
                        : gpipe || one_f_one_b ? stage_span(stage.work, trip, s, shape)
                                               : shape.microbatches * stage.work.whole;
    after -= 2 * message;
    most = std::max(most, above_forward + span + std::max(above - above_forward, stage.traffic.reduced));
    last = std::max(last, stage.step + stage.traffic.gathered);
    first_step = std::min(first_step, stage.step);
    message_above = message;
    // Where ranks go on by themselves the next iteration begins while a stage is at work.
    if (validates_later(plan.schedule)) continue;
    above_forward += stage.first.forward + message;
    above += stage.first.whole + (whole ? 2 : 1) * message;
  }
  // All begin to step together, when the norm is known; each stage goes on from its own step.
  const bool goes_on = plan.overlap_param_gather || plan.pipeline > 1;
  return Seconds((most + (goes_on ? first_step : last)) * (1 - 1e-12));
}

}  // namespace

Seconds least_plan_time(const PriceBook& book, const ParallelStrategy& plan) {
  std::vector<BoundStage> stages;
  for (int stage = 0; stage < plan.pipeline; ++stage)
    stages.push_back(as_before(book, plan, stage) ? stages.back() : bound_stage(book, plan, stage, nullptr));
  return least_time(book, plan, stages);
}

Seconds least_plan_time(const PriceBook& book, const ParallelStrategy& plan,
                        const std::vector<PartTimes>& parts) {
  std::vector<BoundStage> stages;
  for (int stage = 0; stage < plan.pipeline; ++stage)
    stages.push_back(bound_stage(book, plan, stage, &parts));
  return least_time(book, plan, stages);
}

}  // namespace orrery
