// Double binary trees over the nodes of a collective.
#pragma once

#include <optional>
#include <vector>

#include "costmodels/collectives/collective_phase.hpp"

namespace orrery {

// [vertex] -> its parent, absent at the root.
using TreeParents = std::vector<std::optional<int>>;

// Two binary trees over vertices 0..count-1, no vertex an inner node of both, depth at most log2(count)
// rounded up. Sanders, Speck, Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
// Parallel Computing 35, 2009. Even counts as NCCL builds them (src/graph/trees.cc @ 5067397); at odd counts
// NCCL's vertex 0 is an inner node of both trees, here of none.
struct DoubleBinaryTree {
  TreeParents first, second;
};
DoubleBinaryTree double_binary_tree(int count);

// Each tree carries half the bytes up and down its edges, pipelined; in each node chains hang below the
// heads.
FlowPhase tree_all_reduce(const FlowSetting&, const Members& gpus, Bytes bytes);
// The root feeds both trees, which span the nodes other than its own.
FlowPhase tree_broadcast(const FlowSetting&, const Members& gpus, Bytes bytes);

}  // namespace orrery
