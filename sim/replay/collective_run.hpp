// One collective alone on a cluster, by every algorithm that can run it: what nccl-tests measures, played.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "costmodels/collectives/collective_flows.hpp"
#include "platforms/topology.hpp"

namespace orrery {

// The names are those of nccl-tests' programs; a broadcast has no CollectiveKind, for no plan sends one.
struct NamedCollective {
  std::string_view name;               // "all_reduce"
  std::optional<CollectiveKind> kind;  // absent: broadcast from the first GPU
};
const std::vector<NamedCollective>& named_collectives();

struct PlayedAlgorithm {
  Bytes bytes;  // of one rank, as in CollectiveCall
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  bool nccl_choice = false;
  Seconds time;       // played on SimGrid, links at the bandwidth of the cluster file
  Seconds least;      // no algorithm takes less (collective_bound.hpp)
  double bus_factor;  // bytes x factor / time is nccl-tests' bus bandwidth
};

bool can_run(CollectiveAlgorithm, const NamedCollective&);

struct CollectiveQuestion {
  NamedCollective collective;
  std::vector<int> gpus;  // two or more, in the order of the ring
  std::vector<Bytes> sizes;
  std::optional<CollectiveAlgorithm> algorithm;  // absent: every one that can run it
};
// Each play is a process of its own, `jobs` at a time.
// Throws InputError where a link that is down parts them.
std::vector<PlayedAlgorithm> play_alone(const Topology&, const CollectiveQuestion&, int jobs);

}  // namespace orrery
