// Money, time and energy of a search as a budget owner reads them.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

// Two nodes of two A100; the keys are the group's and the cluster's.
std::string nodes(const std::string& group, const std::string& cluster = "") {
  return "name: two\ngroups:\n  - {name: a, gpus_per_node: 2, count: 2, nic_bandwidth: 200Gbps, price: 10 "
         "USD/h, "
         "gpu: {name: G, memory: 80GiB, memory_bandwidth: 2TBps, fp32: 19TFLOPS, fp16: 300TFLOPS, bf16: "
         "300TFLOPS, "
         "link: NVLink3, link_bandwidth: 300GBps, multiprocessors: 108, l2_cache: 40MiB, power: 400W, "
         "idle_power: 100W}" +
         group + "}\n" + cluster;
}

Json found(const Workplace& place, Words more) {
  more.insert(more.end(), {"--cluster", "c.yaml"});
  if (std::find(more.begin(), more.end(), "--tokens") == more.end())
    more.insert(more.end(), {"--tokens", "1G"});
  return run_json(place, small_search(more));
}

}  // namespace

TEST_CASE("energy is power while computing and less while waiting, of all GPUs paid for, times the site's") {
  const Workplace place;
  const std::string pue = GENERATE("", "pue: 1.5\n");
  place.write("c.yaml", nodes("", pue));
  // Beside overlapped collectives compute takes longer and does no more.
  const Json report = found(place, {"--top", "8", "--rule", "$overlap_grad_reduce"});
  for (const Json& plan : report.at("plans")) {
    const Json& replay = plan.at("replay");
    const double iteration = replay.at("iteration_s");
    double joules = 4 * 100 * iteration;  // four GPUs wait
    for (std::size_t s = 0; s < plan.at("stages").size(); ++s) {
      const double computing = replay.at("stages")[s].at("compute_s");
      joules +=
          plan.at("stages")[s].at("gpus").get<int>() * 300 * computing;  // and draw more while computing
    }
    const double kwh = joules / 3.6e6 * (pue.empty() ? 1.0 : 1.5);
    CHECK(replay.at("kwh_per_iteration").get<double>() == Approx(kwh).epsilon(1e-6));
    const double iterations = replay.at("hours_total").get<double>() * 3600 / iteration;
    CHECK(replay.at("kwh_total").get<double>() == Approx(kwh * iterations).epsilon(1e-6));
  }
}

TEST_CASE("nodes that are lost stretch hours and dollars of every plan alike, and the report says so") {
  const Workplace place;
  place.write("c.yaml", nodes(""));
  const Json calm = found(place, {"--top", "4"});
  place.write("c.yaml",
              nodes(", interrupted_every: 2h", "checkpoint: {write: 30s, restart: 2min, interval: 10min}\n"));
  const Json lossy = found(place, {"--top", "4"});
  // Two nodes: a loss every 3600 s. Daly's 20 with t = 600, d = 30, R = 120.
  const double stretch = 3600 * std::exp(120.0 / 3600) * std::expm1(630.0 / 3600) / 600;
  REQUIRE(calm.at("plans").size() == lossy.at("plans").size());
  for (std::size_t i = 0; i < calm.at("plans").size(); ++i) {
    const Json& before = calm.at("plans")[i].at("replay");
    const Json& after = lossy.at("plans")[i].at("replay");
    CHECK(after.at("iteration_s") == before.at("iteration_s"));
    CHECK(after.at("interruptions").at("hours_between").get<double>() == Approx(1));
    CHECK(after.at("interruptions").at("stretch").get<double>() == Approx(stretch));
    for (const char* field : {"hours_total", "usd_total", "kwh_total", "usd_per_mtoken"})
      CHECK(after.at(field).get<double>() == Approx(before.at(field).get<double>() * stretch));
  }
  const ProgramResult text = place.run(small_search({"--cluster", "c.yaml", "--tokens", "1G"}));
  CHECK(text.out.find("interrupted every 1.00 h on average, checkpoints after 10.0 min of work") !=
        std::string::npos);
}

// One of four GPUs works. Its node is lost every 2 h; the other, and the spot node, idle beside it.
TEST_CASE("idle nodes are paid for, and their loss stops nobody") {
  const Workplace place;
  const std::string idle_group =
      "  - {name: idle, gpu: T4, gpus_per_node: 4, count: 1, nic_bandwidth: 10Gbps, price: 5 USD/h, "
      "interrupted_every: 10s}\n";
  place.write("c.yaml", nodes(", interrupted_every: 2h", idle_group));
  place.write("p.yaml",
              "model: gpt2-345m\ncluster: c.yaml\nglobal_batch: 4\nsequence: 1024\nnodes: [2, 1]\n"
              "stages: [{group: 0, tensor: 1}]\nparts: [[0, 24]]\n");
  const Json run = run_json(place, {"replay", "--plan", "p.yaml", "--tokens", "1G"});
  CHECK(run.at("interruptions").at("hours_between").get<double>() == Approx(2));
  CHECK(run.at("usd_total").get<double>() == Approx(25 * run.at("hours_total").get<double>()));
}

TEST_CASE("losses count in the order of plans: fewer lossy nodes win over more of them") {
  const Workplace place;
  // Four nodes lost every 2 min each: with all of them, 30 s between losses, a run hardly gets on.
  std::string four = nodes(", interrupted_every: 2min", "checkpoint: {write: 20s, restart: 60s}\n");
  four.replace(four.find("count: 2"), 8, "count: 0..4");
  place.write("c.yaml", four);
  const Json report = found(place, {"--top", "200"});
  double before = 0;
  for (const Json& plan : report.at("plans")) {
    const double hours = plan.at("replay").at("hours_total");
    CHECK(hours >= before);
    before = hours;
  }
  CHECK(report.at("plans")[0].at("strategy").at("world_size") == 2);
  // Without losses more nodes are faster.
  four = nodes("");
  four.replace(four.find("count: 2"), 8, "count: 0..4");
  place.write("c.yaml", four);
  CHECK(found(place, {"--top", "1"}).at("plans")[0].at("strategy").at("world_size") > 2);
}

TEST_CASE("data between regions is paid beside the nodes, where a plan sends any") {
  const Workplace place;
  const auto group = [](const std::string& name) {
    return "  - {name: " + name +
           ", gpu: A100-SXM4-80GB, gpus_per_node: 2, count: 1, nic_bandwidth: 200Gbps, price: "
           "10 USD/h, region: " +
           name + "}\n";
  };
  place.write("c.yaml",
              "name: far\ngroups:\n" + group("a") + group("b") +
                  "fabric: {regions: [{from: a, to: b, bandwidth: 100Gbps, latency: 1ms, price: 0.02 "
                  "USD/GB}]}\n");
  bool sends = false, stays = false;
  const Json report = found(place, {"--top", "40"});
  for (const Json& plan : report.at("plans")) {
    const Json& replay = plan.at("replay");
    const double egress = replay.at("usd_egress");
    CHECK(replay.at("usd_total").get<double>() ==
          Approx(20 * replay.at("hours_total").get<double>() + egress));
    CHECK((plan.at("strategy").at("world_size") == 4) == (egress > 0));
    (egress > 0 ? sends : stays) = true;
  }
  CHECK(sends);
  CHECK(stays);
}

TEST_CASE("the answers of a cost search are the fastest within the money and the cheapest within the time") {
  const Workplace place;
  place.write(
      "c.yaml",
      "name: kinds\ngroups:\n"
      "  - {name: fast, gpu: H100, gpus_per_node: 2, count: 0..2, nic_bandwidth: 200Gbps, price: 20 USD/h}\n"
      "  - {name: slow, gpu: V100-SXM2-32GB, gpus_per_node: 2, count: 0..2, nic_bandwidth: 200Gbps, "
      "price: 2 USD/h}\n");
  const Words limits{"--mode", "cost", "--budget", "1e6 USD", "--deadline", "9d", "--top", "8"};
  const Json report = found(place, limits);
  const auto of_rank = [&](const Json& rank) {
    return report.at("plans").at(rank.get<std::size_t>() - 1).at("replay");
  };
  const Json fastest = of_rank(report.at("answers").at("fastest"));
  const Json cheapest = of_rank(report.at("answers").at("cheapest"));
  for (const Json& plan : report.at("plans")) {
    CHECK(fastest.at("hours_total") <= plan.at("replay").at("hours_total"));
    CHECK(cheapest.at("usd_total") <= plan.at("replay").at("usd_total"));
  }
  CHECK(cheapest.at("usd_total") < fastest.at("usd_total"));
  Words said = limits;
  said.insert(said.end(), {"--cluster", "c.yaml", "--tokens", "1G"});
  const ProgramResult text = place.run(small_search(said));
  CHECK(text.out.find("fastest within 1000000.00 USD and 216 h: plan 1: ") != std::string::npos);
  CHECK(text.out.find("cheapest within 1000000.00 USD and 216 h: plan ") != std::string::npos);
}

TEST_CASE("a pricing of the command line buys list-priced nodes otherwise, and refuses what no list has") {
  const Workplace place;
  place.write("c.yaml",
              "name: a\ngroups: [{name: a, instance: azure-a100-80gb, count: 1, price_region: eastus}]\n");
  const Json dear = found(place, {"--top", "1"});
  const Json spot = found(place, {"--top", "1", "--pricing", "spot"});
  const auto price = [](const Json& report) {
    const Json& replay = report.at("plans")[0].at("replay");
    return replay.at("usd_total").get<double>() / replay.at("hours_total").get<double>();
  };
  CHECK(price(dear) == Approx(32.77));  // the rows of the catalog
  CHECK(price(spot) == Approx(3.6047));
  CHECK(spot.at("plans")[0].at("replay").at("interruptions").at("hours_between") == Approx(10));
  const auto refused = [&](const std::string& kind, const Words& parts) {
    check_refused(place.run(small_search({"--cluster", "c.yaml", "--pricing", kind})), parts);
  };
  refused("spt", {"--pricing", "did you mean 'spot'?"});
  refused("reserved_1y", {"--pricing", "Standard_ND96amsr_A100_v4", "the key price with the amount"});
}

}  // namespace orrery
