// What crosses from region to region, counted by hand.
#include "costmodels/money/egress.hpp"

#include "tests/catch.hpp"

namespace orrery {
namespace {

// Two nodes of two GPUs, one in each region: GPUs 0 and 1, 2 and 3.
Topology two_regions(const std::string& price) {
  return Topology(
      parse_cluster(
          "groups:\n  - {name: a, gpu: T4, gpus_per_node: 2, nic_bandwidth: 10Gbps, count: 1, region: a}\n"
          "  - {name: b, gpu: T4, gpus_per_node: 2, nic_bandwidth: 10Gbps, count: 1, region: b}\n"
          "fabric: {regions: [{from: b, to: a, bandwidth: 1Gbps, latency: 1ms" +
              price + "}]}\n",
          "two.yaml"),
      {1, 1});
}

PricedPlan plan_of(int stages, int replicas, std::vector<std::vector<int>> gpus) {
  PricedPlan plan;
  plan.schedule.ranks = stages;
  plan.schedule.microbatches = 5;
  plan.replicas = replicas;
  plan.gpus = std::move(gpus);
  plan.parts.resize(static_cast<std::size_t>(stages));
  plan.boundaries.assign(static_cast<std::size_t>(stages - 1), {Bytes(3e9), {0.5, 0.5}});
  return plan;
}

}  // namespace

TEST_CASE(
    "a pipeline over two regions pays for each activation and each gradient, as sent and not as slowed") {
  // Two lanes, 5 microbatches, there and back: 20 messages of 3 GB.
  const PricedPlan plan = plan_of(2, 1, {{0, 1}, {2, 3}});
  CHECK(egress_of(plan, two_regions(", price: 0.02 USD/GB")).value() == Approx(20 * 3 * 0.02));
  CHECK(egress_of(plan, two_regions("")).value() == 0);
}

TEST_CASE("a pipeline inside a region pays nothing") {
  CHECK(egress_of(plan_of(2, 1, {{0}, {1}}), two_regions(", price: 0.02 USD/GB")).value() == 0);
}

TEST_CASE("a ring over two regions crosses twice, with 2 (n - 1) / n of the gradients each time") {
  PricedPlan plan = plan_of(1, 4, {{0}, {1}, {2}, {3}});
  plan.reductions = {{Bytes(4e9), Bytes(0), {}}};
  plan.algorithm = CollectiveAlgorithm::ring;
  // The hops 1 to 2 and 3 to 0, 6 GB each.
  CHECK(egress_of(plan, two_regions(", price: 30 USD/TB")).value() == Approx(2 * 6 * 0.03));
}

}  // namespace orrery
