// `orrery search --explain PLAN`: rank, reason and remedy agree with what searches and replays say.
#include <array>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/replaced.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Json explained(const Workplace& place, const std::string& plan, int code, Words more = {}) {
  more.insert(more.end(), {"--json", "--quiet", "--explain", plan});
  const ProgramResult result = place.run(small_search(more));
  CAPTURE(result.err, result.out);
  REQUIRE(result.code == code);
  return Json::parse(result.out);
}

}  // namespace

TEST_CASE("a plan that search wrote has the rank by estimate that the search gave it") {
  const Workplace place;
  const ProgramResult found = place.run(small_search({"--top", "200", "--json", "--quiet"}));
  REQUIRE(found.code == 0);
  const Json report = Json::parse(found.out);
  for (const Json& plan : report.at("plans")) {
    const int rank = plan.at("rank");
    if (rank > 4) break;
    const double own = plan.at("estimate").at("iteration_s");
    std::size_t faster = 0;
    for (const Json& other : report.at("plans"))
      faster += other.at("estimate").at("iteration_s").get<double>() < own * (1 - 1e-9) ? 1 : 0;
    const Json why = explained(place, "out/plan-0" + std::to_string(rank) + ".yaml", 0);
    CHECK(why.at("feasible") == true);
    CHECK(why.at("faster") == faster);
    CHECK(why.at("iteration_s").get<double>() == Approx(own));
    CHECK(why.at("better").size() == std::min<std::size_t>(faster, 5));
    for (const Json& better : why.at("better")) {
      CHECK(!better.at("differences").empty());
      CHECK(better.at("differences").dump().find("expert_") == std::string::npos);  // it has none
    }
    CHECK(why.at("stages").size() == plan.at("stages").size());
  }
}

TEST_CASE("a plan that a rule drops for want of an overlap is told to turn it on") {
  const Workplace place;
  place.write("off.yaml", place.read("space.yaml") + "overlap_grad_reduce: false\n");
  REQUIRE(place.run(small_search({"--space", "off.yaml", "--rule", "$data_parallel_size == 1"})).code == 0);
  const Json why = explained(place, "out/plan-01.yaml", 1, {"--rule", "!$overlap_param_gather"});
  CHECK(why.at("reason") == "rule: !$overlap_param_gather");
  const Json& first = why.at("tried").at(0);
  CHECK(first.at("change") == "overlap_grad_reduce and overlap_param_gather");
  CHECK(first.at("feasible") == true);
}

TEST_CASE("a plan out of memory names its stage, and each remedy is tried: those said to fit do") {
  const Workplace place;
  place.write(
      "small.yaml",
      "name: small\ngroups:\n  - {name: t4, gpu: T4, gpus_per_node: 4, count: 1, nic_bandwidth: 50Gbps, "
      "price: 1 USD/h}\n");
  place.write(
      "full.yaml",
      "model: gpt2-345m\ncluster: small.yaml\ndata: 4\nmicro_batch: 8\nglobal_batch: 32\nsequence: 1024\n"
      "type: fp16\nschedule: 1f1b\nnodes: [1]\nstages: [{group: 0, tensor: 1}]\nparts: [[0, 24]]\n");
  const std::string plan = place.read("full.yaml");
  const auto replayed = [&](const std::string& file) {
    return place.run({"replay", "--plan", file, "--json"});
  };
  REQUIRE(replayed("full.yaml").err.find("of published runs as full ran out of memory") != std::string::npos);
  const Json why = explained(place, "full.yaml", 1, {"--cluster", "small.yaml", "--global-batch", "32"});
  CHECK(why.at("feasible") == false);
  CHECK(why.at("reason").get<std::string>().find("stage 0 needs ") == 0);
  CHECK(why.at("stages").size() == 1);
  const std::vector<std::array<std::string, 3>> edits{
      {"micro_batch_size 4", "micro_batch: 8", "micro_batch: 4"},
      {"micro_batch_size 1", "micro_batch: 8", "micro_batch: 1"},
      {"use_distributed_optimizer", "data: 4", "data: 4\ndistributed_optimizer: true"},
      {"use_megatron_fsdp", "data: 4", "data: 4\ndistributed_optimizer: true\nfully_sharded: true"},
      {"recompute_granularity full", "data: 4",
       "data: 4\nrecompute: {granularity: full, method: uniform, layers: 1}"}};
  bool fits = false;
  for (const auto& [name, from, to] : edits) {
    CAPTURE(name);
    place.write("edited.yaml", test::replaced(plan, from, to));
    const ProgramResult run = replayed("edited.yaml");
    REQUIRE(run.code == 0);
    const auto tried =
        std::find_if(why.at("tried").begin(), why.at("tried").end(),
                     [&, change = name](const Json& row) { return row.at("change") == change; });
    REQUIRE(tried != why.at("tried").end());
    const Json stage = Json::parse(run.out).at("memory").at(0);
    CHECK(tried->at("feasible") ==
          (stage.at("memory_needed_gib").get<double>() <= 0.90 * 16));  // usable_memory
    CHECK(tried->at("iteration_s").get<double>() ==
          Approx(Json::parse(run.out).at("estimate_s").get<double>()).epsilon(1e-9));
    fits = fits || tried->at("feasible") == true;
  }
  CHECK(fits);
}

TEST_CASE("a rule or a limit that drops a plan is its reason") {
  const Workplace place;
  REQUIRE(place.run(small_search({"--top", "1", "--quiet"})).code == 0);
  const Json ruled = explained(place, "out/plan-01.yaml", 1, {"--rule", "$world_size > 0"});
  CHECK(ruled.at("reason") == "rule: $world_size > 0");
  const Json late = explained(place, "out/plan-01.yaml", 1, {"--tokens", "1T", "--deadline", "1s"});
  CHECK(late.at("reason") == "later than the deadline");
}

TEST_CASE("a plan of another job, and a plan file without --explain, are refused") {
  const Workplace place;
  REQUIRE(place.run(small_search({"--top", "1", "--quiet"})).code == 0);
  const std::string plan = place.read("out/plan-01.yaml");
  place.write("other.yaml", test::replaced(plan, "cluster: \"two.yaml\"", "cluster: \"a100-64\""));
  check_refused(place.run(small_search({"--explain", "other.yaml"})), {"other.yaml", "a100-64", "--cluster"});
  check_refused(place.run(small_search({"--explain", "out/plan-01.yaml", "--precision", "fp16"})),
                {"out/plan-01.yaml", "type bf16", "fp16"});
  check_refused(place.run(small_search({"out/plan-01.yaml"})), {"belongs to no option"});
}

}  // namespace orrery
