#include "costmodels/estimate/launched_collectives.hpp"

#include <algorithm>

namespace orrery {

void LaunchedCollectives::wake_after(int id, int rank) {
  std::vector<int>& awaited = ranks_[static_cast<std::size_t>(rank)].awaited;
  std::erase_if(awaited, [this](int other) { return of(other).end != kUnknown; });
  if (std::find(awaited.begin(), awaited.end(), id) != awaited.end()) return;
  awaited.push_back(id);
  of(id).waiting.push_back(rank);
}

bool LaunchedCollectives::enter(int rank, int id, double now) {
  RankState& at = ranks_[static_cast<std::size_t>(rank)];
  CollectiveState& collective = of(id);
  if (!collective.entered) {
    collective.entered = true;
    collective.missing = flows_.members(id).size();
  }
  if (!at.launched.empty()) {
    CollectiveState& before = of(at.launched.back());
    if (before.end == kUnknown) {
      before.then.push_back(id);
      ++collective.missing;
    } else {
      collective.start = std::max(collective.start, before.end);
    }
  }
  at.launched.push_back(id);
  collective.start = std::max(collective.start, now);
  return --collective.missing == 0;
}

LaunchedCollectives::Followers LaunchedCollectives::over(int id, double end) {
  CollectiveState& collective = of(id);
  collective.end = end;
  return {std::move(collective.waiting), std::move(collective.then)};
}

bool LaunchedCollectives::follow(int id, double end) {
  CollectiveState& collective = of(id);
  collective.start = std::max(collective.start, end);
  return --collective.missing == 0;
}

LaunchedCollectives::ComputeEnd LaunchedCollectives::compute(int rank, double start, double work,
                                                             double factor) {
  RankState& at = ranks_[static_cast<std::size_t>(rank)];
  while (has_launched(rank) && of(at.launched[at.over]).end <= start) ++at.over;
  double now = start;
  for (std::size_t i = at.over; i < at.launched.size(); ++i) {
    const int id = at.launched[i];
    const CollectiveState& collective = of(id);
    const bool has_started = collective.missing == 0;
    if (collective.end == kUnknown) wake_after(id, rank);
    if (!has_started) return {now + work, false};
    const double free = std::max(0.0, collective.start - now);
    if (work <= free) return {now + work, true};
    work -= free;
    now = std::max(now, collective.start);
    const double slowed = (collective.end - now) / factor;
    if (work <= slowed) return {now + work * factor, collective.end != kUnknown};
    work -= slowed;
    now = collective.end;
  }
  return {now + work, true};
}

}  // namespace orrery
