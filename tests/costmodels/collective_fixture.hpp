// Clusters and groups of GPUs for the tests of collectives.
#pragma once

#include <string>
#include <vector>

#include "costmodels/collectives/collective_flows.hpp"

namespace orrery {

// `nodes` equal nodes below one switch.
struct EqualNodes {
  int nodes = 1;
  int gpus = 8;
  int nics = 1;
  LinkSpec gpu_link{gigabytes_per_second(300), microseconds(1)};
  LinkSpec nic{gigabytes_per_second(25), microseconds(2)};
};
Topology equal_nodes(const EqualNodes&);

// GPUs first, first + 1, ...
std::vector<int> gpus_from(int first, int count);

// Members of a random_cluster in any order, or even: equal counts in whole neighbouring nodes.
enum class Spread { any, even };
struct RandomGroup {
  Topology topology;
  std::vector<int> gpus;
  Bytes bytes;
  std::string text;  // to print when a law fails
};
RandomGroup random_group(std::uint32_t seed, Spread, Contention);

// "ring all_reduce": for messages.
std::string name_of(const CollectiveCall&);

// Every kind with every algorithm that can run it.
std::vector<CollectiveCall> every_call(const RandomGroup&);
std::vector<BroadcastCall> every_broadcast(const RandomGroup&);

}  // namespace orrery
