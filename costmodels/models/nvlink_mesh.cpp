#include "costmodels/models/nvlink_mesh.hpp"

#include <algorithm>

namespace orrery {
namespace {

constexpr double kLinks = 6;            // of a V100 SXM2
constexpr double kPairInEight = 1.732;  // sqrt(1 x 3)

double links_of_v100(int gpus_per_node, int ranks) {
  if (gpus_per_node == 8) return ranks <= 2 ? kPairInEight : ranks <= 4 ? 4 : kLinks;
  if (gpus_per_node == 4) return ranks <= 2 ? 2 : kLinks;
  return kLinks;
}

bool is_v100(const GpuSpec& gpu) {
  return gpu.architecture == "Volta" && gpu.link == "NVLink2";
}

// Boards of four, each wired to the three others by a third of its links.
constexpr int kBoard = 4;
bool is_on_boards_of_four(const GpuSpec& gpu) {
  return gpu.link == "NVLink3" || gpu.link == "NVLink4 + C2C";
}
double share_on_board(int ranks) {
  return std::min(1.0, (ranks - 1) / (kBoard - 1.0));
}

double share_of_link(const NodeGroup& group, int ranks) {
  if (is_v100(group.gpu)) return links_of_v100(group.gpus_per_node, ranks) / kLinks;
  const bool board = is_on_boards_of_four(group.gpu) && group.gpus_per_node == kBoard;
  return board ? share_on_board(ranks) : 1.0;
}

}  // namespace

LinkSpec link_of_neighbours(const NodeGroup& group, int ranks) {
  LinkSpec link = group.gpu_link;
  const bool whole = link.bandwidth == group.gpu.link_bandwidth;
  if (whole && ranks > 1) link.bandwidth = link.bandwidth * share_of_link(group, ranks);
  return link;
}

double whole_over_part(const GpuSpec& gpu, const LinkSpec& part) {
  const auto is_share = [&](int ranks) {
    return part.bandwidth == gpu.link_bandwidth * share_on_board(ranks);
  };
  const bool on_board = is_on_boards_of_four(gpu) && (is_share(2) || is_share(3));
  return is_v100(gpu) || on_board ? std::max(1.0, gpu.link_bandwidth / part.bandwidth) : 1.0;
}

}  // namespace orrery
