// Messages of different boundaries of a pipeline that are on their way at the same time over one link.
#pragma once

#include <vector>

#include "costmodels/flow.hpp"
#include "platforms/topology.hpp"

namespace orrery {

// What the flows of one message, and of those that always go with it, ask of a link.
struct LinkUse {
  int link = 0;
  double busy = 0;     // s, of all of them at the link's bandwidth
  double flows = 0;    // that share it
  double latency = 0;  // s, before the first arrives
};
std::vector<LinkUse> uses_of(const Topology&, const std::vector<const std::vector<Flow>*>& sets);

// Several kinds of messages, each sent many times.
struct SentMessage {
  double start = 0;  // s
  int kind = 0;
};

// Seconds from the start of each message to the end of its last flow, where every link shares its bandwidth
// evenly among the flows on it (SEMANTICS 4) and its other links are free: a message takes as long as its
// slowest link says. `kinds[k]`: uses_of kind k. A message that meets no other takes what `together` says,
// and none takes longer than one of every kind at once: senders wait for their messages, so starts that were
// found without sharing would pile up delays that never come.
std::vector<double> durations_beside_others(const std::vector<std::vector<LinkUse>>& kinds,
                                            const std::vector<SentMessage>&);

}  // namespace orrery
