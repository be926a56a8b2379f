// What a published run says of the network between its nodes.
#pragma once

#include <optional>
#include <string>

namespace orrery {

struct SaidNetwork {
  int nics = 1;           // of a node
  double gigabits = 100;  // of each, a second
};

// Of "8x200 Gbps HDR IB per node", "8 x ConnectX-7 400Gb/s", "3200 Gb/s EFA a node", "400 Gb/s per GPU",
// "200 Gb/s RoCE per card", "InfiniBand 100 Gb/s", "10 Gbps inter / 170 Gbps NVLink intra". `usual`: of the
// vendor's reference machine. A rate that is said of a card, or that is the reference machine's own over
// remote memory, is that of as many cards as it has; 400 Gb/s of a node and more have a card for each GPU.
// Absent where no rate is said, or one of which no node has as many cards.
std::optional<SaidNetwork> said_network(const std::string& text, int gpus_per_node, const SaidNetwork& usual);

// Whether cards read and write the memory of others by themselves, as InfiniBand, RoCE, EFA and Slingshot do.
bool says_remote_memory(const std::string& text);

}  // namespace orrery
