// `orrery compare`: estimators against the replay, and two plans side by side.
#include <nlohmann/json.hpp>
#include <set>

#include "costmodels/estimators/estimators.hpp"
#include "platforms/yaml.hpp"
#include "sim/search/compare_estimators.hpp"
#include "sim/search/compare_plans.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/pipeline_plan.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Words small_compare(const Words& more) {
  Words words{"compare",    "--model",    "gpt2-345m", "--cluster",      "two.yaml", "--space",
              "space.yaml", "--sequence", "1024",      "--global-batch", "16"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Json sampled(const Workplace& place, Words more) {
  more.insert(more.end(), {"--json", "--quiet"});
  const ProgramResult result = place.run(small_compare(more));
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  return Json::parse(result.out);
}

}  // namespace

TEST_CASE("compare --json has every field of the contract for every estimator") {
  const Workplace place;
  const Json json = sampled(place, {"--plans", "6"});
  CHECK(json.at("plans") == 6);
  REQUIRE(json.at("estimators").size() == estimators().size());
  for (std::size_t i = 0; i < estimators().size(); ++i) {
    const Json& row = json.at("estimators")[i];
    CHECK(row.at("name") == estimators()[i].name);
    for (const char* field : {"mape", "max_ape", "bias", "spearman", "kendall", "top1_regret"}) {
      CAPTURE(row.at("name"), field);
      CHECK(row.at(field).is_number());
    }
    CHECK(row.at("max_ape") >= row.at("mape"));
    CHECK(row.at("mape").get<double>() >= std::abs(row.at("bias").get<double>()));
  }
}

TEST_CASE("compare --json is one document also where no plan is feasible") {
  const Workplace place;
  const ProgramResult result = place.run(small_compare({"--rule", "true", "--json"}));
  CHECK(result.code == 1);
  CHECK(Json::parse(result.out) == Json{{"plans", 0}, {"estimators", Json::array()}});
}

TEST_CASE("without contention the recurrence is the replay on every plan drawn") {
  const Workplace place;
  const Json row = sampled(place, {"--plans", "12", "--no-contention"}).at("estimators").at(0);
  CHECK(row.at("max_ape").get<double>() < 1e-6);
  CHECK(row.at("top1_regret").get<double>() < 1e-6);
}

TEST_CASE("a seed draws the same plans whatever --jobs is, another seed others") {
  const Workplace place;
  const Json once = sampled(place, {"--plans", "8", "--seed", "3", "--jobs", "1"});
  CHECK(once == sampled(place, {"--plans", "8", "--seed", "3", "--jobs", "4"}));
  CHECK(once != sampled(place, {"--plans", "8", "--seed", "4"}));
}

TEST_CASE("a sample larger than the space is the whole space, once") {
  const Workplace place;
  const int whole = sampled(place, {"--plans", "100000"}).at("plans");
  CHECK(whole > 12);
  const ProgramResult search = place.run(small_search({"--json", "--quiet", "--no-contention"}));
  CHECK(Json::parse(search.out).at("space").at("evaluated") == whole);
}

TEST_CASE("two plan files stand side by side, and what differs is marked") {
  const Workplace place;
  REQUIRE(place.run(small_search({"--quiet", "-o", "out"})).code == 0);
  const Json found = Json::parse(read_text_file(place.file("out/plans.json")));
  const Words files{"compare", "out/plan-01.yaml", "out/plan-02.yaml", "--tokens", "1G", "--quiet"};
  Words json_files = files;
  json_files.push_back("--json");
  const ProgramResult result = place.run(json_files);
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const Json json = Json::parse(result.out);
  REQUIRE(json.at("plans").size() == 2);
  for (const Json& plan : json.at("plans")) {
    const Json replay = Json::parse(
        place.run({"replay", "--plan", plan.at("path"), "--tokens", "1G", "--json", "--quiet"}).out);
    CHECK(plan.at("run").at("iteration, s") == replay.at("iteration_s"));
    const std::size_t index = plan.at("path") == "out/plan-01.yaml" ? 0 : 1;
    CHECK(plan.at("Megatron-LM arguments") == found.at("plans")[index].at("strategy"));
    CHECK(plan.at("run").at("USD in all") == replay.at("usd_total"));
    CHECK(plan.at("estimators, s").at("recurrence") == replay.at("estimate_s"));
    CHECK(plan.at("stage 0").at("compute, s") == replay.at("stages")[0].at("compute_s"));
  }
  std::set<std::string> differences = json.at("differences");
  CHECK(differences.count("run: iteration, s") == 1);
  CHECK(differences.count("plan: model") == 0);
  const std::string text = place.run(files).out;
  CHECK_THAT(text, contains_text("*    iteration, s"));
  CHECK_THAT(text, contains_text("     model"));
}

TEST_CASE("when gradients are reduced stands beside plans that reduce them every microbatch") {
  const Workplace place;
  const std::string plan =
      "model: gpt2-345m\ncluster: two.yaml\ndata: 4\nmicro_batch: 1\nglobal_batch: 16\nsequence: 1024\n"
      "nodes: [2]\nstages: [{group: 0, tensor: 1}]\nparts: [[0, 24]]\n";
  place.write("once.yaml", plan);
  place.write("each.yaml", plan + "reduce_each_microbatch: true\n");
  place.write("sharded.yaml", plan + "distributed_optimizer: true\nfully_sharded: true\n");
  const auto reduced = [&](const std::string& path) {
    const ProgramResult result = place.run({"compare", "once.yaml", path, "--json", "--quiet"});
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    const Json plans = Json::parse(result.out).at("plans");
    CHECK(plans[0].at("plan").at("gradients reduced") == "once a step");
    return plans[1].at("plan").at("gradients reduced").get<std::string>();
  };
  CHECK(reduced("each.yaml") == "each microbatch");
  CHECK(reduced("sharded.yaml") == "each microbatch");
}

TEST_CASE("facts of plans with different stages meet by group and name") {
  const std::vector<PlanFact> first{{"run", "s", "1", 1.0}, {"stage 0", "layers", "4", 4.0}};
  const std::vector<PlanFact> second{{"run", "s", "1", 1.0},
                                     {"run", "USD", "3", 3.0},
                                     {"stage 0", "layers", "2", 2.0},
                                     {"stage 1", "layers", "2", 2.0}};
  const std::vector<FactPair> pairs = side_by_side(first, second);
  std::vector<std::string> order;
  for (const FactPair& pair : pairs)
    order.push_back((pair.differs() ? "*" : "") + pair.group + " " + pair.name);
  CHECK(order == std::vector<std::string>{"run s", "*run USD", "*stage 0 layers", "*stage 1 layers"});
}

TEST_CASE("errors of estimators are those of their columns, in their order") {
  Comparison comparison;
  comparison.replay = {1, 2, 4};
  comparison.estimates.assign(estimators().size(), comparison.replay);
  comparison.estimates[1] = {2, 1, 4};  // takes the second plan for the best: 2 / 1 - 1
  const std::vector<EstimatorErrors> rows = errors_of(comparison);
  CHECK(rows[0].errors.maximum == 0);
  CHECK(rows[1].errors.mean == Approx((1 + 0.5 + 0) / 3));
  CHECK(rows[1].errors.bias == Approx((1 - 0.5 + 0) / 3));
  CHECK(rows[1].top1_regret == Approx(1));
}

TEST_CASE("compare refuses what it cannot mean") {
  const Workplace place;
  check_refused(place.run({"compare", "one.yaml"}), {"one plan file", "two"});
  check_refused(place.run({"compare", "a.yaml", "b.yaml", "--model", "gpt2-345m"}),
                {"--model", "plan files"});
  check_refused(place.run(small_compare({"--budget", "5 USD"})), {"--budget"});
  check_refused(place.run({"compare"}), {"--model"});
  check_refused(place.run({"compare", "none.yaml", "none2.yaml"}), {"none.yaml"});
}

}  // namespace orrery
