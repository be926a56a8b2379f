// What a GPU's memory holds beside tensors, and whether all of it fits.
#pragma once

#include <string_view>
#include <vector>

#include "costmodels/memory/memory.hpp"
#include "platforms/cluster.hpp"

namespace orrery {

// Buffers of the communicators that Megatron-LM makes on a GPU of `stage`: of the world, of tensor, context,
// data, expert and model-parallel groups, the stages beside it, first and last where embeddings are tied.
// Each has the same buffers whatever its use: 9.2 MiB for every connection of every channel.
Bytes communicator_bytes(const ModelSpec&, const ParallelStrategy&, int stage, const ClusterSpec&,
                         const SoftwareStack&);

// [group of the cluster]: `host` of the GPUs of the node that has the most of it; memory [kind * P + stage].
std::vector<Bytes> fullest_hosts(const ParallelStrategy&, const ClusterSpec&,
                                 const std::vector<StageMemory>&);
// What of a node's memory a plan may use. The rest is the system's, the data loaders' and the page cache's:
// an assumption.
Bytes usable_host_memory(Bytes of_node);

// What of a card's memory a plan may fill. A program sees 0.92 of a T4 (14.75 of 16 GiB, the rest is error
// correction), 0.986 of a V100 and 0.99 of an A100 or H100 of 80 GB (capacities in PyTorch's messages); 0.02
// to 0.03 more are kept free, an assumption. 0.90 up to 16 GiB, 0.96 from 80 GiB on, straight in between.
Bytes usable_memory(Bytes card);
// The same, or what the group says, or the limit of a search, where that is less.
Bytes usable_memory(const NodeGroup&);

// What the card holds; where the group says that other programs need some of it, the smaller card that has as
// much usable.
Bytes card_left(const NodeGroup&);
// StageMemory::must_fit over that.
double fullness(const StageMemory&, const NodeGroup&);
// Of the fullest card of a plan; memory [kind * P + stage].
double fullness(const ClusterSpec&, const ParallelStrategy&, const std::vector<StageMemory>&);

// Whether a stage can train on a GPU of the group, by its chance to run out (out_of_memory.hpp): `fits` up to
// kSafeChance, where the blocks that the allocator keeps are usable too, by what the group says as well;
// `too_big` above kLostChance; `risky` between. Plans may be risky that are usable.
inline constexpr double kSafeChance = 0.05, kLostChance = 0.9;
enum class MemoryVerdict { fits, risky, too_big };
MemoryVerdict memory_verdict(const StageMemory&, const NodeGroup&);
std::string_view to_text(MemoryVerdict);  // "fits", "risky", "too big"

}  // namespace orrery
