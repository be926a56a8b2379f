// A timeline as text: one row a stage, one character a slice of time.
#pragma once

#include <optional>
#include <string>

#include "traces/timeline.hpp"

namespace orrery {

enum class GanttLetters {
  microbatch,  // forward 0-9A-Z, backward a-z, by microbatch and starting over; as in pictures of schedules
  kind,        // F, B and W, for timelines with more microbatches than letters
};

struct GanttOptions {
  int columns = 100;  // over the whole makespan; not used when `unit` is given
  int replica = 0;
  std::optional<Seconds> unit = {};  // time of one column
  GanttLetters letters = GanttLetters::microbatch;
};

// Rows of the compute streams of one replica, "stage 0  01..aabb" each; empty when the replica has no ranks.
// A column shows what takes most of its time: computing as `letters` says, "+" weight gradient (with
// GanttLetters::microbatch),
// "=" optimizer, "^" waiting for a tensor, context or expert collective, "-" for a pipeline message, "~" for
// a data-parallel collective, "." bubble.
std::string text_gantt(const Timeline&, const GanttOptions& = {});

// Replica 0 within `columns` characters, with the times at the edges underneath. The letters are those of
// microbatches; where the whole run would leave a forward less than a column, its start, middle and end are
// shown instead, at a scale that shows each forward. `timeline` has ranks.
std::string text_gantt_windows(const Timeline& timeline, int columns);

// One line that explains the characters.
std::string gantt_legend(GanttLetters);

}  // namespace orrery
