// Efficiencies at which collectives are played.
#include "costmodels/layers/achieved.hpp"

#include <numeric>

#include "costmodels/collectives/collective_choice.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"

namespace orrery {

TEST_CASE("flows are as slow as predicted, to a byte and beyond") {
  Collective op{CollectiveKind::all_reduce,
                Bytes(1 << 24),
                16,
                8,
                {gigabytes_per_second(450), microseconds(0.3)},
                {gigabits_per_second(400), microseconds(1)}};
  op.kind = GENERATE(CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::all_to_all);
  const auto algorithm = op.kind == CollectiveKind::all_to_all
                             ? CollectiveAlgorithm::direct
                             : GENERATE(CollectiveAlgorithm::ring, CollectiveAlgorithm::hierarchical);
  NodeGroup node = test::node_group_of("H100", 8);
  node.gpu_link = op.gpu_link;
  node.nic = op.network;
  node.count = {2, 2};
  ClusterSpec cluster;
  cluster.groups = {node};
  const Topology topology(cluster, {2});
  CollectiveCall call{op.kind, algorithm, op.bytes, {}, std::vector<int>(16)};
  std::iota(call.gpus.begin(), call.gpus.end(), 0);
  const double least = time_alone(topology, collective_flows(topology, call)).value();
  for (const double factor : {1.0, 1.0001, 1.5, 40.0}) {
    const Achieved speed = achieved(op, algorithm, Seconds(least * factor));
    CHECK(speed.efficiency.inside <= 1.0);
    CHECK(speed.more.value() >= 0);
    CHECK(speed.more.value() < 1e-6 * least * factor);
    call.efficiency = speed.efficiency;
    const Seconds played = time_alone(topology, collective_flows(topology, call)) + speed.more;
    CHECK(played.value() == Approx(least * factor).epsilon(1e-12));
  }
  CHECK(achieved(op, algorithm, Seconds(least / 2)).efficiency.inside == 1.0);
}

}  // namespace orrery
