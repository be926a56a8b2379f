// Links between neighbours where the GPUs of a node are wired to each other, without a switch between.
#pragma once

#include "platforms/cluster.hpp"

namespace orrery {

// `cube`, `square`: V100 SXM2 in nodes of eight and of four. `board`: four GPUs, each wired to the three
// others by a third of its links. `mesh`: eight, each wired to the seven others by one.
enum class Wiring { switched, cube, square, board, mesh };

// What a ring over GPUs of a node gets of each one's link. V100 SXM2 has six NVLinks of 25 GB/s. In nodes of
// eight (the hybrid cube mesh of NVIDIA's DGX-1 white paper) four GPUs use four each and eight all of them:
// vTrain measured 88 and 138 GB/s. A pair shares one to three, by how the node is wired (three sources
// measured 22, 42 and 64 GB/s): their geometric mean, as for every open fact; chosen after one link gave +41
// % and six gave -18 % for the one run of dlperf-v100 that has pairs. In nodes of four a pair shares two.
// A100 SXM and GH200 in nodes of four: a pair shares a third of a GPU's links (100 and 150 GB/s a direction;
// JUPITER's configuration, docs of JSC), three GPUs get two thirds of them, and a ring of four all. Read
// after seeing that runs on pairs of GH200 were 11 to 15 % fast. H100 and H200 in nodes of four have the
// whole link: the two published runs on pairs of H200 are 11 % fast with it and 17 % slow without.
// MI300X to MI355X: rings over two to four GPUs have as many links as there are neighbours, over eight all;
// rccl-tests on MI355X, all-reduce of 1 GiB, 165, 37, 37, 39 and 386 GB/s on 4, 5, 6, 7 and 8 (the source of
// `mi355x-16b`, section 7; read after seeing its runs on five to seven 43 % fast).
// Of another rate than the data sheet's: as given, below it no more than the wiring has of the data sheet's.
class NodeLinks {
 public:
  NodeLinks() = default;
  explicit NodeLinks(const NodeGroup&);

  [[nodiscard]] LinkSpec among(int ranks) const;
  bool operator==(const NodeLinks&) const = default;

 private:
  LinkSpec whole_ = {};
  BytesPerSecond wired_ = {};  // where the rate that is given is below the data sheet's, that one's
  Wiring wiring_ = Wiring::switched;
};

// Whether `ranks` GPUs of a node scatter sums and gather them, since no switch of NVIDIA's adds up for them
// (NVLS): other makers' GPUs and up to four GH200. A100 has no NVLS either, which its measurements show.
bool sums_in_two_steps(const GpuSpec&, int ranks);

// How many times a GPU's whole link is faster than the part of it that `ranks` GPUs of a node have; 1 where
// this is no such part.
double whole_over_part(const GpuSpec&, const LinkSpec& part, int ranks);

}  // namespace orrery
