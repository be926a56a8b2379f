// Calibration on runs that the tool made itself with known factors.
#include "sim/validation/calibration.hpp"

#include <cmath>
#include <random>

#include "costmodels/stacks/stack_file.hpp"
#include "sim/bounds/plan_band.hpp"
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
             PriceBook(spec, cluster, {strategy.type, true, 1024, read_stack("megatron-lm-2021")}),
             strategy,
             0,
             {}};
  run.book.need(strategy);
  static_cast<void>(run.book.predict(costs));
  return run;
}

void measure(OwnRun& run, const CostModels& costs, const MachineFactors& truth, double noise = 0) {
  run.measured =
      std::exp(noise) * seconds_under(run.book, run.strategy, costs, with_factors(run.book.stack(), truth));
}

PriceBook priced_under(const SoftwareStack& stack, const OwnRun& run, const CostModels& costs) {
  JobPrecision precision = run.book.precision();
  precision.stack = stack;
  PriceBook book(run.book.model(), run.book.cluster(), precision);
  book.need(run.strategy);
  static_cast<void>(book.predict(costs));
  return book;
}

void measure_peak(OwnRun& run, const MemoryFactors& truth, double noise = 0) {
  run.peak->gib = std::exp(noise) * peak_under(run.book, run.strategy, run.peak->figure,
                                               with_memory_factors(run.book.stack(), truth));
}

// Compute-bound on one GPU a replica; host-bound; tensor ways in a node; small batches over the network.
std::vector<OwnRun> varied_runs(const CostModels& costs, int batches = 1) {
  std::vector<OwnRun> runs;
  runs.push_back(run_of(costs, "gpt2-1.5b", 1, 1, 256 * batches, 8));
  runs.push_back(run_of(costs, "gpt2-345m", 1, 1, 64 * batches, 1));
  runs.push_back(run_of(costs, "llama2-13b", 8, 1, 32 * batches, 8));
  runs.push_back(run_of(costs, "gpt2-1.5b", 1, 4, 256 * batches, 8));
  return runs;
}

}  // namespace

TEST_CASE("runs of known factors give them back, as far as the runs determine them") {
  const CostModels costs = CostModels::built_in();
  const MachineFactors truth{1.08, 1.3, 0.9, 0.8};
  // Of many batches, so that the priors weigh little.
  std::vector<OwnRun> all;
  for (int batches = 1; batches <= 12; ++batches) {
    for (OwnRun& run : varied_runs(costs, batches)) {
      measure(run, costs, truth);
      all.push_back(std::move(run));
    }
  }
  const Calibration result = calibrate(all, costs);
  for (std::size_t i = 0; i < kMachineFacts; ++i) {
    INFO(i << " " << result.time.factors[i] << " +- " << result.time.after[i]);
    CHECK(std::abs(std::log(result.time.factors[i] / truth[i])) < 2 * result.time.after[i] + 0.01);
    CHECK(result.time.after[i] <= result.time.before[i] * (1 + 1e-9));
  }
  CHECK(result.time.factors[0] == Approx(1.08).epsilon(0.03));
  CHECK(result.time.factors[1] == Approx(1.3).epsilon(0.08));
  for (std::size_t i = 0; i < all.size(); ++i)
    CHECK(result.time.predicted_after[i] == Approx(result.time.measured[i]).epsilon(0.02));
}

TEST_CASE("runs count in any order, and repeats of one plan as one run, but for what they scatter") {
  const CostModels costs = CostModels::built_in();
  OwnRun gpt = run_of(costs, "gpt2-1.5b", 1, 1, 256, 8), llama = run_of(costs, "llama2-13b", 8, 1, 32, 8);
  measure(gpt, costs, {1.1, 1, 1, 1});
  measure(llama, costs, {0.9, 1, 1, 1});
  const Calibration one = calibrate({gpt}, costs), thrice = calibrate({gpt, gpt, gpt}, costs),
                    there = calibrate({gpt, llama}, costs), back = calibrate({llama, gpt}, costs);
  for (std::size_t i = 0; i < kMachineFacts; ++i) {
    CHECK(there.time.factors[i] == Approx(back.time.factors[i]));
    CHECK(there.time.after[i] == Approx(back.time.after[i]));
    CHECK(thrice.time.factors[i] == Approx(one.time.factors[i]));
    CHECK(thrice.time.after[i] == Approx(one.time.after[i]));
  }
  CHECK(thrice.stack.calibrated->runs == 1);
  CHECK(there.stack.calibrated->runs == 2);
  OwnRun slower = gpt;
  slower.measured = 8 * gpt.measured;
  const Calibration contradicted = calibrate({gpt, slower}, costs);
  const double scatter = contradicted.stack.calibrated->scatter;
  CHECK(scatter > 2 * one.stack.calibrated->scatter);
  const ErrorBand band = plan_band(priced_under(contradicted.stack, gpt, costs), gpt.strategy, costs);
  CHECK(band.high >= std::exp(1.6449 * scatter) * (1 - 1e-9));
}

TEST_CASE("one compute-bound run determines no network and no host") {
  const CostModels costs = CostModels::built_in();
  std::vector<OwnRun> runs{run_of(costs, "gpt2-1.5b", 1, 1, 256, 8)};
  measure(runs[0], costs, {1.1, 1, 1, 1});
  const Calibration result = calibrate(runs, costs);
  CHECK(result.time.factors[0] > 1.0);
  CHECK(determination(result.time.before[1], result.time.after[1]) == "not determined");
  CHECK(determination(result.time.before[3], result.time.after[3]) == "not determined");
  CHECK(contains(calibration_text(result), "not determined"));
}

// Flows cannot be faster than their link, however much more of it than predicted collectives reach.
TEST_CASE("where a link is full just there runs tell a bound, and determine nothing") {
  const CostModels costs = CostModels::built_in();
  OwnRun full = run_of(costs, "gpt2-1.5b", 1, 4, 32, 1);
  const auto seconds = [&](double between) {
    return seconds_under(full.book, full.strategy, costs,
                         with_factors(full.book.stack(), {1, 1, 1, between}));
  };
  double most = 1;  // of the link: from here on more changes nothing
  while (seconds(most) > seconds(1.02 * most)) most *= 1.02;
  REQUIRE(most < 3);
  CHECK(sensitivities(full.book, full.strategy, costs, {1, 1, 1, most})[3] < -0.05);
  CHECK(sensitivities(full.book, full.strategy, costs, {1, 1, 1, most}, Slope::flatter)[3] == 0);
  CHECK(sensitivities(full.book, full.strategy, costs, {1, 1, 1, 0.7 * most}, Slope::flatter)[3] < -0.05);
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
    const ErrorBand band = plan_band(priced_under(stack, next, costs), next.strategy, costs);
    CHECK(band.high / band.low < published.high / published.low);
    const double predicted = seconds_under(next.book, next.strategy, costs, stack);
    inside += next.measured >= predicted * band.low && next.measured <= predicted * band.high;
  }
  CHECK(inside >= kWorlds - 2);
}

TEST_CASE(
    "a calibrated stack narrows intervals on the GPUs and with the cost models of its runs, and says where "
    "not") {
  const CostModels costs = CostModels::built_in();
  std::vector<OwnRun> runs;
  for (const std::int64_t batch : {256, 512, 1024}) {
    runs.push_back(run_of(costs, "gpt2-1.5b", 1, 1, batch, 8));
    measure(runs.back(), costs, {1.1, 1, 1, 1});
    runs.back().peak = OwnPeak{};
    measure_peak(runs.back(), {1.1, 1, 1});
  }
  SoftwareStack stack = parse_stack(calibrated_yaml(calibrate(runs, costs), "megatron-lm-2021"), "mine.yaml");
  REQUIRE(stack.calibrated);
  CHECK(stack.calibrated->gpus == std::vector<std::string>{"A100-SXM4-80GB"});
  CHECK(stack.calibrated->cost_models == costs.digest());
  CHECK(stack.calibrated_memory->gpus == stack.calibrated->gpus);
  const auto on = [&](const std::string& gpu) {
    std::string cluster = kCluster;
    cluster.replace(cluster.find("A100-SXM4-80GB"), 14, gpu);
    OwnRun run = runs.front();
    run.book = PriceBook(run.book.model(), parse_cluster(cluster, "c.yaml"), run.book.precision());
    return run;
  };
  const auto has_bounds_of = [](const ErrorBand& band, const ErrorBand& other) {
    return band.low == other.low && band.high == other.high;
  };
  const OwnRun same = runs.front(), other = on("H100-SXM5-80GB");
  const ParallelStrategy& strategy = same.strategy;
  const auto bands = [&](const OwnRun& run, const SoftwareStack& under) {
    const PriceBook book = priced_under(under, run, costs);
    return std::pair{plan_band(book, strategy, costs), memory_band(book, strategy)};
  };
  SoftwareStack plain = stack;
  plain.calibrated.reset();
  plain.calibrated_memory.reset();
  const auto [narrow, narrow_memory] = bands(same, stack);
  CHECK(contains(narrow.basis, "calibrated on 3 of your runs"));
  CHECK(contains(narrow_memory.basis, "calibrated on 3 of your runs"));
  const auto [wide, wide_memory] = bands(other, stack);
  const auto [published, published_memory] = bands(other, plain);
  CHECK(has_bounds_of(wide, published));
  CHECK(has_bounds_of(wide_memory, published_memory));
  CHECK(wide.basis ==
        published.basis + "; not narrowed: calibrated on A100-SXM4-80GB, not on all of H100-SXM5-80GB");
  CHECK(contains(wide_memory.basis, "not narrowed"));
  // Nodes of another kind that the plan leaves idle say nothing of it.
  const std::string two_kinds =
      kCluster + "  - {name: idle, gpu: H100, gpus_per_node: 8, count: 1, nic_bandwidth: 1Gbps}\n";
  ParallelStrategy beside = strategy;
  beside.nodes.push_back(1);
  CHECK(gpus_of(parse_cluster(two_kinds, "c.yaml"), beside) == std::vector<std::string>{"A100-SXM4-80GB"});
  stack.calibrated->cost_models = "others";
  const auto [priced_otherwise, memory_alike] = bands(same, stack);
  CHECK(has_bounds_of(priced_otherwise, bands(same, plain).first));
  CHECK(contains(priced_otherwise.basis, "not narrowed: calibrated with other cost models"));
  CHECK(has_bounds_of(memory_alike, narrow_memory));
}

TEST_CASE("peaks of known factors give them back, as far as their figures tell, and not the times") {
  const CostModels costs = CostModels::built_in();
  std::vector<OwnRun> runs;
  for (const std::int64_t batch : {1, 2, 4, 8, 16, 32}) {
    for (const MemoryFigure figure : {MemoryFigure::allocated, MemoryFigure::reserved, MemoryFigure::card}) {
      runs.push_back(run_of(costs, "gpt2-1.5b", 2, 1, 512, batch));
      measure(runs.back(), costs, {1, 1, 1, 1});
      runs.back().peak = OwnPeak{0, figure};
    }
  }
  const MemoryFactors truth{1.2, 0.6, 1.3};
  std::vector<OwnRun> allocated;
  for (OwnRun& run : runs) {
    measure_peak(run, truth);
    if (run.peak->figure == MemoryFigure::allocated) allocated.push_back(run);
  }
  const Calibration result = calibrate(runs, costs);
  REQUIRE(result.memory);
  for (std::size_t i = 0; i < kMemoryFacts; ++i) {
    INFO(i << " " << result.memory->factors[i] << " +- " << result.memory->after[i]);
    CHECK(std::abs(std::log(result.memory->factors[i] / truth[i])) < 2 * result.memory->after[i] + 0.01);
    CHECK(result.memory->after[i] < result.memory->before[i]);
  }
  CHECK(result.memory->factors[0] == Approx(truth[0]).epsilon(0.03));
  CHECK(result.stack.memory_reserve / runs[0].book.stack().memory_reserve ==
        Approx(result.memory->factors[2]));
  const Calibration with_peaks = calibrate(runs, costs);
  for (OwnRun& run : runs) run.peak.reset();
  const Calibration without_peaks = calibrate(runs, costs);
  CHECK_FALSE(without_peaks.memory);
  CHECK(without_peaks.time.factors == with_peaks.time.factors);
  // Tensors say nothing of what lies beside them.
  const Calibration tensors = calibrate(allocated, costs);
  CHECK(tensors.memory->factors[0] == Approx(truth[0]).epsilon(0.03));
  for (const std::size_t beside : {1, 2}) {
    CHECK(tensors.memory->factors[beside] == Approx(1));
    CHECK(determination(tensors.memory->before[beside], tensors.memory->after[beside]) == "not determined");
  }
}

TEST_CASE("a stack calibrated on peaks is read back, and its interval of memory is narrower and covers") {
  const CostModels costs = CostModels::built_in();
  std::vector<OwnRun> runs{run_of(costs, "gpt2-1.5b", 1, 1, 256, 4),
                           run_of(costs, "gpt2-1.5b", 2, 1, 256, 8)};
  for (OwnRun& run : runs) measure(run, costs, {1, 1, 1, 1});
  OwnRun next = run_of(costs, "gpt2-1.5b", 2, 1, 256, 16);
  next.peak = OwnPeak{};
  const ErrorBand published = memory_band(next.book, next.strategy);
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  int inside = 0;
  constexpr int kWorlds = 20;
  for (int world = 0; world < kWorlds; ++world) {
    const MemoryFactors truth{std::exp(0.2 * normal(random)), std::exp(0.5 * normal(random)),
                              std::exp(0.2 * normal(random))};
    for (OwnRun& run : runs) {
      run.peak = OwnPeak{};
      measure_peak(run, truth, 0.03 * normal(random));
    }
    measure_peak(next, truth, 0.03 * normal(random));
    const Calibration result = calibrate(runs, costs);
    const SoftwareStack stack = parse_stack(calibrated_yaml(result, "megatron-lm-2021"), "mine.yaml");
    CHECK(stack.activation_memory == Approx(result.stack.activation_memory).epsilon(1e-5));
    CHECK(stack.memory_reserve.value() == Approx(result.stack.memory_reserve.value()).epsilon(1e-5));
    CHECK(stack.cached_share == Approx(result.stack.cached_share).epsilon(1e-5));
    REQUIRE(stack.calibrated_memory);
    CHECK(stack.calibrated_memory->runs == 2);
    const ErrorBand band = memory_band(priced_under(stack, next, costs), next.strategy);
    CHECK(band.high / band.low < published.high / published.low);
    const double predicted = peak_under(next.book, next.strategy, MemoryFigure::card, stack);
    inside += next.peak->gib >= predicted * band.low && next.peak->gib <= predicted * band.high;
  }
  CHECK(inside >= kWorlds - 4);
}

TEST_CASE("nothing to calibrate on is refused") {
  const CostModels costs = CostModels::built_in();
  CHECK(contains(input_error([&] { static_cast<void>(calibrate({}, costs)); }), "one or more"));
}

}  // namespace orrery
