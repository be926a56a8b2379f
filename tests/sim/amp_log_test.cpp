// AMP's logs priced again, on made-up numbers in the form of the published files.
#include "sim/measured/amp_log.hpp"

#include "platforms/errors.hpp"
#include "sim/measured/amp_reproduction.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/flat_cluster.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

// Two nodes of two GPUs, two layers: pseudo-layers embed, noop, layer, layer, noop, noop, head, noop.
const std::string kHead =
    "{'hidden_size': tensor([8.]), 'sequence_length': tensor([4.]), 'num_layers': tensor([2.]), "
    "'vocab_size': tensor([16.]), 'type': 'gpt2'}\ngbs:8\n";
const std::string kDegrees = "{'mp_deg': tensor([1.]), 'dp_deg': tensor([2.]), 'pp_deg': tensor([2.])}";
const std::string kTrial =
    "rank 0: ((2, " + kDegrees +
    ", defaultdict(<class 'list'>, {0: [0, 1], 1: [2, 3]}), [0, 3, 8]), tensor([1.5000]))\n";
const std::string kRun =
    "Simulating result: None, [0, 3, 8], 2, " + kDegrees +
    ", with p_cost: tensor([1.5000]), r_cost: 1.32 \nrunning real trials till iter 0 takes 6.2";

const std::vector<AmpRows> kRows{{"gpt2", "G (x)", 1, {0.01, 0.02, 0.1, 0.2, 0.03, 0.04, 0.05, 0.06}}};

Topology four_gpus() {
  ClusterSpec cluster = test::flat_cluster({.nodes = 2, .gpus_per_node = 2});
  cluster.groups[0].gpu.name = "G-16GB";
  cluster.groups[0].nic.bandwidth = BytesPerSecond(1024);  // so that transfers take a while
  cluster.groups[0].gpu_link.bandwidth = BytesPerSecond(4096);
  return {cluster, {2}};
}

}  // namespace

TEST_CASE("a log of AMP gives its trials, with the times of those that ran") {
  const AmpLog log = parse_amp_log(kHead + kTrial + kRun, "log.txt");
  CHECK(log.global_batch == 8);
  REQUIRE(log.trials.size() == 1);
  const AmpTrial& trial = log.trials.front();
  CHECK(trial.micro_batch == 2);
  CHECK(trial.data == 2);
  CHECK(trial.cuts == std::vector<int>{0, 3, 8});
  CHECK(trial.predicted == 1.5);
  CHECK(trial.measured == 1.32);
  std::string failed = kRun;
  failed.replace(failed.find("1.32"), 4, "inf ");
  CHECK_FALSE(parse_amp_log(kHead + kTrial + failed, "log.txt").trials.front().measured);
}

TEST_CASE("a trial becomes stages, transfers and gradients as AMP's code counts them") {
  const AmpLog log = parse_amp_log(kHead + kTrial, "log.txt");
  const AmpPlan plan = amp_plan(log, log.trials.front(), kRows, four_gpus());
  CHECK(plan.microbatches == 8.0 / (2 * 2));
  REQUIRE(plan.times.size() == 2);
  CHECK(plan.times[0].value() == Approx(3 * 2 * (0.01 + 0.02 + 0.1)));
  CHECK(plan.times[1].value() == Approx(3 * 2 * (0.2 + 0.03 + 0.04 + 0.05 + 0.06)));
  REQUIRE(plan.boundaries.size() == 1);
  CHECK(plan.boundaries[0].bytes.value() == 2 * 4 * 8 * 4);       // microbatch x sequence x hidden x 4 bytes
  CHECK(plan.gradients[0].value() == (8 * 16 + 12 * 8 * 8) * 4);  // one of the two tables, one layer
  CHECK(plan.gradients[1].value() == (8 * 16 + 12 * 8 * 8) * 4);
  CHECK(plan.gpus == std::vector<std::vector<int>>{{0}, {2}, {1}, {3}});  // [replica * stages + stage]
  // 0.78 + 2.28, once the slower; 256 bytes between nodes; rings inside a node: 2 x (1 / 2) x 3584 bytes.
  CHECK(amp_iteration(plan, four_gpus()).value() ==
        Approx(0.78 + 2.28 + 2.28 + 256.0 / 1024 + 3584.0 / 4096));
}

TEST_CASE("a prediction counts as reproduced when it prints the same") {
  AmpReproduction result;
  AmpTrial trial;
  trial.predicted = 1.2345;
  trial.measured = 1.0;
  result.add(trial, Seconds(1.23454));
  result.add(trial, Seconds(1.23456));
  CHECK(result.plans == 2);
  CHECK(result.same_print == 1);
  CHECK(result.worst_difference_s == Approx(6e-5));
  CHECK(result.trials.measured.size() == 2);
}

TEST_CASE("broken logs of AMP are wrong input") {
  const auto refused = [](std::string text, const std::string& from, const std::string& to,
                          const char* part) {
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    const auto price = [&] {
      const AmpLog log = parse_amp_log(text, "log.txt");
      static_cast<void>(amp_plan(log, log.trials.front(), kRows, four_gpus()));
    };
    CHECK_THROWS_WITH(price(), contains_text(part) && contains_text("log.txt"));
  };
  refused(kHead + kTrial, "'gpt2'", "'bert'", "'bert'");
  refused(kHead + kTrial, "gbs:8", "", "gbs:");
  refused(kHead + kTrial, "rank 0", "rang 0", "rank 0");
  refused(kHead + kTrial, "[0, 3, 8]", "[0, 3, 7]", "8 pseudo-layers");
  refused(kHead + kTrial, "[0, 3, 8]", "[0, 9, 8]", "8 pseudo-layers");
  refused(kHead + kTrial, "'pp_deg': tensor([2.])", "'pp_deg': tensor([x])", "number");
  refused(kHead + kTrial, "'dp_deg': tensor([2.])", "'dp_deg': tensor([4.])", "8 GPUs");
  refused(kHead + kTrial, "'mp_deg': tensor([1.])", "'mp_deg': tensor([2.])", "tensor 2");
}

TEST_CASE("compare --amp-log wants the layer times beside it") {
  const Workplace place;
  place.write("log.txt", kHead + kTrial);
  check_refused(place.run({"compare", "--amp-log", "log.txt", "--cluster", "amp-t4"}), {"--layer-profile"});
}

}  // namespace orrery
