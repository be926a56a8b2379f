// Replay of stage durations given by hand (DESIGN 2.5): no model, no cost model, one switch.
#pragma once

#include <string>
#include <string_view>

#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

struct DurationsPlan {
  PricedPlan plan;
  Topology topology;  // every rank, or every GPU of its tensor group, a node with one NIC to one switch
};

// `tensor: {ranks: 2, message: 16MiB, per_forward: 4, per_backward: 4}` makes every rank a tensor group,
// whose GPUs all-reduce the message that often in every forward and backward, on the NICs that everything
// else uses; message and gradient are then those of one GPU. Throws InputError that names file, line and key.
// Weight gradients are part of the backward where the schedule does not split it, unless they are to stay
// apart for a schedule file to say.
enum class WeightGradients { as_schedule, apart };
DurationsPlan parse_durations(std::string_view yaml, const std::string& file,
                              WeightGradients = WeightGradients::as_schedule);
DurationsPlan read_durations(const std::string& path, WeightGradients = WeightGradients::as_schedule);

}  // namespace orrery
