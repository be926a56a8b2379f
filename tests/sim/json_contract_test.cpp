// The JSON of DESIGN 2.6: every field there, of its kind, alone on standard output, and true.
#include <cmath>
#include <nlohmann/json.hpp>

#include "strategies/model.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/run_program.hpp"
#include "traces/trace.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr double kTokens = 1e9;
constexpr double kSequence = 1024, kBatch = 16;
constexpr double kUsdPerNodeHour = 10;  // of two.yaml

Json search_json(const Workplace& place, Words more = {}) {
  more.insert(more.end(), {"--json", "--quiet"});
  if (std::find(more.begin(), more.end(), "--tokens") == more.end())
    more.insert(more.end(), {"--tokens", "1G"});
  const ProgramResult result = place.run(small_search(more));
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err.empty());
  return Json::parse(result.out);
}

void check_numbers(const Json& object, const Words& names) {
  for (const std::string& name : names) {
    CAPTURE(name);
    REQUIRE(object.contains(name));
    CHECK(object.at(name).is_number());
  }
}

void check_totals(const Json& totals) {
  check_numbers(totals, {"iteration_s", "tokens_per_s", "mfu", "hfu", "usd_per_iteration", "usd_per_mtoken",
                         "usd_total", "hours_total"});
  REQUIRE(totals.at("interval_s").size() == 2);
  CHECK(totals.at("interval_s")[0].get<double>() < totals.at("iteration_s").get<double>());
  CHECK(totals.at("interval_s")[1].get<double>() > totals.at("iteration_s").get<double>());
  CHECK(totals.at("extrapolated").is_array());
}

void check_stage_times(const Json& stages) {
  for (const Json& stage : stages) {
    CHECK(stage.at("stage").is_number_integer());
    check_numbers(stage, {"compute_s", "exposed_tp_s", "exposed_p2p_s", "exposed_dp_s", "optimizer_s"});
    check_numbers(stage.at("bubble"), {"warmup_s", "steady_s", "drain_s"});
  }
}

// Money and time follow from the iteration by arithmetic that anybody can redo.
void check_arithmetic(const Json& totals, double nodes) {
  const double iteration = totals.at("iteration_s");
  const double iterations = std::ceil(kTokens / (kSequence * kBatch));
  const double usd = kUsdPerNodeHour * nodes * iteration / 3600;
  CHECK(totals.at("tokens_per_s") == Approx(kSequence * kBatch / iteration).epsilon(1e-9));
  CHECK(totals.at("hours_total") == Approx(iterations * iteration / 3600).epsilon(1e-9));
  CHECK(totals.at("usd_per_iteration") == Approx(usd).epsilon(1e-9));
  CHECK(totals.at("usd_total") == Approx(usd * iterations).epsilon(1e-9));
  CHECK(totals.at("usd_per_mtoken") == Approx(usd / (kSequence * kBatch) * 1e6).epsilon(1e-9));
}

}  // namespace

TEST_CASE("search --json has every field of the contract, and its counts add up") {
  const Workplace place;
  const Json json = search_json(place, {"--top", "12"});
  const Json& space = json.at("space");
  check_numbers(space, {"enumerated", "evaluated"});
  std::int64_t rejected = 0;
  for (const char* kind : {"shape", "rule", "memory", "budget"}) {
    rejected += space.at("rejected").at(kind).get<std::int64_t>();
  }
  CHECK(space.at("enumerated").get<std::int64_t>() == rejected + space.at("evaluated").get<std::int64_t>());
  std::int64_t reasons = 0;
  for (const auto& reason : space.at("reasons").items()) reasons += reason.value().get<std::int64_t>();
  CHECK(reasons == rejected);
  check_numbers(json.at("elapsed_s"), {"total", "enumerate", "predict", "estimate", "replay"});
  REQUIRE(json.at("plans").size() > 5);
  for (const Json& plan : json.at("plans")) {
    CHECK(plan.at("strategy").at("tensor_model_parallel_size").is_number_integer());
    check_totals(plan.at("estimate"));
    check_totals(plan.at("replay"));
    check_numbers(plan.at("replay"), {"bubble_fraction"});
    check_stage_times(plan.at("replay").at("stages"));
    CHECK(plan.at("out_of_memory_chance").get<double>() > 0);
    CHECK(plan.at("out_of_memory_chance").get<double>() < 0.5);  // it is taken to fit
    CHECK_FALSE(plan.at("memory_interval_basis").get<std::string>().empty());
    int next = 0;
    for (const Json& stage : plan.at("stages")) {
      CHECK(stage.at("gpu") == "A100-SXM4-80GB");
      check_numbers(stage, {"gpus", "tensor", "memory_gib"});
      CHECK(stage.at("memory_gib").get<double>() < 80);
      CHECK(stage.at("memory_interval_gib")[0] < stage.at("memory_gib"));
      CHECK(stage.at("memory_interval_gib")[1] > stage.at("memory_gib"));
      if (stage.contains("chunks")) continue;
      CHECK(stage.at("layers")[0] == next);
      next += stage.at("layers")[1].get<int>();
    }
    CHECK((next == 0 || next == 24));
  }
}

TEST_CASE(
    "plans come by rank, the replay is never faster than the estimate, and the front is not dominated") {
  const Workplace place;
  const Json json = search_json(place, {"--top", "12"});
  int rank = 0;
  double before = 0;
  for (const Json& plan : json.at("plans")) {
    CHECK(plan.at("rank") == ++rank);
    const double replayed = plan.at("replay").at("iteration_s");
    CHECK(replayed >= before);
    before = replayed;
    CHECK(plan.at("estimate").at("iteration_s").get<double>() <= replayed * (1 + 1e-6));
  }
  REQUIRE(!json.at("pareto").empty());
  for (const Json& on_front : json.at("pareto")) {
    const Json& plan = json.at("plans").at(on_front.get<std::size_t>() - 1).at("replay");
    for (const Json& other : json.at("plans")) {
      const Json& run = other.at("replay");
      const bool faster = run.at("hours_total") < plan.at("hours_total");
      const bool cheaper = run.at("usd_total") < plan.at("usd_total");
      CHECK_FALSE((faster && run.at("usd_total") <= plan.at("usd_total")));
      CHECK_FALSE((cheaper && run.at("hours_total") <= plan.at("hours_total")));
    }
  }
}

TEST_CASE("without contention the estimate is the replay") {
  const Workplace place;
  const Json json = search_json(place, {"--top", "12", "--no-contention"});
  CHECK(json.at("plans").size() > 5);
  for (const Json& plan : json.at("plans")) {
    CHECK(plan.at("estimate").at("iteration_s").get<double>() ==
          Approx(plan.at("replay").at("iteration_s").get<double>()).epsilon(1e-9));
  }
}

TEST_CASE("money, hours, tokens a second and MFU are recomputed from the iteration") {
  const Workplace place;
  const Json json = search_json(place, {"--top", "12"});
  CHECK(json.at("model").at("parameters") == total_parameters(read_model("gpt2-345m")));
  // SEMANTICS 5: 6 x parameters x tokens + 12 x layers x hidden x sequence x tokens.
  const double tokens = 16 * 1024.0;
  const double flops =
      (6 * json.at("model").at("parameters").get<double>() + 12.0 * 24 * 1024 * 1024) * tokens;
  for (const Json& plan : json.at("plans")) {
    const double nodes = plan.at("nodes")[0];
    double gpus = 0;
    for (const Json& stage : plan.at("stages")) gpus += stage.at("gpus").get<double>();
    for (const char* which : {"estimate", "replay"}) {
      const Json& totals = plan.at(which);
      check_arithmetic(totals, nodes);
      const double iteration = totals.at("iteration_s");
      CHECK(totals.at("mfu") == Approx(flops / (gpus * 312e12 * iteration)).epsilon(1e-9));
      // 24 layers of 16 sequences: scores and values, 2 products forward and 4 backward, half of them masked.
      const double masked = 0.5 * 6 * 2 * 24 * 16 * 1024.0 * 1024 * 1024;
      CHECK(totals.at("mfu_causal") == Approx((flops - masked) / (gpus * 312e12 * iteration)).epsilon(1e-9));
    }
  }
}

// Two sequences of GPT-2 345M: 24 layers of 12 h^2 weights in matrices and 4 s h FLOPs of unfused attention a
// token, h = s = 1024.
TEST_CASE("HFU is the FLOPs of the spans over the peak, and recomputation adds a forward of all layers") {
  const Workplace place;
  const auto flops = [&](const std::string& recompute) {
    place.write(
        "p.yaml",
        "model: gpt2-345m\ncluster: a100-64\nglobal_batch: 2\nsequence: 1024\nnodes: [8]\nstages: "
        "[{group: 0, tensor: 1}]\nparts: [[0, 24]]\nflash_attention: false\nrecompute: {granularity: " +
            recompute + "}\n");
    const Json run = run_json(place, {"replay", "--plan", "p.yaml", "-o", "t.h5"});
    const Trace trace = read_trace(place.file("t.h5"));
    double spans = 0;
    for (const double of_span : trace.timeline.spans.flops) spans += of_span;
    const double by_hfu = run.at("hfu").get<double>() * 312e12 * run.at("iteration_s").get<double>();
    CHECK(spans == Approx(by_hfu).epsilon(1e-9));
    CHECK(trace.hfu.value_or(0) == run.at("hfu"));
    CHECK(trace.mfu.value_or(0) == run.at("mfu"));
    return by_hfu;
  };
  const double again = 24.0 * 2 * 1024 * (2 * 12 * 1024.0 * 1024 + 4 * 1024.0 * 1024);
  CHECK(flops("full") - flops("none") == Approx(again).epsilon(1e-9));
}

TEST_CASE("a search that finds nothing says why, ends with 1, and its JSON has the counts") {
  const Workplace place;
  const ProgramResult text = place.run(small_search({"--model", "gpt3-175b"}));
  CHECK(text.code == 1);
  CHECK(text.out.find("No feasible plan.") != std::string::npos);
  CHECK(text.out.find("out of memory") != std::string::npos);
  CHECK(text.out.find("nearest to fitting: ") != std::string::npos);
  const ProgramResult result = place.run(small_search({"--model", "gpt3-175b", "--json"}));
  CHECK(result.code == 1);
  CHECK(result.err.find("out of memory") != std::string::npos);
  const Json json = Json::parse(result.out);
  CHECK(json.at("plans").empty());
  CHECK(json.at("pareto").empty());
  CHECK(json.at("space").at("evaluated") == 0);
  CHECK(json.at("space").at("rejected").at("memory").get<int>() > 0);
  CHECK(json.at("elapsed_s").at("total").get<double>() > 0);
}

TEST_CASE("every reason to reject is counted under its kind") {
  const Workplace place;
  struct Row {
    Words more;
    std::string kind, reason;
  };
  const auto row = GENERATE(values<Row>({
      {{"--rule", "true"}, "rule", "rule: true"},
      {{"--sequence", "1025"}, "shape", "the sequence is longer than the model's position table"},
      {{"--global-batch", "10000000"}, "shape", "too many microbatches"},
      {{"--tokens", "1G", "--budget", "0 USD"}, "budget", "over the budget"},
      {{"--tokens", "1G", "--deadline", "1s"}, "budget", "later than the deadline"},
  }));
  Words more = row.more;
  more.push_back("--json");
  const ProgramResult result = place.run(small_search(more));
  CHECK(result.code == 1);
  const Json space = Json::parse(result.out).at("space");
  CHECK(space.at("reasons").at(row.reason).get<int>() > 0);
  CHECK(space.at("rejected").at(row.kind).get<int>() > 0);
}

TEST_CASE("heads, layers and batches that do not divide are counted by name") {
  const Workplace place;
  // 6 heads over 4 tensor ways; 2 layers over 3 or 4 stages; a batch of 3 over 2 replicas of microbatch 2.
  place.write(
      "m.json",
      R"({"model_type": "gpt2", "n_embd": 384, "n_layer": 2, "n_head": 6, "n_positions": 1024, "vocab_size": 64})");
  place.write("c.yaml",
              "{name: x, groups: [{name: a, gpu: A100-SXM4-80GB, gpus_per_node: 4, nic_bandwidth: 200Gbps, "
              "count: 1}]}");
  place.write("s.yaml",
              "tensor_model_parallel_size: [1, 4]\nmicro_batch_size: [1, 2]\ncontext_parallel_size: 1\n");
  const ProgramResult result =
      place.run(small_search({"--model", "m.json", "--cluster", "c.yaml", "--space", "s.yaml",
                              "--global-batch", "3", "--json", "--quiet"}));
  CHECK(result.code == 1);
  const Json reasons = Json::parse(result.out).at("space").at("reasons");
  for (const char* reason : {"heads do not divide", "more stages than layers", "the batch does not divide"}) {
    CAPTURE(reason, reasons.dump());
    CHECK(reasons.contains(reason));
  }
}

TEST_CASE("replay --json has every field of the contract, for a plan and for durations") {
  const Workplace place;
  REQUIRE(place.run(small_search()).code == 0);
  place.write("d.yaml",
              "schedule: 1f1b\nmicrobatches: 4\nstages: [{forward: 1ms, backward: 2ms}, {forward: 1ms, "
              "backward: 2ms}]\n"
              "message: 16MiB\nlink: {bandwidth: 53687091200Bps, latency: 1us}\n");
  const bool of_plan = GENERATE(true, false);
  const ProgramResult result =
      of_plan ? place.run({"replay", "--plan", "out/plan-01.yaml", "--json", "-o", "t.h5"})
              : place.run({"replay", "--durations", "d.yaml", "--json"});
  CHECK(result.code == 0);
  CHECK(result.err.empty());
  const Json json = Json::parse(result.out);
  check_numbers(json, {"iteration_s", "bubble_fraction", "imbalance_s", "activities", "elapsed_s"});
  check_stage_times(json.at("stages"));
  CHECK(json.at("stages").size() == (of_plan ? 1 : 2));
  CHECK(json.at("mfu").is_number() == of_plan);
  CHECK(json.at("usd").is_number() == of_plan);
  for (const Json& stage : json.at("stages")) {
    double sum = 0;
    for (const char* column : {"compute_s", "exposed_tp_s", "exposed_p2p_s", "exposed_dp_s", "optimizer_s"})
      sum += stage.at(column).get<double>();
    for (const auto& [name, time] : stage.at("bubble").items()) sum += time.get<double>();
    CHECK(sum == Approx(json.at("iteration_s").get<double>()).epsilon(1e-9));
  }
  // The trace has the interval, from which a report has it.
  if (of_plan) {
    const Trace trace = read_trace(place.file("t.h5"));
    const auto seconds = [&](const char* name) {
      return parse_quantity<Seconds>(run_attribute(trace, name), name).value();
    };
    CHECK(seconds("interval_low") == Approx(json.at("interval_s")[0].get<double>()));
    CHECK(seconds("interval_high") == Approx(json.at("interval_s")[1].get<double>()));
    CHECK(run_attribute(trace, "interval_basis") == json.at("interval_basis"));
  }
  // SEMANTICS 6: P = 2, M = 4, blocking transfers.
  if (!of_plan) CHECK(json.at("iteration_s").get<double>() * 1e3 == Approx(16.5725).epsilon(1e-6));
}

TEST_CASE("a replay says which GPUs were not measured, with the error of GPUs left out, as a search does") {
  const Workplace place;
  const auto replayed = [&](const char* gpu, bool json) {
    place.write("one.yaml", std::string("name: one\ngroups:\n  - {name: g, gpu: ") + gpu +
                                ", gpus_per_node: 2, count: 1, nic_bandwidth: 200Gbps}\n");
    place.write("plan.yaml",
                "model: gpt2-345m\ncluster: one.yaml\ndata: 2\nglobal_batch: 8\nsequence: 1024\nnodes: [1]\n"
                "stages: [{tensor: 1}]\nparts: [[0, 24]]\n");
    const ProgramResult result = place.run(json ? Words{"replay", "--plan", "plan.yaml", "--json"}
                                                : Words{"replay", "--plan", "plan.yaml"});
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    return result.out;
  };
  // 7.7 % of costmodels/fitted/provenance.json: gemm-any, held out by GPU, M >= 1024.
  const std::string reason =
      "L40S: its GEMMs were not measured; those of GPUs left out of the fit are 7.7 % off (6 to 44 by "
      "GPU)";
  CHECK(Json::parse(replayed("L40S", true)).at("extrapolated") == Json{reason});
  CHECK(contains(replayed("L40S", false), "\nextrapolated: " + reason + "\n"));
  CHECK_FALSE(contains(replayed("A100-SXM4-80GB", false), "were not measured"));
}

TEST_CASE("where several iterations are played, the stages account for a steady one") {
  const Workplace place;
  place.write("d.yaml",
              "schedule: 1f1b\nmicrobatches: 4\nstages: [{forward: 1ms, backward: 2ms}]\nmessage: 1MiB\n"
              "link: {bandwidth: 1GBps, latency: 1us}\n");
  const std::string one = place.run({"replay", "--durations", "d.yaml"}).out;
  CHECK(contains(one, "Milliseconds of a rank, mean"));
  // 4 x 3 ms an iteration.
  const std::string three = place.run({"replay", "--durations", "d.yaml", "--iterations", "3"}).out;
  CHECK(contains(three, "Milliseconds of a rank in a steady iteration (36.0000 ms were played), mean"));
}

// F = B = W = 1 ms and M >= 2 P - 1: ranks are busy from their first forward on, 12 x 3 ms an iteration, and
// rank s begins s ms after rank 0.
TEST_CASE("zb-h2 without a norm to wait for is played until no rank idles") {
  const Workplace place;
  std::string rows;
  for (int stage = 0; stage < 4; ++stage) rows += "  - {forward: 1ms, backward: 1ms, weight_gradient: 1ms}\n";
  place.write("d.yaml",
              "schedule: zb-h2\nmicrobatches: 12\nmessage: 1B\nlink: {bandwidth: 1TBps, latency: "
              "0us}\nstages:\n" +
                  rows);
  const ProgramResult result = place.run({"replay", "--durations", "d.yaml", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const Json json = Json::parse(result.out);
  CHECK(json.at("makespan_s").get<double>() == Approx((2 * 12 * 3 + 3) * 1e-3));
  CHECK(json.at("iteration_s").get<double>() == Approx(12 * 3 * 1e-3));
  CHECK(json.at("bubble_fraction").get<double>() == Approx(0).margin(1e-6));
  for (const Json& stage : json.at("stages"))
    CHECK(stage.at("compute_s").get<double>() == Approx(12 * 3 * 1e-3));
}

// An H100 does more microbatches than an A100 in the same time.
TEST_CASE("replicas on unlike GPUs get shares that sum to the batch, and the replay says which") {
  const Workplace place;
  place.write("kinds.yaml",
              "name: kinds\ngroups:\n  - {name: a, gpu: A100-SXM4-80GB, gpus_per_node: 2, count: 2, "
              "nic_bandwidth: 200Gbps}\n  - {name: h, gpu: H100-SXM5-80GB, gpus_per_node: 2, count: 1, "
              "nic_bandwidth: 200Gbps}\n");
  place.write("plan.yaml",
              "model: gpt2-345m\ncluster: kinds.yaml\ndata: 3\nglobal_batch: 64\nsequence: 1024\nnodes: [2, "
              "1]\nstages: [{tensor: 1}, {tensor: 1}]\nparts: [[0, 12], [12, 12]]\nreplicas:\n  - {count: 2, "
              "groups: [0, 0], microbatches: auto}\n  - {count: 1, groups: [1, 1], microbatches: auto}\n");
  const ProgramResult result = place.run({"replay", "--plan", "plan.yaml", "--json", "-o", "t.h5"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const Json json = Json::parse(result.out);
  int microbatches = 0, on_a100 = 0, on_h100 = 0;
  for (const Json& kind : json.at("replicas")) {
    microbatches += kind.at("replicas").get<int>() * kind.at("microbatches").get<int>();
    const bool h100 = kind.at("gpus") == Json{"H100-SXM5-80GB", "H100-SXM5-80GB"};
    (h100 ? on_h100 : on_a100) = kind.at("microbatches").get<int>();
  }
  CHECK(microbatches == 64);
  CHECK(on_h100 > on_a100);
  CHECK(json.at("iteration_s").get<double>() > 0);
  // Memory has a row for each stage of each kind, in the JSON and in the trace.
  REQUIRE(json.at("memory").size() == 4);
  CHECK(json.at("memory")[3].at("kind") == 1);
  CHECK(json.at("memory")[3].at("memory_verdict") == "fits");
  const Trace trace = read_trace(place.file("t.h5"));
  REQUIRE(trace.memory.size() == 4);
  CHECK(trace.memory[1].gpu == "A100-SXM4-80GB");
  CHECK(trace.memory[3].gpu == "H100-SXM5-80GB");
  CHECK(trace.memory[3].kind == 1);
  CHECK(trace.memory[3].verdict == "fits");
  const std::string text = place.run({"replay", "--plan", "plan.yaml"}).out;
  CHECK(text.find(" mb | 1 x (2 h) " + std::to_string(on_h100) + " mb") != std::string::npos);
}

// 12 B of a parameter leave the GPU, 16 of it are on the host: 6 GB of 8 GiB less what the system needs.
TEST_CASE("a replay says when an offloaded optimizer overflows its host, and a GPU what others leave of it") {
  const Workplace place;
  const auto verdicts = [&](const std::string& of_group) {
    place.write("small.yaml",
                "name: small\ngroups:\n  - {name: a, gpu: A100-SXM4-80GB, gpus_per_node: 2, count: 1, "
                "nic_bandwidth: 200Gbps, " +
                    of_group + "}\n");
    place.write(
        "plan.yaml",
        "model: gpt2-345m\ncluster: small.yaml\ndata: 2\nglobal_batch: 8\nsequence: 1024\nnodes: [1]\n"
        "distributed_optimizer: true\noptimizer_offload: 1\nstages: [{tensor: 1}]\nparts: [[0, 24]]\n");
    const ProgramResult result = place.run({"replay", "--plan", "plan.yaml", "--json"});
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    const Json json = Json::parse(result.out);
    return std::pair(json.at("host_memory_verdict").get<std::string>(),
                     json.at("memory")[0].at("memory_verdict").get<std::string>());
  };
  CHECK(verdicts("host_memory: 64GiB") == std::pair<std::string, std::string>("fits", "fits"));
  CHECK(verdicts("host_memory: 4GiB").first == "too big");
  CHECK(verdicts("usable_memory: 1GiB").second == "too big");
}

TEST_CASE("catalog --json lists rows whose numbers are numbers") {
  const Workplace place;
  const std::string list = GENERATE("gpus", "instances", "models", "clusters", "estimators", "schedules");
  const Json rows = Json::parse(place.run({"catalog", list, "--json"}).out);
  REQUIRE(!rows.empty());
  if (list == "gpus") CHECK(rows[0].at("memory GiB").is_number());
  if (list == "models") CHECK(rows[0].at("parameters").get<double>() > 1e8);
  if (list == "instances")
    CHECK((rows[0].at("spot USD/h").is_number() || rows[0].at("spot USD/h").is_null()));
}

TEST_CASE("paths and names that are no UTF-8 do not break the JSON") {
  const Workplace place;
  const Json json = search_json(place, {"-o", "out-\xff"});
  CHECK(json.at("plans").size() >= 2);
  place.write("runs.csv", "id,source_key,gpu,n_gpus\nM\xfcller,mine,A100,8\n");  // Latin-1
  const ProgramResult validated = place.run({"validate", "--measured", "runs.csv", "--json"});
  CHECK(validated.code == 1);
  const Json validation = Json::parse(validated.out);
  CHECK(validation.at("skipped").at(0).at("id") == "M\uFFFDller");
  // No run, no error: none that a script would take for 0 %.
  for (const char* error : {"mape", "median_ape", "p90_ape", "max_ape", "bias"})
    CHECK(validation.at(error).is_null());
  CHECK(validation.at("memory").at("mape").is_null());
  const ProgramResult profiled = place.run({"profile", "--script", "--json", "-o", "machine-\xff"});
  CHECK(profiled.code == 0);
  CHECK_THAT(Json::parse(profiled.out).at("script").get<std::string>(), contains_text("machine-\uFFFD"));
}

}  // namespace orrery
