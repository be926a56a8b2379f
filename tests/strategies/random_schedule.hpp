// Shapes of schedules for property tests.
#pragma once

#include <algorithm>
#include <random>

#include "strategies/schedule.hpp"

namespace orrery::test {

inline int between(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

// Up to 9 ranks, 3 chunks and 20 microbatches (interleaved: up to 27); all kinds, transfers and groups that
// go together.
inline ScheduleShape random_shape(std::mt19937& random) {
  ScheduleShape shape;
  shape.kind = static_cast<ScheduleKind>(between(random, 0, 5));
  shape.transfers = static_cast<TransferMode>(between(random, 0, 2));
  shape.ranks = between(random, 1, 9);
  shape.microbatches = between(random, 1, 20);
  if (shape.kind == ScheduleKind::zb_v) shape.chunks = 2;
  if (shape.kind == ScheduleKind::interleaved) {
    shape.ranks = std::max(shape.ranks, 2);
    shape.chunks = between(random, 2, 3);
    shape.microbatches = between(random, shape.ranks, 3 * shape.ranks);
    shape.microbatch_group = between(random, shape.ranks, shape.microbatches);
    while (schedule_obstacle({shape.kind, TransferMode::eager, shape.ranks, shape.chunks, shape.microbatches,
                              shape.microbatch_group})) {
      ++shape.microbatch_group;  // at the latest all in one group
    }
  }
  if (shape.transfers == TransferMode::blocking && schedule_obstacle(shape))
    shape.transfers = TransferMode::overlapped;
  return shape;
}

}  // namespace orrery::test
