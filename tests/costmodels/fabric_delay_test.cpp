// Sharded weights over fabrics that are slower than the cards.
#include "costmodels/plans/fabric_delay.hpp"

#include "costmodels/plans/price_book.hpp"
#include "strategies/placement.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"

namespace orrery {

// Four nodes of two H100 with one card each, every node on a leaf of its own: a ring sends (n - 1) / n of
// what it gathers out of every node, through a card of 12.5 GB/s and, with four to one, an uplink of a
// quarter of it.
TEST_CASE("sharded weights wait for an oversubscribed fabric as long as its uplinks say") {
  const auto cluster = [](const std::string& fabric) {
    return parse_cluster(
        "{name: c, groups: [{name: a, gpu: H100, gpus_per_node: 2, count: 4, nics_per_node: 1, "
        "nic_bandwidth: 100Gbps}]" +
            fabric + "}",
        "c.yaml");
  };
  const ModelSpec model = read_model("llama2-7b");
  ParallelStrategy strategy;
  strategy.data = 8;
  strategy.global_batch = 8;
  strategy.sequence = 4096;
  strategy.distributed_optimizer = strategy.fully_sharded = true;
  strategy.stages = {{}};
  strategy.parts = {{0, model.layer_count()}};
  strategy.nodes = {4};
  const auto delay = [&](const ClusterSpec& on) {
    PricedPlan plan;
    plan.gpus = place(strategy, Topology(on, strategy.nodes));
    plan.replicas = strategy.data;
    return fabric_delay(plan, strategy, Topology(on, strategy.nodes), Bytes(1e9));
  };
  const auto forward = [&](const ClusterSpec& on) {
    PriceBook book(model, on, {DataType::bf16, true, 4096, {}});
    book.need(strategy);
    book.predict(test::cost_models());
    return book.price(strategy, Topology(on, strategy.nodes)).parts[0].forward;
  };
  const ClusterSpec plain = cluster("");
  const ClusterSpec wide = cluster(", fabric: {nodes_per_leaf: 1, oversubscription: 1}");
  const ClusterSpec narrow = cluster(", fabric: {nodes_per_leaf: 1, oversubscription: 4}");
  CHECK(delay(plain) == 1.0);
  CHECK(delay(wide) == Approx(1.0).epsilon(0.01));
  CHECK(delay(narrow) == Approx(4.0).epsilon(0.01));
  CHECK(forward(wide).value() == Approx(forward(plain).value()).epsilon(0.01));
  CHECK(forward(narrow) > forward(plain) * 1.5);
  // Two sets of two nodes each that shard apart: as far out of each node.
  strategy.optimizer_instances = 2;
  CHECK(delay(narrow) == Approx(4.0).epsilon(0.01));
  // Inside a node nothing crosses the fabric.
  strategy.optimizer_instances = 4;
  CHECK(delay(narrow) == Approx(1.0).epsilon(0.01));
}

}  // namespace orrery
