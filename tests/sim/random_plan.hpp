// Random priced plans on random clusters, for property tests.
#pragma once

#include <cstdint>
#include <string>

#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

struct RandomPlan {
  PricedPlan plan;
  Topology topology;
  std::string text;  // what was drawn, for the message of a failing test
};

// On a random_cluster: 1 to 5 stages, 1 to 3 replicas, tensor and context ways, every schedule and transfer
// mode, with all the traffic that follows the pipeline.
RandomPlan random_plan(std::uint32_t seed, Contention);

// The same with 1 to 8 replicas that fill nodes of 4 or 8 GPUs evenly, stage after stage or replica after
// replica, so that some replicas are often images of others.
RandomPlan random_symmetric_plan(std::uint32_t seed, Contention);

// Its ranks trade places, or some of their lanes, or all GPUs do.
RandomPlan shuffled(RandomPlan, std::uint32_t seed);

// 1 to 3 iterations, any collective algorithm, gradients reduced and parameters gathered bucket by bucket
// under compute that may be slower meanwhile.
RandomPlan with_overlaps(RandomPlan, std::uint32_t seed);

// Forwards and backwards in pieces of compute and collectives over tensor, context and expert groups, some
// with compute beside them; experts shared by some or all replicas, with gradients of their own.
RandomPlan with_group_calls(RandomPlan, std::uint32_t seed);

// Replicas with microbatches of their own, of two kinds, slow ranks from some iteration on, noise. Those that
// share experts have equally many microbatches and are of one kind.
RandomPlan with_unequal_replicas(RandomPlan, std::uint32_t seed);

// Optimizer states sharded over equal sets of copies, where they are sharded. After with_group_calls.
RandomPlan with_optimizer_sets(RandomPlan, std::uint32_t seed);

// Stages with half the tensor ranks of others, where those are even; messages whole or in shards.
RandomPlan with_unequal_tensor(RandomPlan, std::uint32_t seed);

// On links without latency.
RandomPlan without_latency(RandomPlan);

}  // namespace orrery
