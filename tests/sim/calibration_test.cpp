// Calibration on runs that the tool made itself with known factors.
#include "sim/calibration.hpp"

#include <cmath>
#include <random>

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

namespace orrery {
namespace {

const std::string kCluster =
    "name: c\ngroups:\n  - {name: a, gpu: A100-SXM4-80GB, gpus_per_node: 8, nics_per_node: 8, "
    "nic_bandwidth: 100Gbps, count: 0..4}\n";

// `tensor` ways in a node, the rest of the GPUs of `nodes` nodes data-parallel.
OwnRun run_of(const CostModels& costs, const std::string& model, int tensor, int nodes, std::int64_t batch,
              std::int64_t micro_batch = 1) {
  const ModelSpec spec = read_model(model);
  const ClusterSpec cluster = parse_cluster(kCluster, "c.yaml");
  ParallelStrategy strategy;
  strategy.data = 8 * nodes / tensor;
  strategy.stages = {{.group = 0, .tensor = tensor}};
  strategy.parts = {{0, spec.layer_count()}};
  strategy.nodes = {nodes};
  strategy.sequence = 1024;
  strategy.global_batch = batch;
  strategy.micro_batch = micro_batch;
  OwnRun run{model + " " + std::to_string(tensor),
             PriceBook(spec, cluster, {strategy.type, true, 1024, read_stack("megatron-lm-2021")}), strategy};
  run.book.need(strategy);
  static_cast<void>(run.book.predict(costs));
  return run;
}

void measure(OwnRun& run, const CostModels& costs, const MachineFactors& truth, double noise = 0) {
  run.measured =
      std::exp(noise) * seconds_under(run.book, run.strategy, costs, with_factors(run.book.stack(), truth));
}

// Compute-bound on one GPU a replica; host-bound; tensor ways in a node; small batches over the network.
std::vector<OwnRun> varied_runs(const CostModels& costs) {
  std::vector<OwnRun> runs;
  runs.push_back(run_of(costs, "gpt2-1.5b", 1, 1, 256, 8));
  runs.push_back(run_of(costs, "gpt2-345m", 1, 1, 64, 1));
  runs.push_back(run_of(costs, "llama2-13b", 8, 1, 32, 8));
  runs.push_back(run_of(costs, "gpt2-1.5b", 1, 4, 256, 8));
  return runs;
}

}  // namespace

TEST_CASE("runs of known factors give them back, as far as the runs determine them") {
  const CostModels costs = CostModels::built_in();
  std::vector<OwnRun> runs = varied_runs(costs);
  const MachineFactors truth{1.08, 1.3, 0.9, 0.8};
  // Each run many times, so that the priors weigh little.
  std::vector<OwnRun> all;
  for (int repeat = 0; repeat < 12; ++repeat) {
    for (OwnRun& run : runs) {
      measure(run, costs, truth);
      all.push_back(run);
    }
  }
  const Calibration result = calibrate(all, costs);
  for (std::size_t i = 0; i < kMachineFacts; ++i) {
    INFO(i << " " << result.factors[i] << " +- " << result.after[i]);
    CHECK(std::abs(std::log(result.factors[i] / truth[i])) < 2 * result.after[i] + 0.01);
    CHECK(result.after[i] <= result.before[i] * (1 + 1e-9));
  }
  CHECK(result.factors[0] == Approx(1.08).epsilon(0.03));
  CHECK(result.factors[1] == Approx(1.3).epsilon(0.08));
  for (std::size_t i = 0; i < runs.size(); ++i)
    CHECK(result.predicted_after[i] == Approx(result.measured[i]).epsilon(0.02));
}

TEST_CASE("one compute-bound run determines no network and no host") {
  const CostModels costs = CostModels::built_in();
  std::vector<OwnRun> runs{run_of(costs, "gpt2-1.5b", 1, 1, 256, 8)};
  measure(runs[0], costs, {1.1, 1, 1, 1});
  const Calibration result = calibrate(runs, costs);
  CHECK(result.factors[0] > 1.0);
  CHECK(determination(result.before[1], result.after[1]) == "not determined");
  CHECK(determination(result.before[3], result.after[3]) == "not determined");
  CHECK(contains(calibration_text(result), "not determined"));
}

TEST_CASE("the calibrated stack is read back, and its interval is narrower and covers") {
  const CostModels costs = CostModels::built_in();
  std::vector<OwnRun> runs = varied_runs(costs);
  OwnRun next = run_of(costs, "gpt2-1.5b", 1, 2, 256, 8);
  const ErrorBand published = plan_band(next.book, next.strategy, costs);
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  int inside = 0;
  constexpr int kWorlds = 8;
  for (int world = 0; world < kWorlds; ++world) {
    const MachineFactors truth{std::exp(0.08 * normal(random)), std::exp(0.2 * normal(random)),
                               std::exp(0.1 * normal(random)), std::exp(0.1 * normal(random))};
    for (OwnRun& run : runs) measure(run, costs, truth, 0.03 * normal(random));
    measure(next, costs, truth, 0.03 * normal(random));
    const Calibration result = calibrate(runs, costs);
    const SoftwareStack stack = parse_stack(calibrated_yaml(result, "megatron-lm-2021"), "mine.yaml");
    CHECK(stack.compute_time == Approx(result.stack.compute_time).epsilon(1e-5));
    JobPrecision precision = next.book.precision();
    precision.stack = stack;
    PriceBook book(next.book.model(), next.book.cluster(), precision);
    book.need(next.strategy);
    static_cast<void>(book.predict(costs));
    const ErrorBand band = plan_band(book, next.strategy, costs);
    CHECK(band.high / band.low < published.high / published.low);
    const double predicted = seconds_under(book, next.strategy, costs, stack);
    inside += next.measured >= predicted * band.low && next.measured <= predicted * band.high;
  }
  CHECK(inside >= kWorlds - 2);
}

TEST_CASE("nothing to calibrate on is refused") {
  const CostModels costs = CostModels::built_in();
  CHECK(contains(input_error([&] { static_cast<void>(calibrate({}, costs)); }), "one or more"));
}

}  // namespace orrery
