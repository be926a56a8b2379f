// gpipe (arXiv 1811.06965) and 1f1b (arXiv 2006.09503, Megatron-LM's
// forward_backward_pipelining_without_interleaving).
#include <algorithm>

#include "strategies/task_order.hpp"

namespace orrery {

TaskOrder gpipe_order(const ScheduleShape& shape, int /*rank*/) {
  TaskOrder order;
  for (int i = 0; i < shape.microbatches; ++i) order.push_back({StepKind::forward, Phase::warmup, 0, i});
  for (int i = 0; i < shape.microbatches; ++i) order.push_back({StepKind::backward, Phase::drain, 0, i});
  return order;
}

TaskOrder one_f_one_b_order(const ScheduleShape& shape, int rank) {
  const int warmup = std::min(shape.ranks - rank - 1, shape.microbatches);
  const auto task = [](int i) { return std::pair(0, i); };
  return warmup_pairs_drain(shape.microbatches, warmup, task, task);
}

}  // namespace orrery
