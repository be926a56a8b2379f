#include "costmodels/nvlink_mesh.hpp"

namespace orrery {
namespace {

constexpr double kLinks = 6;            // of a V100 SXM2
constexpr double kPairInEight = 1.732;  // sqrt(1 x 3)

double links_of(int gpus_per_node, int ranks) {
  if (gpus_per_node == 8) return ranks <= 2 ? kPairInEight : ranks <= 4 ? 4 : kLinks;
  if (gpus_per_node == 4) return ranks <= 2 ? 2 : kLinks;
  return kLinks;
}

}  // namespace

LinkSpec link_of_neighbours(const NodeGroup& group, int ranks) {
  LinkSpec link = group.gpu_link;
  const GpuSpec& gpu = group.gpu;
  const bool mesh =
      gpu.architecture == "Volta" && gpu.link == "NVLink2" && link.bandwidth == gpu.link_bandwidth;
  if (mesh && ranks > 1) link.bandwidth = link.bandwidth * (links_of(group.gpus_per_node, ranks) / kLinks);
  return link;
}

}  // namespace orrery
