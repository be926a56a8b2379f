// Plans laid on the cluster anew: never slower and never more between nodes, and played where they were laid.
#include "sim/search/place_plans.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <random>

#include "costmodels/estimate/estimate.hpp"
#include "costmodels/estimate/host_traffic.hpp"
#include "strategies/placement.hpp"
#include "strategies/plan.hpp"
#include "tests/costmodels/priced_clusters.hpp"
#include "tests/sim/played.hpp"
#include "tests/sim/run_program.hpp"
#include "tests/strategies/plan_fixture.hpp"
#include "tests/strategies/random_schedule.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

// Nodes of 2 A100 with a NIC each, by turns below two leaves of `nodes` / 2.
ClusterSpec scattered(int nodes, double oversubscription) {
  ClusterSpec cluster;
  NodeGroup group = node_group_of("A100", 2);
  group.gpus_per_node = 2;
  group.count = {nodes, nodes};
  for (int node = 0; node < nodes; ++node) group.leaves.push_back(node % 2);
  cluster.groups = {group};
  cluster.fabric.nodes_per_leaf = nodes / 2;
  cluster.fabric.oversubscription = oversubscription;
  return cluster;
}

ParallelStrategy plan_of(int pipeline, int data, int nodes) {
  ParallelStrategy plan;
  plan.pipeline = pipeline;
  plan.data = data;
  plan.global_batch = 8 * data;
  plan.sequence = 2048;
  plan.stages.assign(static_cast<std::size_t>(pipeline), {0, 2});
  plan.parts = equal_parts(pipeline, 32);
  plan.nodes = {nodes};
  plan.distributed_optimizer = true;
  return plan;
}

PriceBook book_of(const ModelSpec& model, const ClusterSpec& cluster, const ParallelStrategy& plan) {
  PriceBook book(model, cluster, {plan.type, true, plan.sequence});
  for (const RankOrder order : {RankOrder::cp_dp_pp, RankOrder::cp_pp_dp}) {
    ParallelStrategy ordered = plan;
    ordered.order = order;
    book.need(ordered);
  }
  book.predict(cost_models());
  return book;
}

struct Measured {
  double estimate = 0;  // s
  TrafficCost cost;
};

Measured measured(const PriceBook& book, const ParallelStrategy& plan) {
  const Topology topology(book.cluster(), plan.nodes);
  const PricedPlan priced = book.price(plan, topology);
  const PlanPrograms programs = make_programs(priced);
  return {estimate_iteration(priced, programs, topology).value(),
          HostTraffic(traffic_classes(priced, programs, topology), topology).cost()};
}

PlayedTimes played(const PriceBook& book, const ParallelStrategy& plan, Folding folding) {
  const Topology topology(book.cluster(), plan.nodes);
  return replayed(book.price(plan, topology), topology, folding);
}

// Nodes of the eight ranks in the trace of a replay.
std::array<int, 8> nodes_in_trace(const PriceBook& book, const ParallelStrategy& plan) {
  const Topology topology(book.cluster(), plan.nodes);
  const PricedPlan priced = book.price(plan, topology);
  return in_child<std::array<int, 8>>([&] {
    const PlanPrograms programs = make_programs(priced);
    const TrafficFlows flows(priced, programs, topology, Folding::off);
    const Replay run = replay(priced, programs, topology, flows, {});
    std::array<int, 8> nodes{};
    for (const RankInfo& rank : run.timeline.ranks)
      nodes.at(static_cast<std::size_t>(rank.stage)) = rank.node;
    return nodes;
  });
}

int boundaries_between_leaves(const ParallelStrategy& plan, const Topology& topology) {
  const auto gpus = place(plan, topology);
  int count = 0;
  for (std::size_t stage = 0; stage + 1 < gpus.size(); ++stage)
    count += topology.same_leaf(gpus[stage].front(), gpus[stage + 1].front()) ? 0 : 1;
  return count;
}

}  // namespace

// Eight stages, a node each, by turns on two leaves: all 7 boundaries cross; one must, since a leaf holds
// four.
TEST_CASE("a pipeline scattered over two leaves is laid so that it crosses once, and is replayed so") {
  const ModelSpec model = read_model("llama2-7b");
  const ClusterSpec cluster = scattered(8, 64);
  const ParallelStrategy plan = plan_of(8, 1, 8);
  const PriceBook book = book_of(model, cluster, plan);
  const Topology topology(cluster, plan.nodes);
  const ParallelStrategy placed = best_placed(book, plan, PlacementSearch::anneal, 1);
  CHECK(boundaries_between_leaves(plan, topology) == 7);
  CHECK(boundaries_between_leaves(placed, topology) == 1);
  const double before = played(book, plan, Folding::off).iteration;
  const double after = played(book, placed, Folding::off).iteration;
  // A message of 4096 x 2048 bf16 values, half of it a lane, takes 8.4 MB / (4 x 2 x 50 GB/s / 64) = 1.3 ms
  // between leaves; seven fill the pipeline before, one after, each way.
  CHECK(before - after > 2 * 6 * 1e-3);
  CHECK(measured(book, placed).estimate < measured(book, plan).estimate);
  const std::array<int, 8> nodes = nodes_in_trace(book, placed);
  CHECK(std::vector<int>(nodes.begin(), nodes.end()) == placed.hosts);
}

TEST_CASE("placed plans are never slower by estimate, never cross more, and fold exactly") {
  std::mt19937 random(5);
  const ModelSpec model = read_model("llama2-7b");
  int changed = 0;
  for (int i = 0; i < 10; ++i) {
    const int pipeline = 1 << between(random, 0, 3), data = 1 << between(random, 0, 2);
    const int nodes = pipeline * data + between(random, 0, 1) * 2;
    ClusterSpec cluster = scattered(nodes + nodes % 2, between(random, 1, 32));
    std::shuffle(cluster.groups.front().leaves.begin(), cluster.groups.front().leaves.end(), random);
    const ParallelStrategy plan = plan_of(pipeline, data, nodes + nodes % 2);
    INFO("P " << pipeline << " D " << data << "\n" << to_yaml(cluster));
    const PriceBook book = book_of(model, cluster, plan);
    const Measured given = measured(book, plan);
    for (const PlacementSearch how : {PlacementSearch::orders, PlacementSearch::anneal}) {
      const ParallelStrategy placed = best_placed(book, plan, how, 1);
      const Measured now = measured(book, placed);
      REQUIRE(now.estimate <= given.estimate);
      REQUIRE(now.cost.crossing <= given.cost.crossing * (1 + 1e-9));
      REQUIRE(now.cost.between_nodes <= given.cost.between_nodes * (1 + 1e-9));
      REQUIRE(best_placed(book, plan, how, 1) == placed);
      if (placed == plan) continue;
      ++changed;
      REQUIRE(played(book, placed, Folding::on).makespan ==
              Approx(played(book, placed, Folding::off).makespan).epsilon(1e-9));
    }
  }
  CHECK(changed > 3);  // the property is not empty
}

// What annealing prices is what the plan sends when its hosts are numbered so.
TEST_CASE("the traffic of a renumbered plan is that of its hosts traded") {
  const ModelSpec model = read_model("llama2-7b");
  ParallelStrategy plan = plan_of(4, 2, 8);
  const PriceBook book = book_of(model, scattered(8, 8), plan);
  const Topology topology(book.cluster(), plan.nodes);
  const PricedPlan priced = book.price(plan, topology);
  const auto classes = traffic_classes(priced, make_programs(priced), topology);
  HostTraffic traffic(classes, topology);
  for (const auto& [a, b] : {std::pair(0, 5), std::pair(5, 3), std::pair(1, 2)}) {
    traffic.swap(a, b);
    plan.hosts = traffic.hosts();
    const TrafficCost afresh = measured(book, plan).cost;
    CHECK(afresh.communication.value() == Approx(traffic.cost().communication.value()).epsilon(1e-12));
    CHECK(afresh.crossing.value() == Approx(traffic.cost().crossing.value()).epsilon(1e-12));
    CHECK(afresh.between_nodes.value() == Approx(traffic.cost().between_nodes.value()).epsilon(1e-12));
  }
}

TEST_CASE("a search with annealed hosts writes them into plans that replay as it says") {
  const Workplace place;
  place.write(
      "scattered.yaml",
      "name: s\ngroups:\n  - {name: a, gpu: A100-SXM4-80GB, gpus_per_node: 2, count: 4, nics_per_node: 2,\n"
      "     nic_bandwidth: 200Gbps, price: 10 USD/h, leaves: [0, 1, 0, 1]}\n"
      "fabric: {nodes_per_leaf: 2, oversubscription: 64}\n");
  place.write("deep.yaml", "pipeline_model_parallel_size: 4\ntensor_model_parallel_size: 2\n");
  const auto search = [&](const std::string& how) {
    const ProgramResult result = place.run({"search",
                                            "--model",
                                            "gpt2-345m",
                                            "--cluster",
                                            "scattered.yaml",
                                            "--global-batch",
                                            "16",
                                            "--space",
                                            "deep.yaml",
                                            "--rule",
                                            "$pipeline_model_parallel_size != 4",
                                            "--placement",
                                            how,
                                            "--seed",
                                            "7",
                                            "--top",
                                            "3",
                                            "--json",
                                            "--quiet",
                                            "-o",
                                            how});
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    return nlohmann::json::parse(result.out)["plans"][0];
  };
  const nlohmann::json given = search("default"), annealed = search("anneal");
  CHECK(annealed["replay"]["iteration_s"] < given["replay"]["iteration_s"]);
  REQUIRE(annealed.contains("hosts"));
  const Plan plan = read_plan(place.file("anneal/plan-01.yaml"));
  CHECK(nlohmann::json(plan.strategy.hosts) == annealed["hosts"]);
  const ProgramResult replay = place.run({"replay", "--plan", "anneal/plan-01.yaml", "--json", "--quiet"});
  REQUIRE(replay.code == 0);
  CHECK(nlohmann::json::parse(replay.out)["iteration_s"].get<double>() ==
        Approx(annealed["replay"]["iteration_s"].get<double>()).epsilon(1e-12));
  CHECK(search("anneal")["hosts"] == annealed["hosts"]);
}
