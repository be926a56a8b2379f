#include "strategies/iteration.hpp"

#include <algorithm>
#include <tuple>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

// Writes the program of one rank, iteration after iteration.
class RankProgram {
 public:
  RankProgram(const Schedule& one, const TrafficShape& traffic, Schedule& all, int rank)
      : one_(one),
        traffic_(traffic),
        all_(all),
        rank_(rank),
        launched_(static_cast<std::size_t>(one.shape.chunks)) {
    for (const Step& step : one.programs[static_cast<std::size_t>(rank)]) {
      if (step.kind == last_kind()) order_of_backwards_.push_back(&step);
    }
  }

  std::vector<Step> write() {
    for (iteration_ = 0; iteration_ < traffic_.iterations; ++iteration_) {
      launched_.assign(launched_.size(), false);
      backwards_ = 0;
      for (const Step& step : one_.programs[static_cast<std::size_t>(rank_)]) schedule_step(step);
      finish_gradients();
      if (is_end_stage() && traffic_.embedding) collective(StepKind::join, slot(CollectiveRole::embedding));
      if (traffic_.gradient_norm) collective(StepKind::join, slot(CollectiveRole::gradient_norm));
      if (traffic_.optimizer) plain(StepKind::optimizer);
      gather_parameters();
    }
    return std::move(steps_);
  }

 private:
  // The task that completes the gradients of a microbatch.
  StepKind last_kind() const { return one_.split_backward ? StepKind::weight_gradient : StepKind::backward; }
  int buckets(int part) const {
    return traffic_.buckets.empty() ? 1 : traffic_.buckets[static_cast<std::size_t>(part)];
  }
  bool is_end_stage() const {
    return one_.shape.ranks > 1 &&
           (rank_ == one_.rank_of_part.front() || rank_ == one_.rank_of_part.back()) &&
           one_.rank_of_part.front() != one_.rank_of_part.back();
  }

  // The collectives of an iteration stand in one block of all_.collectives, in the order of
  // slots_of_iteration: roles as they are declared, parts, buckets.
  int slot(CollectiveRole role, int part = 0, int bucket = 0, int back = 0) const {
    const auto per_iteration = static_cast<int>(all_.collectives.size()) / traffic_.iterations;
    const auto first = all_.collectives.begin() + (iteration_ - back) * per_iteration;
    const auto place = [](const CollectiveSlot& slot) {
      return std::tuple(slot.role, slot.part, slot.bucket);
    };
    const std::tuple wanted(role, part, bucket);
    const auto found =
        std::lower_bound(first, first + per_iteration, wanted,
                         [&](const CollectiveSlot& slot, const auto& key) { return place(slot) < key; });
    ORRERY_ENSURE(found != first + per_iteration && place(*found) == wanted);
    return static_cast<int>(found - all_.collectives.begin());
  }

  void plain(StepKind kind) {
    Step step;
    step.kind = kind;
    step.phase = Phase::drain;
    steps_.push_back(step);
  }
  void collective(StepKind kind, int index, Phase phase = Phase::drain) {
    plain(kind);
    steps_.back().slot = index;
    steps_.back().phase = phase;
  }

  // A step of the schedule in this iteration.
  Step moved(const Step& step) const {
    Step copy = step;
    copy.microbatch += iteration_ * one_.shape.microbatches;
    const auto renumber = [&](MessageList& list) {
      for (std::uint8_t i = 0; i < list.count; ++i) {
        const Message message = one_.message(list.ids[i]);
        list.ids[i] = all_.message_id(message.gradient, message.boundary,
                                      message.microbatch + iteration_ * one_.shape.microbatches);
      }
    };
    renumber(copy.awaits);
    renumber(copy.sends);
    return copy;
  }

  void schedule_step(const Step& step) {
    if (step.kind == StepKind::forward && step.microbatch == 0 && awaits_parameters()) {
      cut(
          moved(step), buckets(part(step.chunk)),
          [&](int bucket) {
            collective(StepKind::await, slot(CollectiveRole::parameters, part(step.chunk), bucket, 1),
                       step.phase);
          },
          [](int) {});
      return;
    }
    const bool cut_last_backward = traffic_.gradients && traffic_.overlap_grad_reduce &&
                                   step.kind == last_kind() && one_.shape.chunks == 1 && rank_ == 0 &&
                                   step.microbatch == one_.shape.microbatches - 1;
    if (cut_last_backward) {
      launched_[0] = true;
      cut(
          moved(step), buckets(part(0)), [](int) {},
          [&](int bucket) {
            collective(StepKind::launch, slot(CollectiveRole::gradients, part(0), bucket));
          });
      return;
    }
    steps_.push_back(moved(step));
    if (step.kind == last_kind() && one_.shape.chunks > 1) launch_finished_chunk();
  }

  bool awaits_parameters() const {
    return traffic_.parameters && traffic_.overlap_param_gather && iteration_ > 0;
  }

  // A task in `pieces` equal pieces, with steps before and after each; messages come first and go last.
  template <class Before, class After>
  void cut(const Step& whole, int pieces, Before before, After after) {
    for (int piece = 0; piece < pieces; ++piece) {
      before(piece);
      Step step = whole;
      step.pieces = pieces;
      if (piece > 0) step.awaits = {};
      if (piece + 1 < pieces) step.sends = {};
      steps_.push_back(step);
      after(piece);
    }
  }

  // After backward k of this rank: the chunk whose last backward was number k - rank, so that all ranks
  // launch together.
  void launch_finished_chunk() {
    const int aligned = backwards_ - rank_;
    ++backwards_;
    if (!traffic_.gradients || !traffic_.overlap_grad_reduce || aligned < 0) return;
    const Step& done = *order_of_backwards_[static_cast<std::size_t>(aligned)];
    if (done.microbatch == one_.shape.microbatches - 1) launch_gradients(done.chunk);
  }

  void launch_gradients(int chunk) {
    launched_[static_cast<std::size_t>(chunk)] = true;
    for (int bucket = 0; bucket < buckets(part(chunk)); ++bucket) {
      collective(StepKind::launch, slot(CollectiveRole::gradients, part(chunk), bucket));
    }
  }

  void finish_gradients() {
    if (!traffic_.gradients) return;
    for (int chunk = one_.shape.chunks - 1; chunk >= 0; --chunk) {
      if (!launched_[static_cast<std::size_t>(chunk)]) launch_gradients(chunk);
    }
    for (int chunk = one_.shape.chunks - 1; chunk >= 0; --chunk) {
      for (int bucket = 0; bucket < buckets(part(chunk)); ++bucket) {
        collective(StepKind::await, slot(CollectiveRole::gradients, part(chunk), bucket));
      }
    }
  }

  void gather_parameters() {
    if (!traffic_.parameters) return;
    const bool awaited_later = traffic_.overlap_param_gather && iteration_ + 1 < traffic_.iterations;
    for (int chunk = 0; chunk < one_.shape.chunks; ++chunk) {
      for (int bucket = 0; bucket < buckets(part(chunk)); ++bucket) {
        collective(awaited_later ? StepKind::launch : StepKind::join,
                   slot(CollectiveRole::parameters, part(chunk), bucket));
      }
    }
  }

  int part(int chunk) const { return one_.part(rank_, chunk); }

  const Schedule& one_;
  const TrafficShape& traffic_;
  Schedule& all_;
  int rank_;
  int iteration_ = 0;
  int backwards_ = 0;  // of this iteration so far
  std::vector<const Step*> order_of_backwards_;
  std::vector<bool> launched_;  // [chunk] gradients of this iteration
  std::vector<Step> steps_;
};

std::vector<CollectiveSlot> slots_of_iteration(const Schedule& one, const TrafficShape& traffic) {
  std::vector<CollectiveSlot> slots;
  const auto of_parts = [&](CollectiveRole role) {
    for (int part = 0; part <= one.boundaries(); ++part) {
      const int buckets = traffic.buckets.empty() ? 1 : traffic.buckets[static_cast<std::size_t>(part)];
      for (int bucket = 0; bucket < buckets; ++bucket) slots.push_back({role, part, bucket, buckets});
    }
  };
  if (traffic.gradients) of_parts(CollectiveRole::gradients);
  if (traffic.embedding) slots.push_back({CollectiveRole::embedding, 0, 0, 1});
  if (traffic.gradient_norm) slots.push_back({CollectiveRole::gradient_norm, 0, 0, 1});
  if (traffic.parameters) of_parts(CollectiveRole::parameters);
  return slots;
}

}  // namespace

Schedule with_traffic(const Schedule& one, const TrafficShape& traffic) {
  ORRERY_ENSURE(traffic.iterations >= 1 && one.iterations == 1);
  Schedule all = one;
  all.iterations = traffic.iterations;
  all.programs.clear();
  const std::vector<CollectiveSlot> slots = slots_of_iteration(one, traffic);
  for (int iteration = 0; iteration < traffic.iterations; ++iteration) {
    all.collectives.insert(all.collectives.end(), slots.begin(), slots.end());
  }
  for (int rank = 0; rank < one.shape.ranks; ++rank)
    all.programs.push_back(RankProgram(one, traffic, all, rank).write());
  return all;
}

}  // namespace orrery
