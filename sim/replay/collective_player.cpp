#include "sim/replay/collective_player.hpp"

namespace orrery {
namespace {

PhaseTags tags(std::size_t id) {
  return {tag_of(Subject::collective, id), tag_of(Subject::collective_end, id)};
}

}  // namespace

CollectivePlayer::CollectivePlayer(const TrafficFlows& flows, Network& network, ReplayRecorder& recorder,
                                   CollectiveHost& host)
    : flows_(flows), network_(network), recorder_(recorder), host_(host) {
  collectives_.resize(static_cast<std::size_t>(flows.instances()));
  last_.assign(static_cast<std::size_t>(flows.ranks()), -1);
}

void CollectivePlayer::enter(std::size_t rank, std::size_t id) {
  CollectiveState& collective = collectives_[id];
  if (!collective.prepared) {
    collective.prepared = true;
    collective.missing = flows_.members(static_cast<int>(id)).size();
  }
  int& last = last_[rank];
  if (last >= 0 && collectives_[static_cast<std::size_t>(last)].when.end == kNever) {
    collectives_[static_cast<std::size_t>(last)].then.push_back(id);
    ++collective.missing;
  }
  last = static_cast<int>(id);
  if (--collective.missing == 0) start(id);
}

Interval CollectivePlayer::when(std::size_t id) const {
  return collectives_[id].when;
}

void CollectivePlayer::start(std::size_t id) {
  collectives_[id].when.start = network_.now();
  for (const int member : flows_.members(static_cast<int>(id)))
    host_.change_collectives(static_cast<std::size_t>(member), 1);
  start_phase(network_, phases(id), collectives_[id].flows, tags(id));
}

const std::vector<FlowPhase>& CollectivePlayer::phases(std::size_t id) const {
  return flows_.collective(static_cast<int>(id)).phases;
}

void CollectivePlayer::flow_ended(std::size_t id) {
  flow_of_phase_ended(network_, phases(id), collectives_[id].flows, tags(id));
}

void CollectivePlayer::phase_ended(std::size_t id) {
  if (collectives_[id].flows.phase < phases(id).size()) {
    start_phase(network_, phases(id), collectives_[id].flows, tags(id));
  } else {
    end(id);
  }
}

void CollectivePlayer::end(std::size_t id) {
  CollectiveState& collective = collectives_[id];
  collective.when.end = network_.now();
  const std::vector<int> members = flows_.members(static_cast<int>(id));
  recorder_.collective(static_cast<int>(id), members, collective.when);
  for (const int member : members) host_.change_collectives(static_cast<std::size_t>(member), -1);
  const std::vector<std::size_t> then = std::move(collective.then);
  for (const std::size_t next : then) {
    if (--collectives_[next].missing == 0) start(next);
  }
  for (const int member : members) host_.advance(static_cast<std::size_t>(member));
}

}  // namespace orrery
