// Searches that find nothing, and plans that cannot run, say why and what would help.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

// Two nodes of two GPUs, each GPU with a NIC of its own.
std::string cluster_with(const std::string& more) {
  return "name: c\ngroups:\n  - {name: a, gpu: A100-SXM4-80GB, gpus_per_node: 2, count: 0..2, nics_per_node: "
         "2, "
         "nic_bandwidth: 200Gbps}\n" +
         more;
}

std::string run_without_plan(const Workplace& place, const Words& words) {
  const ProgramResult result = place.run(words);
  CAPTURE(result.err, result.out);
  CHECK(result.code == 1);
  return result.out;
}

std::string answer_of(const Workplace& place, const Words& more) {
  return run_without_plan(place, small_search(more));
}

// The sizes in GPUs of the plans of a search where these links are down.
std::vector<int> world_sizes(const Workplace& place, const std::string& links) {
  place.write("c.yaml", cluster_with("links: [{name: \"" + links + "\", state: down}]\n"));
  std::vector<int> sizes;
  place.write("contexts.yaml",
              "context_parallel_size: [1, 2, 4]\nmicro_batch_size: 1\nrecompute_granularity: none\n");
  const Json report =
      run_json(place, small_search({"--cluster", "c.yaml", "--top", "100", "--space", "contexts.yaml"}));
  for (const Json& plan : report.at("plans")) sizes.push_back(plan.at("strategy").at("world_size"));
  return sizes;
}

// Mixed replicas: GPT-2 of 24 layers on one V100 node and one H100 node of two GPUs each.
struct Mix {
  std::string model = "gpt2-345m", nodes = "[1, 1]", first = "0", second = "1";
  int tensor = 2, layers = 24, shares = 12;  // microbatches of the first replica
};

std::string mix_file(const Workplace& place, const Mix& mix) {
  place.write("mixed.yaml",
              "name: mixed\ngroups:\n"
              "  - {name: fast, gpu: H100-SXM5-80GB, gpus_per_node: 2, count: 1, nic_bandwidth: 100Gbps}\n"
              "  - {name: slow, gpu: V100-SXM2-16GB, gpus_per_node: 2, count: 1, nic_bandwidth: 100Gbps}\n");
  return place.write("mix.yaml", "model: " + mix.model +
                                     "\ncluster: mixed.yaml\ndata: 2\nmicro_batch: 1\nglobal_batch: 16\n"
                                     "sequence: 1024\ntype: fp16\nschedule: 1f1b\nnodes: " +
                                     mix.nodes + "\nstages: [{tensor: " + std::to_string(mix.tensor) +
                                     "}]\nparts: [[0, " + std::to_string(mix.layers) +
                                     "]]\nreplicas:\n  - {count: 1, groups: [" + mix.first +
                                     "], microbatches: " + std::to_string(mix.shares) +
                                     "}\n  - {count: 1, groups: [" + mix.second + "], microbatches: 4}\n");
}

ProgramResult explained(const Workplace& place, const Mix& mix) {
  const std::string plan = mix_file(place, mix);
  return place.run({"search", "--model", mix.model, "--cluster", "mixed.yaml", "--sequence", "1024",
                    "--global-batch", "16", "--explain", plan});
}

}  // namespace

TEST_CASE("a search that rules empty names the rule that dropped most") {
  const Workplace place;
  const std::string answer =
      answer_of(place, {"--rule", "$world_size > 0", "--rule", "$micro_batch_size > 9"});
  CHECK_THAT(answer, contains_text("most of them by $world_size > 0\n"));
  CHECK_THAT(answer, contains_text("32 candidates, 0 feasible; "));
  CHECK_FALSE(contains_text("exact recurrence").match(answer));
}

TEST_CASE("a budget that no plan meets is answered with the cheapest plan and its price") {
  const Workplace place;
  const Words job{"--tokens", "1T", "--top", "100"};
  const Json report = run_json(place, small_search(job));
  double cheapest = 1e300;
  for (const Json& plan : report.at("plans"))
    cheapest = std::min(cheapest, plan.at("estimate").at("usd_total").get<double>());
  char price[32];
  std::snprintf(price, sizeof price, "%.2f USD on", cheapest);
  const std::string answer = answer_of(place, {"--tokens", "1T", "--budget", "1 USD"});
  CHECK_THAT(answer, contains_text("and the cheapest "));
  CHECK_THAT(answer, contains_text(price));
}

// 115,000 candidates with a shape: they are pruned. What is asked for without limits is their own search.
TEST_CASE("limits that nothing in a large space meets are seen by bounds, and the cheapest plan is said",
          "[slow]") {
  const Workplace place;
  Words words{"search",
              "--model",
              "llama2-70b",
              "--cluster",
              "demo-a100-h100",
              "--sequence",
              "4096",
              "--global-batch",
              "1024",
              "--tokens",
              "1T",
              "--top",
              "1",
              "-o",
              "out"};
  const Json open = run_json(place, words);
  double cheapest = 1e300;
  for (const Json& plan : open.at("plans"))
    cheapest = std::min(cheapest, plan.at("estimate").at("usd_total").get<double>());
  words.insert(words.end(), {"--budget", std::to_string(cheapest * 0.9) + " USD"});
  const std::string answer = run_without_plan(place, words);
  CHECK_THAT(answer, contains_text("cannot be within the limits whatever their memory"));
  char price[32];
  std::snprintf(price, sizeof price, "%.2f USD on", cheapest);
  CHECK_THAT(answer, contains_text(price));
}

TEST_CASE("a budget beside nodes without a price says which") {
  const Workplace place;
  place.write("c.yaml", cluster_with(""));
  const std::string answer = answer_of(place, {"--cluster", "c.yaml", "--tokens", "1T", "--budget", "1 USD"});
  CHECK_THAT(answer, contains_text("no price, so the budget cannot be checked: group a\n"));
  CHECK_THAT(answer, contains_text("a budget needs `price` in the cluster file for: a\n"));
}

TEST_CASE("a space without any candidate says what it left to choose from") {
  const Workplace place;
  place.write("three.yaml", "tensor_model_parallel_size: 3\ncontext_parallel_size: 1\n");
  const std::string answer = answer_of(place, {"--space", "three.yaml"});
  CHECK_THAT(answer, contains_text("0 candidates"));
  CHECK_THAT(answer, contains_text("(a100: 2 of 2 GPUs)"));
  CHECK_THAT(answer, contains_text("T: 3, C: 1 "));
}

TEST_CASE("plans keep off links that are down") {
  const Workplace place;
  // Without NICs a plan has one node; a group with a part of a node fills it, so two GPUs.
  for (const int size : world_sizes(place, "a.node*.nic*")) CHECK(size == 2);
  // Without NVLink whole nodes of two GPUs can only be filled by GPUs that talk.
  place.write("c.yaml", cluster_with("links: [{name: \"*.gpu*\", state: down}]\n"));
  const std::string answer = answer_of(place, {"--cluster", "c.yaml"});
  CHECK_THAT(answer, contains_text("a link that the plan needs is down"));
  CHECK(!world_sizes(place, "a.node1.nic0.up").empty());
}

TEST_CASE("a mix of replicas that cannot run is explained by its reason") {
  const Workplace place;
  struct Row {
    Mix mix;
    std::string reason;
  };
  const auto row = GENERATE(values<Row>({
      {{.shares = 11}, "the replicas run 15 microbatches of 1 sequences in all; the global batch has 16"},
      {{.second = "0"}, "the stages on group fast need 4 GPUs; 1 nodes have 2"},
      {{.tensor = 4}, "the stages on group fast need 4 GPUs; 1 nodes have 2"},
      {{.nodes = "[1, 0]"},
       "0 nodes of group slow are not between 1 and 1 of the cluster's count (0..n lets a plan leave nodes "
       "out)"},
      {{.layers = 23}, "the parts hold 23 layers; the model has 24"},
  }));
  const ProgramResult result = explained(place, row.mix);
  CAPTURE(result.err, result.out);
  CHECK(result.code == 1);
  CHECK_THAT(result.out, contains_text("It is infeasible: " + row.reason + "\nNo change is known"));
}

TEST_CASE("a mix of replicas on node groups that the cluster does not have is refused") {
  const Workplace place;
  check_refused(explained(place, {.second = "7"}), {"mix.yaml", "node group 7", "from 0 to 1"});
  check_refused(explained(place, {.first = "65536"}), {"mix.yaml", "node group 65536"});
  check_refused(explained(place, {.nodes = "[1]"}), {"mix.yaml", "`nodes`: 1", "2"});
}

TEST_CASE("a mix of replicas out of memory on one kind names its GPU, and what it takes with each change") {
  const Workplace place;
  const ProgramResult result = explained(place, {.model = "gpt2-1.5b", .tensor = 1, .layers = 48});
  CHECK(result.code == 1);
  CHECK_THAT(result.out, contains_text("usable on V100-SXM2-16GB: too big"));
  CHECK_THAT(result.out, contains_text("use_distributed_optimizer: stage 0 needs"));
}

}  // namespace orrery
