#include "costmodels/models/taught_links.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>

#include "platforms/cluster.hpp"

namespace orrery {
namespace {

// PCIe 3.0 to 5.0, V100's, A100's, Hopper's, Blackwell's.
constexpr std::array kInNodes{gigabytes_per_second(16),  gigabytes_per_second(32),  gigabytes_per_second(64),
                              gigabytes_per_second(150), gigabytes_per_second(300), gigabytes_per_second(450),
                              gigabytes_per_second(900)};
// One card of 100 Gb/s for eight ranks, two, four, ... 800 Gb/s for each.
constexpr std::array kBetweenNodes{gigabytes_per_second(1.5625), gigabytes_per_second(3.125),
                                   gigabytes_per_second(6.25),   gigabytes_per_second(12.5),
                                   gigabytes_per_second(25),     gigabytes_per_second(50),
                                   gigabytes_per_second(100)};
constexpr BytesPerSecond kMostTaught = gigabytes_per_second(50);

using Taught = std::span<const BytesPerSecond>;

// Beyond all that taught: the nearest, with as many times the bytes as it is faster.
LinkPoint point(BytesPerSecond bandwidth, Taught taught, double bytes = 1) {
  const BytesPerSecond near = std::clamp(bandwidth, taught.front(), taught.back());
  const auto above = std::upper_bound(taught.begin(), std::prev(taught.end()), near);
  const BytesPerSecond below = *std::prev(above);
  return {below, *above, std::log(near / below) / std::log(*above / below), bytes * (near / bandwidth)};
}

// Of the card as it is sold, whatever a cluster makes of it.
BytesPerSecond own_link(const GpuSpec& gpu) {
  const auto& catalog = gpu_catalog();
  const auto sold = std::find_if(catalog.begin(), catalog.end(),
                                 [&](const GpuSpec& other) { return other.name == gpu.name; });
  return sold == catalog.end() ? gpu.link_bandwidth : sold->link_bandwidth;
}

}  // namespace

LinkPoints points_in_node(BytesPerSecond link, const GpuSpec& gpu) {
  const BytesPerSecond own = own_link(gpu);
  if (link >= own || link > kFastestPcie) return points_in_mesh(own, own / link);
  const BytesPerSecond last = std::min(own, kFastestPcie);
  LinkPoints points{{point(link, kInNodes), point(own, kInNodes, own / last)}};
  for (const BytesPerSecond taught : kInNodes) {
    if (link < taught && taught <= last) points.all.push_back(point(taught, kInNodes));
  }
  return points;
}

LinkPoints points_in_mesh(BytesPerSecond link, double whole_over_part) {
  return {{point(link, kInNodes, whole_over_part)}};
}

LinkPoints points_between_nodes(BytesPerSecond network) {
  LinkPoints points{{point(network, kBetweenNodes)}, network > kMostTaught};
  for (const BytesPerSecond taught : kBetweenNodes) {
    const bool between = points.shortest ? kMostTaught <= taught && taught < network
                                         : network < taught && taught <= kMostTaught;
    if (between) points.all.push_back(point(taught, kBetweenNodes));
  }
  return points;
}

LinkPoints points_of(const PointToPoint& op) {
  const Taught taught = op.same_node ? Taught(kInNodes) : Taught(kBetweenNodes);
  LinkPoints points{{point(op.path.bandwidth, taught)}};
  for (const BytesPerSecond other : taught) {
    if (op.path.bandwidth < other) points.all.push_back(point(other, taught));
  }
  return points;
}

}  // namespace orrery
