#include "costmodels/nvlink_mesh.hpp"

#include <algorithm>

namespace orrery {
namespace {

constexpr double kLinks = 6;            // of a V100 SXM2
constexpr double kPairInEight = 1.732;  // sqrt(1 x 3)

double links_of(int gpus_per_node, int ranks) {
  if (gpus_per_node == 8) return ranks <= 2 ? kPairInEight : ranks <= 4 ? 4 : kLinks;
  if (gpus_per_node == 4) return ranks <= 2 ? 2 : kLinks;
  return kLinks;
}

bool is_wired(const GpuSpec& gpu) {
  return gpu.architecture == "Volta" && gpu.link == "NVLink2";
}

}  // namespace

LinkSpec link_of_neighbours(const NodeGroup& group, int ranks) {
  LinkSpec link = group.gpu_link;
  const bool mesh = is_wired(group.gpu) && link.bandwidth == group.gpu.link_bandwidth;
  if (mesh && ranks > 1) link.bandwidth = link.bandwidth * (links_of(group.gpus_per_node, ranks) / kLinks);
  return link;
}

double whole_over_part(const GpuSpec& gpu, const LinkSpec& part) {
  return is_wired(gpu) ? std::max(1.0, gpu.link_bandwidth / part.bandwidth) : 1.0;
}

}  // namespace orrery
