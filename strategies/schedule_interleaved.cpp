// 1f1b over several model parts a rank (arXiv 2104.04473, Megatron-LM's
// forward_backward_pipelining_with_interleaving).
#include <algorithm>

#include "strategies/task_order.hpp"

namespace orrery {
namespace {

// (chunk, microbatch) of every virtual microbatch: groups of `group` microbatches, in a group chunk after
// chunk.
std::vector<std::pair<int, int>> schedule_of_virtual_microbatches(int microbatches, int chunks, int group) {
  std::vector<std::pair<int, int>> table;
  for (int first = 0; first < microbatches; first += group) {
    const int last = std::min(first + group, microbatches);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int i = first; i < last; ++i) table.emplace_back(chunk, i);
    }
  }
  return table;
}

}  // namespace

TaskOrder interleaved_order(const ScheduleShape& shape, int rank) {
  const int group = shape.group();
  const auto table = schedule_of_virtual_microbatches(shape.microbatches, shape.chunks, group);
  const int total = static_cast<int>(table.size());
  const int warmup = std::min(total, 2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * group);
  const auto forward = [&table](int k) { return table[static_cast<std::size_t>(k)]; };
  const auto backward = [&](int k) {
    const auto [chunk, microbatch] = table[static_cast<std::size_t>(k)];
    return std::pair(shape.chunks - 1 - chunk, microbatch);
  };
  return warmup_pairs_drain(total, warmup, forward, backward);
}

std::optional<Misfit> interleaved_misfit(const ScheduleShape& shape) {
  if (shape.ranks < 2)
    return Misfit{"interleaved with one pipeline stage", "interleaved needs 2 pipeline stages or more"};
  constexpr std::string_view name = "interleaved: the microbatches do not divide over the stages";
  const int group = shape.group();
  if (group < shape.ranks || group > shape.microbatches) {
    return Misfit{name,
                  "interleaved needs microbatch groups (#) of at least as many as stages (#) and at most as "
                  "many as microbatches (#)",
                  {group, shape.ranks, shape.microbatches}};
  }
  // Megatron-LM receives the first rank's next input P turns after the last rank's output set off.
  if (shape.transfers == TransferMode::blocking &&
      (group != shape.ranks || shape.microbatches % group != 0)) {
    return Misfit{name,
                  "interleaved with blocking transfers needs groups of as many microbatches as stages (#), "
                  "which divide the number of microbatches (#)",
                  {shape.ranks, shape.microbatches}};
  }
  const int ragged = shape.microbatches % group;
  if (ragged != 0 && ragged < shape.ranks) {
    return Misfit{
        name,
        "interleaved needs a number of microbatches (#) that the group (#) divides, or a last group "
        "of at least as many as stages (#)",
        {shape.microbatches, group, shape.ranks}};
  }
  return std::nullopt;
}

}  // namespace orrery
