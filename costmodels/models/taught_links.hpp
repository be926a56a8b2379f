// Where models that were taught on many machines' links are asked about one, so that more bandwidth never
// takes longer. Trees answer in steps: a link of 800 GB/s would have the efficiency of one of 450 and be
// faster than one of 900, so times are interpolated between the bandwidths that taught. And trees know
// machines rather than links: 300 GB/s are A100's, without NVLS, and 150 V100's.
#pragma once

#include <vector>

#include "costmodels/operators/operator.hpp"
#include "platforms/gpu.hpp"

namespace orrery {

// Between two bandwidths that taught, or what is asked there, `share` of the way to the faster in logarithms,
// with `bytes` times the bytes.
template <class Link>
struct PointBetween {
  Link slower, faster;
  double share = 0, bytes = 1;
};

// The time is the longest of those at the points, or the shortest.
template <class Link>
struct PointsBetween {
  std::vector<PointBetween<Link>> all;
  bool shortest = false;
};

using LinkPoint = PointBetween<BytesPerSecond>;
using LinkPoints = PointsBetween<BytesPerSecond>;

// As it is, with `bytes` times the bytes: of models that say which links they speak of.
inline LinkPoints points_on(BytesPerSecond link, double bytes = 1) {
  return {{{link, link, 0, bytes}}};
}
// Of a collective in a node whose GPUs have this link each. The GPU's own was taught as it is; another takes
// as long as that one for as many times the bytes as it is slower; PCIe in the place of NVLink what PCIe was
// taught to take, and no less than a faster one.
LinkPoints points_in_node(BytesPerSecond link, const GpuSpec&);
// Of a part of a mesh, which takes for a byte what the whole, of `link`, takes for `whole_over_part`.
LinkPoints points_in_mesh(BytesPerSecond link, double whole_over_part);
// Of a collective over nodes of which each rank has this bandwidth: the longest of those up to 400 Gb/s,
// which taught most, beyond the shortest from there on.
LinkPoints points_between_nodes(BytesPerSecond network);
// Of a transfer: the longest of those over this and faster links.
LinkPoints points_of(const PointToPoint&);

}  // namespace orrery
