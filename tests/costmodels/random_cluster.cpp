#include "tests/costmodels/random_cluster.hpp"

#include <string>

namespace orrery::test {
namespace {

NodeGroup draw_group(Draw& draw, const std::string& name, int gpus_per_node) {
  NodeGroup group;
  group.name = name;
  group.gpu.name = name;
  group.gpus_per_node = gpus_per_node > 0 ? gpus_per_node : draw_power_of_two(draw, 8);
  group.count = {0, 64};
  group.gpu_link = {gigabytes_per_second(draw.real(5, 300)), microseconds(draw.real(0, 3))};
  group.nics_per_node = draw_power_of_two(draw, group.gpus_per_node);
  group.nic = {gigabytes_per_second(draw.real(1, 50)), microseconds(draw.real(0, 5))};
  if (draw.whole(0, 2) == 0) {
    group.pcie_switches = draw_power_of_two(draw, group.gpus_per_node);
    group.pcie_uplink = {gigabytes_per_second(draw.real(5, 60)), microseconds(draw.real(0, 2))};
  }
  return group;
}

Fabric draw_fabric(Draw& draw) {
  Fabric fabric;
  if (draw.coin()) return fabric;
  fabric.kind = draw.coin() ? FabricKind::fat_tree : FabricKind::rail_optimised;
  fabric.nodes_per_leaf = draw.whole(1, 3);
  fabric.oversubscription = draw.real(1, 8);
  fabric.latency = microseconds(draw.real(0, 2));
  if (draw.whole(0, 2) == 0) {
    fabric.leaves_per_pod = draw.whole(1, 2);
    fabric.pod_oversubscription = draw.real(1, 4);
  }
  return fabric;
}

}  // namespace

int draw_power_of_two(Draw& draw, int most) {
  int powers = 0;
  while ((1 << (powers + 1)) <= most) ++powers;
  return 1 << draw.whole(0, powers);
}

ClusterSpec random_cluster(Draw& draw, Contention contention, int gpus_per_node) {
  ClusterSpec cluster;
  cluster.name = "random";
  cluster.groups = {draw_group(draw, "a", gpus_per_node), draw_group(draw, "b", gpus_per_node)};
  cluster.fabric = draw_fabric(draw);
  cluster.contention = contention;
  if (draw.whole(0, 3) == 0) {
    cluster.groups[1].region = "far";
    cluster.fabric.regions = {
        {"default", "far", {gigabytes_per_second(draw.real(0.1, 5)), milliseconds(10)}}};
  }
  return cluster;
}

}  // namespace orrery::test
