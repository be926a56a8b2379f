// Links between neighbours where the GPUs of a node are wired to each other, without a switch between.
#pragma once

#include "platforms/cluster.hpp"

namespace orrery {

// What a ring over the first `ranks` GPUs of a node, or as many next to them, gets of each GPU's link. V100
// SXM2 has six NVLinks of 25 GB/s. In nodes of eight (the hybrid cube mesh of NVIDIA's DGX-1 white paper)
// four GPUs use four each and eight all of them: vTrain measured 88 and 138 GB/s. A pair shares one to three,
// by how the node is wired (three sources measured 22, 42 and 64 GB/s): their geometric mean, as for every
// open fact; chosen after one link gave +41 % and six gave -18 % for the one run of dlperf-v100 that has
// pairs. In nodes of four a pair shares two.
// A100 SXM and GH200 in nodes of four: a pair shares a third of a GPU's links (100 and 150 GB/s a direction;
// JUPITER's configuration, docs of JSC), three GPUs get two thirds of them, and a ring of four all. Read
// after seeing that runs on pairs of GH200 were 11 to 15 % fast. H100 and H200 in nodes of four have the
// whole link: the two published runs on pairs of H200 are 11 % fast with it and 17 % slow without.
LinkSpec link_of_neighbours(const NodeGroup&, int ranks);

// How many times a GPU's whole link is faster than this part of its mesh; 1 where it is no part of one.
double whole_over_part(const GpuSpec&, const LinkSpec& part);

}  // namespace orrery
