#include "sim/replay/idle.hpp"

#include <algorithm>

namespace orrery {

void split_idle(Interval window, std::vector<Interval> transfers, SpanKind exposed, SpanKind bubble,
                std::vector<IdlePiece>& pieces) {
  pieces.clear();
  std::sort(transfers.begin(), transfers.end(),
            [](const Interval& a, const Interval& b) { return a.start < b.start; });
  double at = window.start;
  const auto piece_until = [&](double end, SpanKind kind) {
    end = std::min(end, window.end);
    if (end <= at) return;
    pieces.push_back({{at, end}, kind});
    at = end;
  };
  for (const Interval& transfer : transfers) {
    piece_until(transfer.start, bubble);
    piece_until(transfer.end, exposed);
  }
  piece_until(window.end, bubble);
}

SpanKind bubble_of(Phase phase) {
  switch (phase) {
    case Phase::warmup:
      return SpanKind::bubble_warmup;
    case Phase::steady:
      return SpanKind::bubble_steady;
    case Phase::drain:
      return SpanKind::bubble_drain;
  }
  return SpanKind::bubble_steady;
}

}  // namespace orrery
