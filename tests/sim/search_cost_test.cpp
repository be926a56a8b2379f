// Modes and limits of a search: kinds a plan, budget and deadline on the whole training, bandwidth that
// counts.
#include <nlohmann/json.hpp>
#include <set>

#include "costmodels/trust/residuals.hpp"
#include "tests/catch.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Json found(const Workplace& place, Words more) {
  if (std::find(more.begin(), more.end(), "--tokens") == more.end())
    more.insert(more.end(), {"--tokens", "1G"});
  return run_json(place, small_search(more));
}

// Fast and dear nodes beside slow and cheap ones.
std::string two_kinds(const std::string& network) {
  return "name: kinds\ngroups:\n"
         "  - {name: fast, gpu: H100-SXM5-80GB, gpus_per_node: 2, count: 0..2, nic_bandwidth: " +
         network +
         ", price: 20 USD/h}\n"
         "  - {name: slow, gpu: V100-SXM2-32GB, gpus_per_node: 2, count: 0..2, nic_bandwidth: " +
         network + ", price: 2 USD/h}\n";
}

std::set<std::string> kinds_of(const Json& plan) {
  std::set<std::string> kinds;
  for (const Json& stage : plan.at("stages")) kinds.insert(stage.at("gpu"));
  return kinds;
}

double least(const Json& json, const char* field) {
  double value = std::numeric_limits<double>::infinity();
  for (const Json& plan : json.at("plans"))
    value = std::min(value, plan.at("replay").at(field).get<double>());
  return value;
}

}  // namespace

TEST_CASE("homogeneous plans have one GPU kind, and heterogeneous ones may have two") {
  const Workplace place;
  place.write("kinds.yaml", two_kinds("200Gbps"));
  const Json one = found(place, {"--cluster", "kinds.yaml", "--mode", "homogeneous", "--top", "12"});
  for (const Json& plan : one.at("plans")) CHECK(kinds_of(plan).size() == 1);
  const Json two = found(place, {"--cluster", "kinds.yaml", "--mode", "heterogeneous", "--top", "12"});
  bool mixed = false;
  for (const Json& plan : two.at("plans")) mixed = mixed || kinds_of(plan).size() == 2;
  CHECK(mixed);
  // What one kind can do, two can as well.
  CHECK(least(two, "iteration_s") <= least(one, "iteration_s") * (1 + 1e-9));
}

TEST_CASE("memory stays below the card of each stage") {
  const Workplace place;
  place.write("kinds.yaml", two_kinds("200Gbps"));
  const Json report = found(place, {"--cluster", "kinds.yaml", "--top", "12"});
  for (const Json& plan : report.at("plans")) {
    for (const Json& stage : plan.at("stages")) {
      CHECK(stage.at("memory_gib").get<double>() < (stage.at("gpu") == "V100-SXM2-32GB" ? 32 : 80));
    }
  }
}

TEST_CASE(
    "--memory-risk leaves out plans of a larger chance to run out, as usable_memory of the cluster does") {
  const Workplace place;
  const auto cluster = [&](const std::string& keys) {
    return "{name: c, groups: [{name: a, gpu: V100-SXM2-32GB, gpus_per_node: 2, count: 2, "
           "nic_bandwidth: 200Gbps" +
           keys + "}]}";
  };
  place.write("all.yaml", cluster(""));
  const auto search = [&](const std::string& file, Words more) {
    more.insert(more.end(), {"--cluster", file, "--model", "gpt2-1.5b", "--top", "20"});
    return found(place, more);
  };
  const auto largest_chance = [](const Json& json) {
    double chance = 0;
    for (const Json& plan : json.at("plans"))
      chance = std::max(chance, plan.at("out_of_memory_chance").get<double>());
    return chance;
  };
  const Json all = search("all.yaml", {});
  const double risk = largest_chance(all) / 2;
  REQUIRE(risk > 0);
  char text[64];
  std::snprintf(text, sizeof text, "%.17g", risk);
  const Json safe = search("all.yaml", {"--memory-risk", text});
  CHECK(largest_chance(safe) <= risk);
  CHECK(least(safe, "iteration_s") >= least(all, "iteration_s"));
  std::snprintf(text, sizeof text, ", usable_memory: %.17gGiB",
                32 * built_in_residuals().out_of_memory.fullness_at(risk));
  place.write("limited.yaml", cluster(text));
  const Json limited = search("limited.yaml", {});
  REQUIRE(limited.at("plans").size() == safe.at("plans").size());
  for (std::size_t i = 0; i < limited.at("plans").size(); ++i)
    CHECK(limited.at("plans").at(i).at("strategy") == safe.at("plans").at(i).at("strategy"));
  CHECK(limited.at("space").at("rejected") == safe.at("space").at("rejected"));
}

TEST_CASE("budget and deadline bind on the whole training") {
  const Workplace place;
  place.write("kinds.yaml", two_kinds("200Gbps"));
  const Words cluster{"--cluster", "kinds.yaml", "--top", "12"};
  const Json all = found(place, cluster);
  const double cheapest = least(all, "usd_total"), fastest = least(all, "hours_total");
  const auto limited = [&](Words limits) {
    limits.insert(limits.end(), cluster.begin(), cluster.end());
    return found(place, limits);
  };
  const std::string budget = std::to_string(cheapest * 1.3) + " USD";
  const std::string deadline = std::to_string(fastest * 1.2) + "h";
  const Json within_budget = limited({"--mode", "cost", "--budget", budget});
  CHECK(!within_budget.at("plans").empty());
  for (const Json& plan : within_budget.at("plans")) {
    CHECK(plan.at("replay").at("usd_total").get<double>() <= cheapest * 1.3 + 1e-6);
  }
  const Json in_time = limited({"--mode", "cost", "--deadline", deadline});
  for (const Json& plan : in_time.at("plans")) {
    CHECK(plan.at("replay").at("hours_total").get<double>() <= fastest * 1.2 + 1e-6);
  }
  CHECK(in_time.at("space").at("rejected").at("budget").get<int>() > 0);
  // Twice the tokens: nothing is in time, or nearly so.
  Words twice = small_search({"--cluster", "kinds.yaml", "--deadline", std::to_string(fastest * 1.5) + "h"});
  twice.insert(twice.end(), {"--tokens", "2G"});
  const ProgramResult late = place.run(twice);
  CHECK(late.code == 1);
  CHECK(late.out.find("without limits the fastest plan takes") != std::string::npos);
  CHECK(late.out.find("and the cheapest") != std::string::npos);
}

TEST_CASE("cost mode returns pipelines and a front of time against money") {
  const Workplace place;
  place.write("kinds.yaml", two_kinds("200Gbps"));
  const Json json =
      found(place, {"--cluster", "kinds.yaml", "--mode", "cost", "--budget", "1e6 USD", "--top", "12"});
  bool pipeline = false;
  for (const Json& plan : json.at("plans")) pipeline = pipeline || plan.at("stages").size() > 1;
  CHECK(pipeline);
  const Json& front = json.at("pareto");
  REQUIRE(front.size() >= 2);
  for (std::size_t i = 1; i < front.size(); ++i) {
    const Json& before = json.at("plans").at(front[i - 1].get<std::size_t>() - 1).at("replay");
    const Json& next = json.at("plans").at(front[i].get<std::size_t>() - 1).at("replay");
    CHECK(next.at("hours_total").get<double>() > before.at("hours_total").get<double>());
    CHECK(next.at("usd_total").get<double>() < before.at("usd_total").get<double>());
  }
}

TEST_CASE("a group without a price has no place in a budget, and says so") {
  const Workplace place;
  place.write("c.yaml",
              "{name: x, groups: [{name: a, gpu: A100-SXM4-80GB, gpus_per_node: 2, nic_bandwidth: 200Gbps, "
              "count: 2}]}");
  const ProgramResult result = place.run(
      small_search({"--cluster", "c.yaml", "--tokens", "1G", "--mode", "cost", "--budget", "1000 USD"}));
  CHECK(result.code == 1);
  CHECK(result.out.find("no price, so the budget cannot be checked: group a") != std::string::npos);
}

TEST_CASE("a slower network between nodes makes the best plan slower") {
  const Workplace place;
  double before = 0;
  for (const std::string network : {"400Gbps", "10Gbps", "1Gbps"}) {
    std::string cluster = kTwoNodes;
    cluster.replace(cluster.find("200Gbps"), 7, network);
    place.write("two.yaml", cluster);
    // Plans that stay within one node are dropped: the network would not matter to them.
    const double time = least(found(place, {"--rule", "$world_size < 4", "--top", "4"}), "iteration_s");
    CHECK(time > before);
    before = time;
  }
}

TEST_CASE("a search that its rules leave nothing says which rule dropped most") {
  const Workplace place;
  const ProgramResult result = place.run(
      small_search({"--rule", "$world_size > 1000", "--rule", "$tensor_model_parallel_size < 100"}));
  CHECK(result.code == 1);
  CHECK(result.out.find("most of them by $tensor_model_parallel_size < 100") != std::string::npos);
}

// 2 nodes of 2: candidates on all 4 GPUs fall to the first rule, the others to the second.
TEST_CASE("what each rule of several files dropped is counted, in the order of the files") {
  const Workplace place;
  place.write("one.txt", "# all of them\n$world_size == 4\n");
  place.write("two.txt", "$world_size < 4 && $seq_length > 0\n");
  Words words = small_search({"--rules", "one.txt", "--rules", "two.txt"});
  const ProgramResult text = place.run(words);
  CHECK(text.code == 1);
  words.insert(words.end(), {"--json", "--quiet"});
  const ProgramResult result = place.run(words);
  CHECK(result.code == 1);
  const Json space = Json::parse(result.out).at("space");
  std::size_t dropped = 0;
  for (const std::string rule : {"rule: $world_size == 4", "rule: $world_size < 4 && $seq_length > 0"}) {
    CAPTURE(text.out, rule);
    const std::size_t count = space.at("reasons").at(rule);
    CHECK(count > 0);
    dropped += count;
    CHECK(text.out.find("  " + std::to_string(count) + "  " + rule + "\n") != std::string::npos);
  }
  CHECK(dropped == space.at("rejected").at("rule"));
  CHECK(space.at("evaluated") == 0);
}

TEST_CASE("ranges that contradict themselves and rules that are wrong are refused at their place") {
  const Workplace place;
  std::string cluster = kTwoNodes;
  cluster.replace(cluster.find("count: 2"), 8, "count: 5..2");
  place.write("range.yaml", cluster);
  check_refused(place.run(small_search({"--cluster", "range.yaml"})),
                {"range.yaml:3", "'5..2'", "first number is not above its second"});
  place.write("layers.yaml", "recompute_method: block\nrecompute_num_layers: 8..2\n");
  check_refused(place.run(small_search({"--space", "layers.yaml"})),
                {"layers.yaml:2", "'8..2'", "first number is not above its second"});
  place.write("good.txt", "$world_size > 64\n");
  place.write("bad.txt", "# sizes\n$world_size > 64 || $micro_batch_sise > 2\n");
  check_refused(place.run(small_search({"--rules", "good.txt", "--rules", "bad.txt"})),
                {"bad.txt:2:21:", "did you mean 'micro_batch_size'"});
}

TEST_CASE("--gpus caps all groups together, and not below what is paid for anyway") {
  const Workplace place;
  place.write("kinds.yaml", two_kinds("200Gbps"));
  const Json on_four = found(place, {"--cluster", "kinds.yaml", "--gpus", "4"});
  CHECK(!on_four.at("plans").empty());
  for (const Json& plan : on_four.at("plans")) {
    CHECK(plan.at("strategy").at("world_size").get<int>() <= 4);
  }
  check_refused(place.run(small_search({"--gpus", "3"})), {"--gpus", "at least 4"});  // 2 nodes of 2
}

TEST_CASE("rules drop what they match, and a space holds the search within its choices") {
  const Workplace place;
  place.write("rules.txt", "# no pipelines\n$pipeline_model_parallel_size > 1\n");
  const Json ruled = found(place, {"--rules", "rules.txt", "--top", "12"});
  for (const Json& plan : ruled.at("plans")) {
    CHECK(plan.at("stages").size() == 1);
  }
  const Json all = found(place, {"--top", "12"});
  for (const Json& plan : all.at("plans")) {
    CHECK(plan.at("strategy").at("micro_batch_size").get<int>() <= 2);
    CHECK(plan.at("strategy").at("sequence_parallel") == false);
  }
}

}  // namespace orrery
