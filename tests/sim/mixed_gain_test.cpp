// Planning for unlike GPUs is worth something, and what peers get wrong about them is right here: lower
// bandwidth between nodes counts, stages are priced at their own speed, memory is that of one GPU.
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
  // Peaks differ by 989 / 65 and memory bandwidths by 3350 / 300: neither alone decides, both are above 5.
  CHECK(slow > 5 * fast);
}

TEST_CASE("memory is judged on each GPU of a stage, not on their sum") {
  const Workplace place;
  // Weights, gradients and states of 1.5 billion parameters take 18 bytes each, 28 GB: four 16 GB cards
  // together hold them, none does alone, and with one way nothing is split.
  place.write("c.yaml",
              "name: c\ngroups: [{name: t4, gpu: T4, gpus_per_node: 4, count: 1, nic_bandwidth: 50Gbps}]\n");
  place.write("space.yaml",
              "tensor_model_parallel_size: [1, 4]\npipeline_model_parallel_size: 1\nmicro_batch_size: 1\n"
              "recompute_granularity: full\nuse_distributed_optimizer: false\n");
  const Words words =
      small_search({"--cluster", "c.yaml", "--model", "gpt2-1.5b", "--top", "40", "--explain"});
  const Json report = run_json(place, words);
  CHECK(report.at("space").at("rejected").at("memory").get<int>() > 0);
  std::set<int> tensor;
  for (const Json& plan : report.at("plans"))
    tensor.insert(plan.at("strategy").at("tensor_model_parallel_size").get<int>());
  CHECK(tensor == std::set<int>{4});
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

TEST_CASE("a budget binds on all of an iteration, exposed communication included") {
  const Workplace place;
  place.write("c.yaml", "name: c\ngroups:\n" + group("a", "A100-SXM4-80GB", "1Gbps") +
                            group("b", "A100-SXM4-80GB", "1Gbps"));
  const Words words{"--cluster", "c.yaml", "--rule", "$pipeline_model_parallel_size > 1 || $world_size < 4",
                    "--tokens",  "1G"};
  const Json plan = run_json(place, small_search(words)).at("plans")[0];
  const Json& replay = plan.at("replay");
  const double total = replay.at("usd_total"), iteration = replay.at("iteration_s");
  const double exposed = replay.at("stages")[0].at("exposed_dp_s");
  REQUIRE(exposed > 0.2 * iteration);
  // Enough for its compute, not for its gradients.
  Words tight = words;
  tight.insert(tight.end(), {"--budget", std::to_string(total * (1 - 0.5 * exposed / iteration)) + " USD"});
  const ProgramResult result = place.run(small_search(tight));
  CHECK(result.code == 1);
  CHECK(result.out.find("over the budget") != std::string::npos);
  CHECK(result.out.find("and the cheapest") != std::string::npos);
}

}  // namespace orrery
