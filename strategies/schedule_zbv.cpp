// zb-v (arXiv 2401.10241 section 6, arXiv 2405.15362 figure "V-ZB"): two parts a rank in a V, parts s and 2 P
// - 1 - s, backward split. The handcrafted order for F = B = W; torch.distributed.pipelining's
// ScheduleZBVZeroBubble runs the same operations in the same order.
#include <algorithm>
#include <array>

#include "strategies/task_order.hpp"

namespace orrery {
namespace {

// Appends the next operation of a kind on a chunk. What belongs to microbatches that do not exist is counted
// and left out: a short iteration is the start of a long one.
class OrderWriter {
 public:
  explicit OrderWriter(int microbatches) : microbatches_(microbatches) {}

  void forward(int chunk) { add(StepKind::forward, chunk); }
  void backward(int chunk) { add(StepKind::backward, chunk); }
  void weight(int chunk) { add(StepKind::weight_gradient, chunk); }
  void backward_and_weight(int chunk) {
    backward(chunk);
    weight(chunk);
  }
  [[nodiscard]] int forwards(int chunk) const { return count(StepKind::forward, chunk); }
  [[nodiscard]] int waiting_weights(int chunk) const {
    return count(StepKind::backward, chunk) - count(StepKind::weight_gradient, chunk);
  }

  Phase phase = Phase::warmup;
  TaskOrder order;

 private:
  [[nodiscard]] int count(StepKind kind, int chunk) const {
    return counts_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(chunk)];
  }
  void add(StepKind kind, int chunk) {
    const int next = counts_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(chunk)]++;
    if (next < microbatches_) order.push_back({kind, phase, chunk, next});
  }

  int microbatches_;
  std::array<std::array<int, 2>, 3> counts_{};
};

}  // namespace

TaskOrder zb_v_order(const ScheduleShape& shape, int rank) {
  const int after = shape.ranks - rank;
  const int forwards = std::max(shape.microbatches, 2 * shape.ranks - 1);  // fewer do not fill the V
  OrderWriter writer(shape.microbatches);
  // Down the V until the first microbatch has come back up to this rank: 2 P chunks are alive then.
  for (int i = 0; i < 2 * after - 1; ++i) writer.forward(0);
  for (int i = 0; i < rank; ++i) {
    writer.forward(1);
    writer.forward(0);
  }
  // Until the first gradient has come down and up again, forwards and backwards of the second chunk only.
  writer.phase = Phase::steady;
  for (int i = 0; i < after; ++i) {
    writer.forward(1);
    writer.backward_and_weight(1);
  }
  while (writer.forwards(1) < forwards) {
    if (writer.forwards(0) < forwards) writer.forward(0);
    writer.backward_and_weight(0);
    writer.forward(1);
    writer.backward_and_weight(1);
  }
  // Ranks deep in the V send their gradients first and keep weight gradients for the end.
  writer.phase = Phase::drain;
  for (int i = 0; i < rank; ++i) {
    writer.backward(0);
    writer.backward(1);
  }
  for (int i = 0; i < after; ++i) writer.backward_and_weight(0);
  while (writer.waiting_weights(1) > 0) writer.weight(1);
  while (writer.waiting_weights(0) > 0) writer.weight(0);
  return writer.order;
}

// 2 P chunks; no more of the first than the handcrafted order has before the first microbatch is back.
AliveLimits zb_v_limits(const ScheduleShape& shape, int rank) {
  return {.total = 2 * shape.ranks, .first_chunk = 2 * shape.ranks - 1 - rank};
}

}  // namespace orrery
