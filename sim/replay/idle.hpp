// What a rank was waiting for while it was idle.
#pragma once

#include <vector>

#include "strategies/schedule.hpp"
#include "traces/timeline.hpp"

namespace orrery {

struct Interval {
  double start = 0;
  double end = 0;
};

struct IdlePiece {
  Interval when;
  SpanKind kind = SpanKind::bubble_steady;
};

// Splits the idle window into pieces in order: while one of `transfers` is on its way it is `exposed`, else
// `bubble`. The pieces cover the window without gap; empty pieces are left out. `transfers` may overlap and
// leave the window.
void split_idle(Interval window, std::vector<Interval> transfers, SpanKind exposed, SpanKind bubble,
                std::vector<IdlePiece>& pieces);

SpanKind bubble_of(Phase);

}  // namespace orrery
