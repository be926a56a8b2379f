// What peers get wrong about unlike GPUs: lower bandwidth between nodes counts, stages are priced at their
// own speed.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/catch.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

std::string group(const std::string& name, const std::string& gpu, const std::string& nic) {
  return "  - {name: " + name + ", gpu: " + gpu +
         ", gpus_per_node: 2, count: 1, nics_per_node: 2, nic_bandwidth: " + nic + ", price: 3 USD/h}\n";
}

Json run_json(const Workplace& place, Words words) {
  words.insert(words.end(), {"--json", "--quiet"});
  const ProgramResult result = place.run(words);
  CAPTURE(result.err, words);
  REQUIRE(result.code == 0);
  return Json::parse(result.out);
}

Json gain(const Workplace& place) {
  Words words = small_search({"--cluster", "c.yaml", "--mixed", "--top", "5"});
  words.front() = "compare";
  words.erase(std::find(words.begin(), words.end(), "-o"), std::find(words.begin(), words.end(), "-o") + 2);
  return run_json(place, words);
}

}  // namespace

TEST_CASE(
    "the heterogeneous plan is never behind in the estimate, and ahead in the replay on fast networks") {
  const auto [fast, slow, nic] = GENERATE(table<std::string, std::string, std::string>(
      {{"A100-SXM4-40GB", "V100-SXM2-32GB", "200Gbps"}, {"H100", "A100-SXM4-80GB", "400Gbps"}}));
  const Workplace place;
  place.write("c.yaml", "name: c\ngroups:\n" + group("fast", fast, nic) + group("slow", slow, nic));
  const Json ways = gain(place).at("ways");
  REQUIRE(ways.size() == 4);
  CHECK(ways[0].at("way") == "heterogeneous");
  CHECK(ways[2].at("way") == "fast alone");
  CHECK(ways[3].at("way") == "all as slow");
  for (std::size_t i = 1; i < ways.size(); ++i) {
    CAPTURE(ways[i].dump());
    CHECK(ways[0].at("estimate_s").get<double>() <= ways[i].at("estimate_s").get<double>() * (1 + 1e-9));
    CHECK(ways[0].at("iteration_s").get<double>() <= ways[i].at("iteration_s").get<double>() * (1 + 1e-9));
  }
  // Two GPUs more, of half the speed or less: a third of the time would be the most there is to gain.
  CHECK(ways[0].at("iteration_s").get<double>() < 0.95 * ways[2].at("iteration_s").get<double>());
}

TEST_CASE("one kind of GPU has nothing to mix") {
  const Workplace place;
  Words words = small_search({"--mixed"});
  words.front() = "compare";
  check_refused(place.run(words), {"--mixed", "at least two kinds"});
}

TEST_CASE("each stage computes at the speed of its own GPU") {
  const Workplace place;
  place.write("c.yaml",
              "name: c\ngroups:\n" + group("fast", "H100", "400Gbps") + group("slow", "T4", "400Gbps"));
  // The same twelve layers on either kind, as a plan that takes them for alike would have it.
  place.write(
      "plan.yaml",
      "model: gpt2-345m\ncluster: c.yaml\ndata: 2\nmicro_batch: 1\nglobal_batch: 16\nsequence: 1024\n"
      "type: fp16\nschedule: 1f1b\nnodes: [1, 1]\nstages: [{group: 0, tensor: 1}, {group: 1, tensor: 1}]\n"
      "parts: [[0, 12], [12, 12]]\n");
  const Json stages = run_json(place, {"replay", "--plan", "plan.yaml"}).at("stages");
  const double fast = stages[0].at("compute_s"), slow = stages[1].at("compute_s");
  // Peaks differ by 15 and memory bandwidths by 11; launches of small kernels, alike on both, leave less.
  CHECK(slow > 3 * fast);
}

TEST_CASE("a slower network between nodes changes which plan is best, not only its time") {
  const Workplace place;
  std::set<std::string> best;
  for (const std::string network : {"400Gbps", "1Gbps"}) {
    place.write("c.yaml",
                "name: c\ngroups:\n  - {name: a, gpu: A100-SXM4-80GB, gpus_per_node: 2, count: 2, "
                "nics_per_node: 2, nic_bandwidth: " +
                    network + "}\n");
    const Json plan =
        run_json(place, small_search({"--cluster", "c.yaml", "--rule", "$world_size < 4"})).at("plans")[0];
    best.insert(plan.at("strategy").at("data_parallel_size").dump() + " replicas of " +
                std::to_string(plan.at("stages").size()) + " stages");
  }
  CHECK(best.size() == 2);
}

TEST_CASE("the cheapest plan is a pipeline where the network makes one the cheapest") {
  const Workplace place;
  // Fixed counts: money is time. Gradients over 1 Gbit/s cost more than activations.
  place.write("c.yaml", "name: c\ngroups:\n" + group("a", "A100-SXM4-80GB", "1Gbps") +
                            group("b", "A100-SXM4-80GB", "1Gbps"));
  const Json report =
      run_json(place, small_search({"--cluster", "c.yaml", "--mode", "cost", "--budget", "1e6 USD",
                                    "--tokens", "1G", "--rule", "$world_size < 4"}));
  const Json& plan = report.at("plans")[report.at("answers").at("cheapest").get<std::size_t>() - 1];
  CHECK(plan.at("strategy").at("pipeline_model_parallel_size").get<int>() > 1);
}

}  // namespace orrery
