// How long a pipeline takes with free transfers, in closed form.
#pragma once

#include <vector>

#include "strategies/schedule.hpp"

namespace orrery {

// Seconds of a stage for one microbatch.
struct StageWork {
  double forward = 0;
  double whole = 0;  // forward and backward
};

// One model part a rank, backward in one piece: 1f1b or gpipe.
struct PipelineShape {
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  double microbatches = 1;
  int stages = 1;
};

// Seconds from the start of a stage's first forward to the end of its last backward, at least: the longest of
// the ways through the schedule that keep to this stage but for trips through the stages after it, which take
// `after` s a microbatch together. Before its first backward, or after its last forward, a stage of 1f1b has
// q forwards or backwards to fill such a trip with: as many as there are stages after it, at most M - 1; one
// of gpipe has none.
//
//   M w,   M w + after - q f,   M w + after - q b,   (M - q) w + 2 after
double stage_span(const StageWork&, double after, int stage, const PipelineShape&);

// Seconds of an iteration at least: stage_span and a way down and up through the stages before, of the stage
// that takes longest. Never above the schedule played with free transfers; equal to it unless some stages
// take several times as long as others, when the longest way changes between them.
double pipeline_time(const std::vector<StageWork>&, const PipelineShape&);

}  // namespace orrery
