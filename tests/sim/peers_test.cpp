// What peers get wrong, each as a claim about us. From runs of AMP, Metis and Sailor: bandwidth between nodes
// that is read and ignored, a cost objective that knows no pipelines, budgets without the time of
// communication, memory summed over devices, one averaged profile for all GPUs, a gradient ring judged by one
// of its links.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/catch.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

std::string nodes(const std::string& name, const std::string& gpu, int each, int count,
                  const std::string& nic) {
  return "  - {name: " + name + ", gpu: " + gpu + ", gpus_per_node: " + std::to_string(each) +
         ", count: " + std::to_string(count) + ", nics_per_node: " + std::to_string(each) +
         ", nic_bandwidth: " + nic + ", price: 3 USD/h}\n";
}

void write_cluster(const Workplace& place, const std::string& groups) {
  place.write("c.yaml", "name: c\ngroups:\n" + groups);
}

Words search_words(Words more) {
  more.insert(more.end(), {"--cluster", "c.yaml"});
  return small_search(more);
}

// A pipeline without copies on the node groups that are named, equal halves of the model.
void write_halves(const Workplace& place, const std::string& model, int layers,
                  const std::vector<int>& groups, const std::string& nodes_used) {
  const std::string half = std::to_string(layers / 2);
  place.write("plan.yaml", "model: " + model +
                               "\ncluster: c.yaml\nmicro_batch: 1\nglobal_batch: 16\nsequence: 1024\n"
                               "type: fp16\nschedule: 1f1b\nnodes: " +
                               nodes_used + "\nstages: [{group: " + std::to_string(groups[0]) +
                               ", tensor: 1}, {group: " + std::to_string(groups[1]) +
                               ", tensor: 1}]\nparts: [[0, " + half + "], [" + half + ", " + half + "]]\n");
}

// Under CUDA graphs: no host holds up what is computed.
std::vector<double> compute_of_stages(const Workplace& place) {
  place.write("graphs.yaml", "host: {forward: 0us, backward: 0us, collective: 0us}\n");
  std::vector<double> seconds;
  const Json report = run_json(place, {"replay", "--plan", "plan.yaml", "--stack", "graphs.yaml"});
  for (const Json& stage : report.at("stages")) seconds.push_back(stage.at("compute_s"));
  return seconds;
}

}  // namespace

// Metis reads the bandwidth between nodes and does not use it: a tenth of it changes nothing there.
TEST_CASE("a slower network between nodes changes which plan is best, not only its time") {
  const Workplace place;
  std::set<std::string> best;
  for (const std::string network : {"400Gbps", "1Gbps"}) {
    write_cluster(place, nodes("a", "A100-SXM4-80GB", 2, 2, network));
    const Json plan = run_json(place, search_words({"--rule", "$world_size < 4"})).at("plans")[0];
    best.insert(plan.at("strategy").at("data_parallel_size").dump() + " replicas of " +
                std::to_string(plan.at("stages").size()) + " stages");
  }
  CHECK(best.size() == 2);
}

// Sailor's cost objective returns plans of one stage only.
TEST_CASE("the cheapest plan is a pipeline where the network makes one the cheapest") {
  const Workplace place;
  // Fixed counts: money is time. Gradients over 1 Gbit/s cost more than activations.
  write_cluster(place,
                nodes("a", "A100-SXM4-80GB", 2, 1, "1Gbps") + nodes("b", "A100-SXM4-80GB", 2, 1, "1Gbps"));
  const Json report = run_json(place, search_words({"--mode", "cost", "--budget", "1e6 USD", "--tokens", "1G",
                                                    "--rule", "$world_size < 4"}));
  const Json& plan = report.at("plans")[report.at("answers").at("cheapest").get<std::size_t>() - 1];
  CHECK(plan.at("strategy").at("pipeline_model_parallel_size").get<int>() > 1);
}

// Sailor's budget inside the search counts a part of the time. Here gradients over 1 Gbit/s take longer than
// all that is computed: a budget that would pay for the computing is too small, and one above the whole is
// not.
TEST_CASE("a budget binds on the whole price, communication that is exposed included") {
  const Workplace place;
  write_cluster(place, nodes("a", "A100-SXM4-80GB", 1, 2, "1Gbps"));
  const Words job{"--rule", "$world_size < 2", "--rule", "$pipeline_model_parallel_size > 1", "--tokens",
                  "1G"};
  const auto with = [&](Words more) {
    more.insert(more.end(), job.begin(), job.end());
    return search_words(more);
  };
  const Json plan = run_json(place, with({})).at("plans")[0];
  const Json stage = run_json(place, {"replay", "--plan", "out/plan-01.yaml"}).at("stages")[0];
  const double whole = plan.at("estimate").at("usd_total"), iteration = plan.at("estimate").at("iteration_s");
  const double computing = whole * stage.at("compute_s").get<double>() / iteration;
  REQUIRE(computing < 0.5 * whole);
  const auto budget = [](double dollars) { return Words{"--budget", std::to_string(dollars) + " USD"}; };
  const ProgramResult refused = place.run(with(budget(std::sqrt(computing * whole))));
  CHECK(refused.code == 1);
  CHECK(refused.out.find("over the budget") != std::string::npos);
  // What it says instead is the plan of the search without a budget, and its price.
  char price[32];
  std::snprintf(price, sizeof price, "%.2f USD", whole);
  CHECK(refused.out.find("and the cheapest") != std::string::npos);
  CHECK(refused.out.find(price) != std::string::npos);
  CHECK(run_json(place, with(budget(whole * 1.001))).at("plans")[0].at("strategy") == plan.at("strategy"));
}

// Metis sums the memory of a stage's devices. Halves of GPT-2 1.5B take 18 to 20 bytes for each of 0.78
// billion parameters, 14 GB and more: far less than an 80 GB and a 16 GB card have together, too much for the
// latter.
TEST_CASE("memory is judged for each GPU, not in sum over unlike ones") {
  const Workplace place;
  write_cluster(place, nodes("large", "H100-SXM5-80GB", 1, 1, "100Gbps") +
                           nodes("small", "V100-SXM2-16GB", 1, 1, "100Gbps"));
  write_halves(place, "gpt2-1.5b", 48, {0, 1}, "[1, 1]");
  Words words = search_words({"--model", "gpt2-1.5b", "--explain", "plan.yaml"});
  const ProgramResult explained = place.run(words);
  CAPTURE(explained.out, explained.err);
  CHECK(explained.code == 1);
  CHECK(explained.out.find("stage 1 needs") != std::string::npos);
  CHECK(explained.out.find("V100-SXM2-16GB") != std::string::npos);
  // The search gives the small card less than half.
  const Json report = run_json(place, search_words({"--model", "gpt2-1.5b", "--rule", "$world_size < 2"}));
  for (const Json& plan : report.at("plans")) {
    for (const Json& stage : plan.at("stages")) {
      const bool small = stage.at("gpu") == "V100-SXM2-16GB";
      CHECK(stage.at("memory_gib").get<double>() < (small ? 16 : 80));
      if (small) CHECK(stage.at("layers")[1].get<int>() < 24);
    }
  }
}

// AMP prices every stage by one profile, averaged over the kinds of GPU; Metis and Astra's formula know the
// kinds.
TEST_CASE("a stage on unlike GPUs computes as long as it does among its like, not at an average") {
  const Workplace place;
  write_cluster(place, nodes("fast", "H100", 2, 1, "400Gbps") + nodes("slow", "T4", 2, 1, "400Gbps"));
  const auto halves_on = [&](std::vector<int> groups) {
    write_halves(place, "gpt2-345m", 24, groups, "[1, 1]");
    return compute_of_stages(place);
  };
  const std::vector<double> fast = halves_on({0, 0}), slow = halves_on({1, 1}), mixed = halves_on({0, 1});
  CHECK(mixed[0] == Approx(fast[0]).epsilon(1e-9));
  CHECK(mixed[1] == Approx(slow[1]).epsilon(1e-9));
  // Peaks differ by 15 and memory bandwidths by 11; launches of small kernels, alike on both, leave less.
  CHECK(mixed[1] > 3 * mixed[0]);
}

// AMP looks at the last link of a gradient ring only.
TEST_CASE("a gradient ring is as slow as its slowest link, wherever in the ring that is") {
  const Workplace place;
  place.write("plan.yaml",
              "model: gpt2-345m\ncluster: c.yaml\ndata: 4\nmicro_batch: 1\nglobal_batch: 16\n"
              "sequence: 1024\nnodes: [4]\nstages: [{group: 0, tensor: 1}]\nparts: [[0, 24]]\n");
  const auto seconds = [&](const std::string& links) {
    write_cluster(place, nodes("a", "A100-SXM4-80GB", 1, 4, "100Gbps") + links);
    return run_json(place, {"replay", "--plan", "plan.yaml"}).at("iteration_s").get<double>();
  };
  const double even = seconds("");
  std::vector<double> slow;
  for (int node = 0; node < 4; ++node)
    slow.push_back(
        seconds("links:\n  - {name: a.node" + std::to_string(node) + ".nic0.*, bandwidth: 0.1x}\n"));
  for (const double time : slow) {
    CHECK(time > 1.5 * even);
    CHECK(time == Approx(slow.front()).epsilon(1e-6));
  }
}

}  // namespace orrery
