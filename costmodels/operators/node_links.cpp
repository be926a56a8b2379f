#include "costmodels/operators/node_links.hpp"

#include <algorithm>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr double kLinks = 6;            // of a V100 SXM2
constexpr double kPairInEight = 1.732;  // sqrt(1 x 3)
constexpr int kBoard = 4, kMesh = 8;
constexpr auto kOnBoard = "NVLink4 + C2C";  // GH200
constexpr double kRingInMesh = 38.0 / 386;  // over more than a half of it, not all

bool is_v100(const GpuSpec& gpu) {
  return gpu.architecture == "Volta" && gpu.link == "NVLink2";
}

Wiring wiring_of(const GpuSpec& gpu, int gpus_per_node) {
  if (is_v100(gpu) && gpus_per_node == 8) return Wiring::cube;
  if (is_v100(gpu) && gpus_per_node == 4) return Wiring::square;
  if (gpu.link.starts_with("xGMI 7x")) return Wiring::mesh;
  const bool on_boards = gpu.link == "NVLink3" || gpu.link == kOnBoard;
  return on_boards && gpus_per_node == kBoard ? Wiring::board : Wiring::switched;
}

double share_of_link(Wiring wiring, int ranks) {
  switch (wiring) {
    case Wiring::switched:
      return 1;
    case Wiring::cube:
      return (ranks <= 2 ? kPairInEight : ranks <= 4 ? 4 : kLinks) / kLinks;
    case Wiring::square:
      return (ranks <= 2 ? 2 : kLinks) / kLinks;
    case Wiring::board:
      return std::min(1.0, (ranks - 1) / (kBoard - 1.0));
    case Wiring::mesh:
      if (ranks >= kMesh) return 1;
      return ranks <= kMesh / 2 ? (ranks - 1) / (kMesh - 1.0) : kRingInMesh;
  }
  throw Defect("a wiring without links");
}

}  // namespace

NodeLinks::NodeLinks(const NodeGroup& group)
    : whole_(group.gpu_link),
      wired_(std::max(group.gpu_link.bandwidth, group.gpu.link_bandwidth)),
      wiring_(wiring_of(group.gpu, group.gpus_per_node)) {}

LinkSpec NodeLinks::among(int ranks) const {
  LinkSpec link = whole_;
  if (ranks > 1) link.bandwidth = std::min(link.bandwidth, wired_ * share_of_link(wiring_, ranks));
  return link;
}

bool sums_in_two_steps(const GpuSpec& gpu, int ranks) {
  return of_other_maker(gpu) || (gpu.link == kOnBoard && ranks <= kBoard);
}

double whole_over_part(const GpuSpec& gpu, const LinkSpec& part, int ranks) {
  const auto is_part = [&](int gpus_per_node) {
    return part.bandwidth == gpu.link_bandwidth * share_of_link(wiring_of(gpu, gpus_per_node), ranks);
  };
  const bool known = is_v100(gpu) || is_part(kBoard) || is_part(kMesh);
  return known ? std::max(1.0, gpu.link_bandwidth / part.bandwidth) : 1.0;
}

}  // namespace orrery
