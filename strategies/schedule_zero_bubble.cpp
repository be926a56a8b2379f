// zb-h1 and zb-h2 (arXiv 2401.10241, "Zero Bubble Pipeline Parallelism", section 2): the handcrafted orders
// for F = B = W as closed forms. Both are 1f1b with the weight gradients set free; they differ in how many
// microbatches may be alive, from the start of their forward to the end of their weight gradient.
#include <algorithm>

#include "strategies/task_order.hpp"

namespace orrery {
namespace {

// `warmup` forwards; pairs of a forward and a backward; the backwards that are left. After a backward one
// weight gradient runs as soon as `alive` microbatches would be exceeded without it; the others come last.
TaskOrder zero_bubble_order(int microbatches, int warmup, int alive) {
  const int late = std::max(0, alive - 1 - warmup);  // weight gradients that lag behind
  TaskOrder order;
  const auto add = [&order](StepKind kind, Phase phase, int microbatch) {
    order.push_back({kind, phase, 0, microbatch});
  };
  warmup = std::min(warmup, microbatches);
  for (int i = 0; i < warmup; ++i) add(StepKind::forward, Phase::warmup, i);
  for (int i = 0; i < microbatches; ++i) {
    const int forward = warmup + i;
    const Phase phase = forward < microbatches ? Phase::steady : Phase::drain;
    // Without warm-up forwards, what comes before the first forward is still warm-up.
    if (forward < microbatches) add(StepKind::forward, forward == 0 ? Phase::warmup : phase, forward);
    add(StepKind::backward, phase, i);
    if (i >= late) add(StepKind::weight_gradient, phase, i - late);
  }
  for (int i = std::max(0, microbatches - late); i < microbatches; ++i) {
    add(StepKind::weight_gradient, Phase::drain, i);
  }
  return order;
}

// 2 P - 1 alive, so that rank 0 has forwards until its first gradient is back. With fewer microbatches than
// that the paper gives no order; then no more warm-up than there is to gain, down to zb-h1's.
int zb_h2_alive(const ScheduleShape& shape) {
  return std::min(2 * shape.ranks - 1, std::max(shape.ranks, shape.microbatches));
}

}  // namespace

// P alive on every rank: what 1f1b has on its first.
TaskOrder zb_h1_order(const ScheduleShape& shape, int rank) {
  return zero_bubble_order(shape.microbatches, shape.ranks - rank - 1, shape.ranks);
}

TaskOrder zb_h2_order(const ScheduleShape& shape, int rank) {
  const int after = shape.ranks - rank - 1;
  const int alive = zb_h2_alive(shape);
  return zero_bubble_order(shape.microbatches, after + std::min(after, alive - shape.ranks), alive);
}

AliveLimits zb_h1_limits(const ScheduleShape& shape, int /*rank*/) {
  return {.total = shape.ranks, .first_chunk = shape.ranks};
}

AliveLimits zb_h2_limits(const ScheduleShape& shape, int /*rank*/) {
  return {.total = zb_h2_alive(shape), .first_chunk = zb_h2_alive(shape)};
}

}  // namespace orrery
