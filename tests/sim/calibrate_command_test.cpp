// `orrery calibrate`: what it takes and refuses, and what the stack it writes does to the next prediction.
#include <cstring>
#include <initializer_list>

#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

// plan.yaml: GPT-2 345M on both nodes of two.yaml.
struct PlanPlace : Workplace {
  PlanPlace() {
    write("plan.yaml",
          "model: gpt2-345m\ncluster: two.yaml\ndata: 2\nmicro_batch: 2\nglobal_batch: 16\n"
          "sequence: 1024\ntype: bf16\nnodes: [2]\nstages: [{group: 0, tensor: 1}, {group: 0, tensor: 1}]\n"
          "parts: [[0, 12], [12, 12]]\n");
  }
};

Json json_of(const Workplace& place, Words command) {
  command.insert(command.end(), {"--json", "--quiet"});
  const ProgramResult result = place.run(command);
  CAPTURE(command, result.err);
  REQUIRE(result.code == 0);
  return Json::parse(result.out);
}

Words one_run(const Words& more = {}) {
  Words words{"calibrate", "--plan", "plan.yaml", "--measured-time", "200ms"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A run and the same without a time.
std::string table(const std::string& time) {
  const std::string columns =
      "id,source_key,gpu,gpu_mem_gb,gpus_per_node,n_gpus,interconnect,framework,model,layers,hidden,heads,"
      "vocab,seq,precision,gbs,mbs,tp,pp,vpp,dp,recompute,flash_attn,iter_time_s,status\n";
  const std::string shape =
      ",mine,A100,80,8,8,NVLink; 8x200 Gbps,Megatron-LM,GPT,24,1024,16,51200,1024,bf16,64,4,1,1,1,8,no,yes,";
  return columns + "first" + shape + time + ",ok\n" + "untimed" + shape + ",ok\n";
}

double width(const Json& estimate) {
  const Json& interval = estimate.at("interval_s");
  return interval[1].get<double>() / interval[0].get<double>();
}

}  // namespace

TEST_CASE("calibrate refuses what it cannot fit, and says what it takes") {
  const PlanPlace place;
  REQUIRE(place.run(one_run({"-o", "mine.yaml"})).code == 0);
  place.write("none-timed.csv", table(""));
  place.write("other.yaml", place.read("plan.yaml") + "stack: torchtitan\n");
  const Words before = place.names();
  check_refused(place.run(one_run({"--plan", "other.yaml", "--measured-time", "210ms"})),
                {"other.yaml", "megatron-core", "torchtitan", "--stack"});
  check_refused(place.run({"calibrate"}), {"no run", "--measured FILE, or --plan FILE"});
  check_refused(place.run({"calibrate", "--measured-time", "1s"}), {"no run"});
  check_refused(place.run(one_run({"--measured", "none-timed.csv"})), {"both --measured and --plan"});
  check_refused(place.run(one_run({"--plan", "plan.yaml"})), {"1 times", "each of 2 --plan"});
  check_refused(place.run(one_run({"--measured-time", "1s"})), {"2 times", "each of 1 --plan"});
  const auto timed = [&](const std::string& time) {
    return place.run({"calibrate", "--plan", "plan.yaml", "--measured-time", time, "-o", "x.yaml"});
  };
  check_refused(timed("3"), {"--measured-time", "unit is missing"});
  check_refused(timed("0s"), {"--measured-time", "above zero"});
  check_refused(timed("-1s"), {"--measured-time", "negative"});
  check_refused(timed("3GiB"), {"--measured-time", "3GiB"});
  check_refused(place.run(one_run({"--measured-memory", "20GiB", "--measured-memory", "21GiB"})),
                {"--measured-memory", "2 peaks", "each of 1 --plan"});
  check_refused(place.run(one_run({"--measured-memory", "20s"})), {"--measured-memory", "20s"});
  check_refused(place.run(one_run({"--measured-memory", "0GiB"})), {"--measured-memory", "above zero"});
  check_refused(place.run(one_run({"--measured-memory", "20GiB", "--memory-figure", "used"})),
                {"--memory-figure", "'used'", "allocated, reserved or card"});
  check_refused(place.run(one_run({"--memory-figure", "card"})), {"--memory-figure", "--measured-memory"});
  check_refused(place.run(one_run({"--stack", "mine.yaml"})), {"mine.yaml", "calibrated already"});
  check_refused(place.run(one_run({"--stack", "megatron-cor"})), {"--stack", "'megatron-cor'"});
  check_refused(place.run(one_run({"-o", "two.yaml/x"})), {"two.yaml/x"});
  check_refused(place.run({"calibrate", "--measured", "none.csv"}), {"none.csv"});
  const ProgramResult untimed = place.run({"calibrate", "--measured", "none-timed.csv"});
  CHECK(untimed.code == 2);
  CHECK(untimed.out.empty());
  CHECK(untimed.err.find("one or more") != std::string::npos);
  CHECK(place.names() == before);
}

TEST_CASE("calibrate says and writes the same twice") {
  const PlanPlace place;
  const ProgramResult first = place.run(one_run({"-o", "mine.yaml"}));
  const std::string stack = place.read("mine.yaml");
  const ProgramResult second = place.run(one_run({"-o", "mine.yaml"}));
  CHECK(first.code == 0);
  CHECK(first.out == second.out);
  CHECK(place.read("mine.yaml") == stack);
  CHECK(first.err.empty());
  const ProgramResult far =
      place.run({"calibrate", "--plan", "plan.yaml", "--measured-time", "10h", "-o", "far.yaml"});
  CHECK(far.code == 0);
  CHECK(far.err.find("plan.yaml: measured 3.6e+04 s") != std::string::npos);
  CHECK(first.out.find("not determined") != std::string::npos);
  CHECK(first.out.find("stack   mine.yaml") != std::string::npos);
}

TEST_CASE(
    "replay and search take the stack that calibrate wrote: nearer to the run, in an interval that runs "
    "narrow") {
  const PlanPlace place;
  const Json fitted = json_of(place, one_run({"-o", "mine.yaml"}));
  REQUIRE(fitted.at("parameters").size() == 4);
  for (const Json& parameter : fitted.at("parameters"))
    CHECK(parameter.at("deviation").get<double>() <= parameter.at("prior_deviation").get<double>());
  const Json run = fitted.at("runs").at(0);
  CHECK(run.at("measured_s") == 0.2);
  const double before = run.at("before_s"), after = run.at("after_s");
  CHECK(std::abs(after - 0.2) < std::abs(before - 0.2));
  // The file has six digits of each factor.
  CHECK(json_of(place, {"replay", "--plan", "plan.yaml"}).at("estimate_s").get<double>() == Approx(before));
  CHECK(json_of(place, {"replay", "--plan", "plan.yaml", "--stack", "mine.yaml"})
            .at("estimate_s")
            .get<double>() == Approx(after).epsilon(1e-5));
  const Json published = json_of(place, small_search()).at("plans").at(0).at("estimate");
  const auto own = [&](const char* stack) {
    return json_of(place, small_search({"--stack", stack})).at("plans").at(0).at("estimate");
  };
  CHECK(width(own("mine.yaml")) <= width(published) * (1 + 1e-9));
  Words runs = one_run({"-o", "four.yaml"});
  for (const char* time : {"199ms", "202ms", "201ms"})
    runs.insert(runs.end(), {"--plan", "plan.yaml", "--measured-time", time});
  static_cast<void>(json_of(place, runs));
  // Of the plan that ran; the best of a search may wait for other things, of which these runs say little.
  const Words replay{"replay", "--plan", "plan.yaml"};
  Words narrowed = replay;
  narrowed.insert(narrowed.end(), {"--stack", "four.yaml"});
  CHECK(width(json_of(place, narrowed)) < width(json_of(place, replay)));
}

TEST_CASE(
    "replay and search take the memory that calibrate fitted: nearer to the peak, in a narrower interval") {
  const PlanPlace place;
  const auto counted = [&](const Words& more) {
    Words words{"replay", "--plan", "plan.yaml"};
    words.insert(words.end(), more.begin(), more.end());
    return json_of(place, words);
  };
  const auto peak = [](const Json& replay) {
    double most = 0;
    for (const Json& stage : replay.at("memory")) most = std::max(most, stage.at("memory_gib").get<double>());
    return most;
  };
  const auto ratio = [](const Json& replay) {
    const Json& interval = replay.at("memory").at(0).at("memory_interval_gib");
    return interval[1].get<double>() / interval[0].get<double>();
  };
  const Json before = counted({});
  const double measured = 1.2 * peak(before);
  Words runs = one_run(
      {"-o", "mine.yaml", "--measured-memory", std::to_string(measured) + "GiB", "--memory-figure", "card"});
  const Json fitted = json_of(place, runs);
  REQUIRE(fitted.at("parameters").size() == 7);
  CHECK(fitted.at("skipped").empty());
  const Json& run = fitted.at("memory_runs").at(0);
  CHECK(run.at("measured_gib").get<double>() == Approx(measured).epsilon(1e-5));
  CHECK(run.at("before_gib").get<double>() == Approx(peak(before)));
  const Json after = counted({"--stack", "mine.yaml"});
  CHECK(peak(after) == Approx(run.at("after_gib").get<double>()).epsilon(1e-4));
  CHECK(std::abs(peak(after) - measured) < std::abs(peak(before) - measured));
  CHECK(ratio(after) <= ratio(before));
  // What the tensors are is less than what the card holds.
  const Json tensors = json_of(place, one_run({"--measured-memory", std::to_string(measured) + "GiB",
                                               "--memory-figure", "allocated"}));
  CHECK(tensors.at("memory_runs").at(0).at("before_gib").get<double>() < peak(before));
}

TEST_CASE("calibrate leaves out rows of a table that say too little, by name") {
  const Workplace place;
  place.write("runs.csv", table("0.5"));
  const ProgramResult result = place.run({"calibrate", "--measured", "runs.csv", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err.find("untimed left out: no time") != std::string::npos);
  const Json fitted = Json::parse(result.out);
  REQUIRE(fitted.at("runs").size() == 1);
  CHECK(fitted.at("runs")[0].at("name") == "first");
  CHECK(fitted.at("runs")[0].at("measured_s") == 0.5);
  CHECK(fitted.at("skipped") == Json::array({{{"id", "untimed"}, {"reason", "no time"}}}));
}

TEST_CASE("calibrate takes no run that failed, that cannot have run, whose network is open, or twice") {
  const Workplace place;
  std::string rows = table("0.5");
  const std::string first = rows.substr(rows.find("first"), rows.find("untimed") - rows.find("first"));
  const auto like_first = [&](const std::string& id,
                              std::initializer_list<std::pair<const char*, const char*>> changes) {
    std::string row = id + first.substr(5);
    for (const auto& [from, to] : changes) row.replace(row.find(from), std::strlen(from), to);
    return row;
  };
  rows += first + like_first("failed", {{",ok", ",OOM"}}) +
          like_first("open", {{",8,8,NVLink; 8x200 Gbps,", ",8,16,,"}, {",1,1,1,8,no", ",1,1,1,16,no"}}) +
          like_first("huge", {{",24,1024,16", ",96,12288,96"}, {",0.5,", ",50,"}}) +
          like_first("fast", {{",0.5,", ",0.005,"}});
  place.write("runs.csv", rows);
  const ProgramResult result = place.run({"calibrate", "--measured", "runs.csv", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  for (const char* said : {"first left out: a second row of this id", "failed left out: it failed",
                           "open left out: its network is open", "huge left out: its plan is far too big",
                           "fast left out: a time in which"})
    CHECK(result.err.find(said) != std::string::npos);
  const Json fitted = Json::parse(result.out);
  CHECK(fitted.at("runs").size() == 1);
  // Each as it was said, in the order of the table.
  Words left_out;
  for (const Json& run : fitted.at("skipped")) {
    left_out.push_back(run.at("id"));
    const auto said =
        "orrery: " + left_out.back() + " left out: " + run.at("reason").get<std::string>() + "\n";
    CHECK(result.err.find(said) != std::string::npos);
  }
  CHECK(left_out == Words{"untimed", "first", "failed", "open", "huge", "fast"});
}

TEST_CASE("calibrate refuses a time in which the GPUs of a plan would exceed their data sheet") {
  const PlanPlace place;
  const auto timed = [&](const std::string& time) {
    return place.run({"calibrate", "--plan", "plan.yaml", "--measured-time", time, "-o", "x.yaml"});
  };
  // 16 x 1,024 tokens of 24 layers of width 1,024, causal, and a head of 50,257: 24 (72 x 1024^2 + 6 x
  // 1024^2) + 6 x 1024 x 50257 = 2.27e9 FLOPs each, 3.7e13 in all; on four GPUs of 312 TFLOP/s at least 30
  // ms.
  check_refused(timed("29ms"), {"--measured-time", "29ms of plan.yaml", "a time in which a GPU would compute",
                                "at most 312"});
  CHECK(place.names() == PlanPlace().names());
  CHECK(timed("31ms").code == 0);
}

TEST_CASE("calibrate refuses a peak that no card holds") {
  const PlanPlace place;
  check_refused(place.run(one_run({"--measured-memory", "500GiB"})),
                {"--measured-memory", "500 GiB", "80 GiB"});
}

}  // namespace orrery
