// How many microbatches each replica runs when replicas are not equally fast.
#pragma once

#include <cstdint>
#include <vector>

#include "strategies/strategy.hpp"

namespace orrery {

// A pipeline of `count` replicas takes `fill + microbatches x each` seconds: the closed form of 1f1b with
// `each` the slowest stage's forward and backward, and `fill` those of the other stages.
struct ReplicaPace {
  int count = 1;
  double fill = 0;         // s
  double each = 0;         // s, above 0
  std::int64_t least = 1;  // microbatches its schedule needs
};

// Microbatches of every replica, kind after kind, that sum to `total` and make the slowest replica fastest;
// exact. Replicas of one kind differ by one at most. Empty where `total` is less than the replicas need.
std::vector<std::int64_t> fastest_shares(const std::vector<ReplicaPace>&, std::int64_t total);

// The strategy with these shares: kinds whose replicas got two different shares become two kinds.
ParallelStrategy with_shares(ParallelStrategy, const std::vector<std::int64_t>& shares);

}  // namespace orrery
