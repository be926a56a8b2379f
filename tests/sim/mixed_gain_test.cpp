// What planning for unlike GPUs is worth, beside simpler ways to plan.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/replaced.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

std::string group(const std::string& name, const std::string& gpu, const std::string& nic) {
  return "  - {name: " + name + ", gpu: " + gpu +
         ", gpus_per_node: 2, count: 1, nics_per_node: 2, nic_bandwidth: " + nic + ", price: 3 USD/h}\n";
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

// Nodes of 6 and 3 USD/h.
TEST_CASE("a kind alone rents its own nodes, and the table says so") {
  const Workplace place;
  place.write("c.yaml", "name: c\ngroups:\n" +
                            test::replaced(group("fast", "H100", "400Gbps"), "price: 3", "price: 6") +
                            group("slow", "A100-SXM4-80GB", "400Gbps"));
  const Json ways = gain(place).at("ways");
  const auto dollars_per_hour = [&](std::size_t way) {
    const double tokens = 16 * 1024;
    return ways[way].at("usd_per_mtoken").get<double>() * tokens / 1e6 /
           ways[way].at("iteration_s").get<double>() * 3600;
  };
  CHECK(dollars_per_hour(0) == Approx(9));
  CHECK(dollars_per_hour(2) == Approx(6));
  Words words = small_search({"--cluster", "c.yaml", "--mixed", "--top", "1", "--quiet"});
  words.front() = "compare";
  words.erase(std::find(words.begin(), words.end(), "-o"), std::find(words.begin(), words.end(), "-o") + 2);
  CHECK_THAT(place.run(words).out, contains_text("alone: without rent for the other groups"));
}

TEST_CASE("one kind of GPU has nothing to mix") {
  const Workplace place;
  Words words = small_search({"--mixed"});
  words.front() = "compare";
  check_refused(place.run(words), {"--mixed", "at least two kinds"});
}

}  // namespace orrery
