// Published runs on clusters of several kinds of GPU.
#include "sim/measured/measured_stages.hpp"

#include "sim/validation/validation.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {
namespace {

using test::mapped;
using test::runs_of;
using test::unmapped;

// On two pipelines of two stages, each of eight GPUs of a node.
MeasuredRun run_on(const std::string& cluster, const std::string& groups, const std::string& id = "a",
                   const std::string& mbs = "2") {
  return runs_of(
             id + ",group,RTX 3090 and others,,,32,,Megatron-DeepSpeed,OPT,24,1024,16,50257,2048,fp32,256," +
                 mbs + ",8,2,1,2,none,60,,ok," + cluster + "," + groups + "\n",
             ",cluster,stage_groups")
      .front();
}

}  // namespace

TEST_CASE("a row says on which groups of its cluster the replicas of each stage stood") {
  const MeasuredPlan plan = mapped(run_on("sailor-mit", "rtx3090+rtx2080;titan+rtx2080"));
  const ParallelStrategy& strategy = plan.strategies.front();
  REQUIRE(strategy.replicas.size() == 2);
  CHECK(strategy.replicas[0].groups == std::vector<int>{0, 2});
  CHECK(strategy.replicas[1].groups == std::vector<int>{1, 1});
  for (const ReplicaKind& kind : strategy.replicas) {
    CHECK(kind.count == 1);
    CHECK(kind.microbatches == 256 / 2 / 2);
  }
  CHECK(strategy.stages[0].group == 0);
  CHECK(strategy.stages[1].group == 2);
  CHECK(strategy.nodes == std::vector<int>{1, 2, 1});
  CHECK(plan.networks.size() == 1);
}

TEST_CASE("replicas that stand alike are one kind") {
  const MeasuredPlan plan = mapped(run_on("sailor-mit", "rtx2080;titan"));
  CHECK(plan.strategies.front().replicas.empty());
  CHECK(plan.strategies.front().stages[1].group == 2);
  CHECK(plan.strategies.front().nodes == std::vector<int>{0, 2, 2});
}

TEST_CASE("what is wrong with the groups of stages leaves a row out in words") {
  CHECK(unmapped(run_on("sailor-mit", "rtx3090")) == "1 stages placed, of 2");
  CHECK(unmapped(run_on("sailor-mit", "rtx2080+rtx2080+titan;titan")) == "3 replicas placed, of 2");
  CHECK(unmapped(run_on("sailor-mit", "rtx2080;h100")) == "no node group h100 in its cluster");
  CHECK(contains(unmapped(run_on("sailor-mit", "rtx3090;titan")), "rtx3090"));  // of which there is one node
  CHECK(contains(unmapped(run_on("nowhere", "a;b")), "nowhere"));
}

TEST_CASE("measured layers of each node group price the stages that stand there") {
  const auto predicted = [](double first, double second) {
    const auto layers = [](double seconds) {
      LayerTable table;
      table.tensor = 8, table.micro_batch = 2;
      table.layers = {{Seconds(seconds), Seconds(2 * seconds), std::nullopt}};
      return LayerProfile{"layers.csv", {table}};
    };
    ValidationOptions options;
    options.layers["rtx2080"] = layers(first);
    options.layers["titan"] = layers(second);
    const Validation validation =
        validate({run_on("sailor-mit", "rtx2080;titan")}, CostModels::built_in(), options);
    REQUIRE(validation.runs.size() == 1);
    return validation.runs.front().predicted;
  };
  // 64 microbatches over two stages of twelve layers: the slow second one works all of them, and waits for
  // the first one's first forward and is waited for by its last backward.
  const double base = predicted(0.01, 0.1);
  CHECK(predicted(0.01, 0.11) - base == Approx(64 * 12 * 0.03));
  CHECK(predicted(0.02, 0.1) - base == Approx(12 * 0.03));
}

}  // namespace orrery
