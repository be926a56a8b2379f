// Collectives played alone against closed forms, and against their flows' time without SimGrid.
#include "sim/replay/collective_run.hpp"

#include <numeric>

#include "costmodels/collectives/collective_choice.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/collective_fixture.hpp"

namespace orrery {
namespace {

CollectiveQuestion question(std::size_t collective, int gpus, Bytes bytes) {
  return {named_collectives()[collective], gpus_from(0, gpus), {bytes}, {}};
}

PlayedAlgorithm by_ring(const Topology& topology, CollectiveQuestion question) {
  question.algorithm = CollectiveAlgorithm::ring;
  return play_alone(topology, question, 1).at(0);
}

}  // namespace

TEST_CASE("a ring in a node takes its steps' bytes over the link and the latency of its steps") {
  // 4 GPUs of 300 GB/s and 1 us up and down: a hop is 2 us; an all-reduce is 6 hops of a quarter each.
  const Topology node = equal_nodes({1, 4});
  const Bytes bytes(3e9);
  CHECK(by_ring(node, question(0, 4, bytes)).time.value() == Approx(6 * (0.75e9 / 300e9 + 2e-6)));
  CHECK(by_ring(node, question(1, 4, bytes)).time.value() == Approx(3 * (0.75e9 / 300e9 + 2e-6)));
  CHECK(by_ring(node, question(2, 4, bytes)).time.value() == Approx(3 * (0.75e9 / 300e9 + 2e-6)));
  // The chain of a broadcast is pipelined: the bytes once, a hop's latency for each of three hops.
  CHECK(by_ring(node, question(4, 4, bytes)).time.value() == Approx(3e9 / 300e9 + 3 * 2e-6));
}

TEST_CASE("a collective played alone never beats its bound or the sum of its phases") {
  const auto nics = GENERATE(1, 8);
  EqualNodes shape;
  shape.nodes = 3;
  shape.nics = nics;
  const Topology topology = equal_nodes(shape);
  for (std::size_t i = 0; i < named_collectives().size(); ++i) {
    const CollectiveQuestion asked = question(i, 24, Bytes(1e8));
    const std::vector<PlayedAlgorithm> all = play_alone(topology, asked, 2);
    REQUIRE(!all.empty());
    int chosen = 0;
    for (const PlayedAlgorithm& played : all) {
      CAPTURE(asked.collective.name, to_text(played.algorithm), nics);
      CHECK(played.time.value() >= played.least.value() * (1 - 1e-9));
      chosen += played.nccl_choice ? 1 : 0;
      const auto phases =
          asked.collective.kind
              ? collective_flows(topology,
                                 {*asked.collective.kind, played.algorithm, Bytes(1e8), {}, asked.gpus})
              : broadcast_flows(topology, {played.algorithm, Bytes(1e8), {}, asked.gpus});
      // No link is faster than the sum of what crosses it; flows that share unevenly take longer.
      CHECK(played.time.value() >= time_alone(topology, phases).value() * (1 - 1e-9));
    }
    CHECK(chosen == 1);
  }
}

TEST_CASE("the bus bandwidth of a long ring comes to that of a node's cards, as nccl-tests counts it") {
  const int nics = GENERATE(1, 4);
  const Topology topology = equal_nodes({2, 4, nics});
  for (std::size_t i = 0; i < 3; ++i) {
    const PlayedAlgorithm played = by_ring(topology, question(i, 8, Bytes(1e12)));
    // 25 GB/s a card; with a card for each GPU the ring is cut in as many, as NCCL's channels are.
    CHECK(played.bytes.value() * played.bus_factor / played.time.value() ==
          Approx(nics * 25e9).epsilon(0.001));
  }
}

}  // namespace orrery
