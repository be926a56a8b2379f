// One or several iterations of training as a program for each rank: the schedule, and all the traffic that
// follows it.
#pragma once

#include <vector>

#include "strategies/schedule.hpp"

namespace orrery {

// What follows the pipeline, by Megatron-LM's switches (core/distributed, core/optimizer).
struct TrafficShape {
  int iterations = 1;
  bool gradients = false;  // reduced over the data-parallel (and context) ranks
  bool overlap_grad_reduce =
      false;               // bucket by bucket under the last backward of the first stage, or chunk by chunk
  bool embedding = false;  // tied word embedding, over first and last stage
  bool gradient_norm = false;  // over all stages of a replica: nobody steps before all are there
  bool optimizer = false;
  bool parameters = false;            // all-gathered after the step (use-distributed-optimizer)
  bool overlap_param_gather = false;  // under the first forwards of the next iteration
  std::vector<int> buckets;           // of every model part, for the overlaps; empty: one each
  bool operator==(const TrafficShape&) const = default;
};

// The schedule `iterations` times over, its microbatches counted on, with the collectives joined to its
// programs:
//
// * Without overlap a rank reduces the gradients of its chunks after its last backward. With overlap, the
// first stage of
//   a one-chunk schedule cuts its last backward into buckets and launches each as it is ready, while later
//   stages reduce after their cool-down, in the shadow of the first (align-grad-reduce); a rank of several
//   chunks launches chunk c when its backward number k - rank was the last of that chunk.
// * Then embedding, norm, optimizer step, parameter gather; the gather is waited for there, or bucket by
// bucket before
//   the next iteration's first forward of the chunk.
Schedule with_traffic(const Schedule&, const TrafficShape&);

}  // namespace orrery
