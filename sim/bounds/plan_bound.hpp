// The least time of a plan whose layers are split, before its flows are known.
#pragma once

#include "costmodels/plans/price_book.hpp"

namespace orrery {

// Seconds of an iteration at least: pipeline_time, or where the schedule is another, the first microbatch on
// its way to a stage, all its work and its last gradient on the way back; with the messages that this has to
// wait for. Gradients are reduced meanwhile, as a stage is ready; optimizer steps are taken when all are,
// and the next iteration begins with the first that has its parameters.
Seconds least_plan_time(const PriceBook&, const ParallelStrategy&);
// `parts`: of the plan priced on its nodes, where what its groups exchange is known.
Seconds least_plan_time(const PriceBook&, const ParallelStrategy&, const std::vector<PartTimes>& parts);

}  // namespace orrery
