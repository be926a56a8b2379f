// What a published run says of the network between its nodes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "platforms/cluster.hpp"

namespace orrery {

struct SaidNetwork {
  int nics = 1;           // of a node
  double gigabits = 100;  // of each, a second
};

// Of the vendor's reference machine with this GPU (data sheets of DGX A100, H100, B200 and B300, GB200 and
// GB300 NVL72; Azure's and Frontier's machines with AMD's cards), of smaller nodes as many cards for a GPU;
// where none is usual, as of V100, one card of 100 Gb/s.
SaidNetwork reference_network(const GpuSpec&, int gpus_per_node);

// Of "8x200 Gbps HDR IB per node", "8 x ConnectX-7 400Gb/s", "3200 Gb/s EFA a node", "400 Gb/s per GPU",
// "200 Gb/s RoCE per card", "InfiniBand 100 Gb/s", "10 Gbps inter / 170 Gbps NVLink intra". A rate that is
// said of a card, or that is the reference machine's own over remote memory, is that of as many cards as it
// has; 400 Gb/s of a node and more have a card for each GPU. Absent where no rate is said, or one of which no
// node has as many cards. Without a rate in bits that of "HDR InfiniBand", "NDR200", "400G", "Slingshot-11",
// "ConnectX-7" or, of what is between nodes, bytes ("8x 25 GB/s") counts.
std::optional<SaidNetwork> said_network(const std::string& text, int gpus_per_node,
                                        const SaidNetwork& reference);

// What a GPU's link to the others of its node carries, in Gb/s, where it is said as "170 Gbps NVLink intra"
// or "50 Gb/s PCIe intra-node". Rates in bytes are data sheets', of both directions or of one, and not read.
std::optional<double> said_inside(const std::string& text);

// Whether it has numbers that are not of links inside a node ("NVLink 400 GB/s intra; InfiniBand" has none).
bool says_numbers_between_nodes(const std::string& text);

// A rate below zero among them, "-400 Gbps", which no link has: a hyphen between words, as in HDR-200 Gb/s or
// 100-200 Gb/s, makes none.
std::optional<std::string> negative_rate(const std::string& text);

// All that a node of this GPU can have had where nothing is said: first the reference machine's, if one is
// usual; then, where they differ, the fastest and the slowest that the catalog's machines with as many GPUs
// and DGX-1 have. Of cards that none of them has, one card of 100 or 10 Gb/s. Of text that says Ethernet, or
// TCP, and no RDMA one card of 100 Gb/s as well.
std::vector<SaidNetwork> possible_networks(const GpuSpec&, int gpus_per_node, const std::string& text = {});

// Whether cards read and write the memory of others by themselves, as InfiniBand, RoCE, EFA and Slingshot do.
bool says_remote_memory(const std::string& text);
// Whether collectives went through the kernel's sockets: "TCP", "sockets".
bool says_sockets(const std::string& text);

}  // namespace orrery
