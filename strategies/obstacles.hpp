// Why a candidate of a search has no shape: heads, sequence, batch, chunks, ... do not divide.
#pragma once

#include <optional>
#include <string_view>

#include "strategies/enumerate.hpp"

namespace orrery {

// In words; absent when it has one. A search asks each question once for all candidates that share its
// answer: for the ways, for the ways with a setting, for a group with stages, and for a number of stages.
using Obstacle = std::optional<std::string_view>;
Obstacle ways_obstacle(const ModelSpec&, const Ways&, std::int64_t sequence);
Obstacle setting_obstacle(const ModelSpec&, const Ways&, const Setting&, std::int64_t global_batch,
                          std::int64_t sequence);
Obstacle group_obstacle(const NodeGroup&, const Ways& of_group);
Obstacle stages_obstacle(const ModelSpec&, const Setting&, int stages, std::int64_t microbatches);
// A rank order that numbers ranks as the default does.
Obstacle order_obstacle(const Setting&, int data, int stages);
// All of them together.
Obstacle shape_obstacle(const ModelSpec&, const ClusterSpec&, const Allocation&, const Setting&,
                        std::int64_t global_batch, std::int64_t sequence);

}  // namespace orrery
