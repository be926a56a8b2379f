#include "strategies/pipeline_time.hpp"

#include <algorithm>

#include "platforms/errors.hpp"

namespace orrery {

double stage_span(const StageWork& work, double after, int stage, const PipelineShape& shape) {
  const double all = shape.microbatches * work.whole;
  if (shape.schedule == ScheduleKind::gpipe) return all + after;
  const double fill = std::min<double>(shape.stages - stage - 1, shape.microbatches - 1);
  const double lesser = std::min(work.forward, work.whole - work.forward);
  double span = std::max(all, all + after - fill * lesser);
  // Two trips need a backward that is not in the first and a forward that is not in the second.
  if (fill < shape.microbatches - 1) span = std::max(span, all - fill * work.whole + 2 * after);
  return span;
}

double pipeline_time(const std::vector<StageWork>& stages, const PipelineShape& shape) {
  ORRERY_ENSURE(static_cast<int>(stages.size()) == shape.stages);
  double after = 0, time = 0;
  for (int stage = shape.stages; stage-- > 0;) {
    const StageWork& work = stages[static_cast<std::size_t>(stage)];
    time = std::max(stage_span(work, after, stage, shape), work.whole + time);
    after += work.whole;
  }
  return time;
}

}  // namespace orrery
