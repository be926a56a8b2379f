// What a search leaves behind: the same bytes every time, plans that replay to the same time, nothing of
// older runs.
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "platforms/yaml.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/run_program.hpp"
#include "traces/output_file.hpp"
#include "traces/trace.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Words names_in(const std::string& folder) {
  Words names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// The whole JSON but for what is measured with a clock.
Json without_elapsed(Json json) {
  json.erase("elapsed_s");
  return json;
}

}  // namespace

TEST_CASE("one process or two, and quiet or not: the same bytes in every file") {
  const Workplace one, two;
  const Words more{"--top", "6", "--tokens", "1G", "--seed", "3"};
  Words with_one = small_search(more), with_two = with_one;
  with_one.insert(with_one.end(), {"--jobs", "1", "--quiet"});
  with_two.insert(with_two.begin() + 1, {"--jobs=2"});
  REQUIRE(one.run(with_one).code == 0);
  REQUIRE(two.run(with_two).code == 0);
  const Words names = names_in(one.file("out"));
  REQUIRE(names == names_in(two.file("out")));
  REQUIRE(names.size() >= 18);
  for (const std::string& name : names) {
    CAPTURE(name);
    if (name == "plans.json") {
      CHECK(without_elapsed(Json::parse(one.read("out/" + name))) ==
            without_elapsed(Json::parse(two.read("out/" + name))));
    } else {
      CHECK((one.read("out/" + name) == two.read("out/" + name)));  // not printed: binary
    }
  }
}

TEST_CASE(
    "fully sharded plans of a search replay to their estimate; of a stack that shards they are tried "
    "unasked") {
  const Workplace place;
  place.write("fsdp.yaml", place.read("space.yaml") + "use_megatron_fsdp: true\n");
  const Json asked =
      run_json(place, small_search({"--space", "fsdp.yaml", "--no-contention", "--top", "20"}));
  REQUIRE(asked.at("plans").size() > 3);
  for (const Json& plan : asked.at("plans")) {
    CHECK(plan.at("strategy").at("use_megatron_fsdp") == true);
    CHECK(plan.at("strategy").at("pipeline_model_parallel_size") == 1);
    CHECK(plan.at("replay").at("iteration_s").get<double>() ==
          Approx(plan.at("estimate").at("iteration_s").get<double>()).epsilon(1e-6));
  }
  CHECK(asked.at("space").at("reasons").contains("use_megatron_fsdp with pipeline stages"));
  const auto reasons = [&](const Words& more) {
    return run_json(place, small_search(more)).at("space").at("reasons");
  };
  CHECK(reasons({"--stack", "torchtitan"}).contains("use_megatron_fsdp with pipeline stages"));
  CHECK_FALSE(reasons({}).contains("use_megatron_fsdp with pipeline stages"));
}

// Cards that are too small for most plans, layers recomputed by all methods.
TEST_CASE(
    "no plan of the best hundred fails in replay or memory, and its estimate is its replay on ideal links") {
  const Workplace place;
  place.write("c.yaml",
              "name: c\ngroups:\n"
              "  - {name: a, gpu: A100-SXM4-40GB, gpus_per_node: 2, count: 1, nic_bandwidth: 200Gbps}\n"
              "  - {name: b, gpu: V100-SXM2-16GB, gpus_per_node: 2, count: 1, nic_bandwidth: 100Gbps}\n");
  place.write(
      "s.yaml",
      "tensor_model_parallel_size: [1, 2]\ncontext_parallel_size: 1\nmicro_batch_size: [1, 2]\n"
      "num_virtual_stages_per_pipeline_rank: [1, 2]\nrecompute_granularity: [none, selective, full]\n"
      "recompute_method: [uniform, block]\nrecompute_num_layers: auto\nuse_flash_attn: [true, false]\n");
  const ProgramResult found =
      place.run(small_search({"--model", "gpt2-1.5b", "--cluster", "c.yaml", "--space", "s.yaml", "--top",
                              "100", "--no-contention", "--json", "--quiet"}));
  CAPTURE(found.err);
  REQUIRE(found.code == 0);
  const Json report = Json::parse(found.out);
  CHECK(report.at("plans").size() >= 100);
  CHECK(report.at("space").at("rejected").at("memory").get<int>() > 100);
  std::set<std::string> methods;
  for (const Json& plan : report.at("plans")) {
    CHECK(plan.at("replay").at("iteration_s").get<double>() ==
          Approx(plan.at("estimate").at("iteration_s").get<double>()).epsilon(1e-6));
    for (const Json& stage : plan.at("stages")) {
      // usable_memory: 0.90 of a card of 16 GiB, 0.90 + 0.06 x 24 / 64 of one of 40.
      CHECK(stage.at("memory_gib") <= stage.at("memory_needed_gib"));
      CHECK(stage.at("memory_needed_gib").get<double>() <=
            (stage.at("gpu") == "V100-SXM2-16GB" ? 0.90 * 16 : 0.9226 * 40));
      CHECK(stage.at("memory_allocated_gib") <= stage.at("memory_reserved_gib"));
      CHECK(stage.at("memory_reserved_gib") < stage.at("memory_gib"));
      double all = 0;
      for (const Json& part : stage.at("memory_parts_gib")) all += part.get<double>();
      CHECK(all == Approx(stage.at("memory_gib").get<double>()).epsilon(1e-9));
    }
    methods.insert(plan.at("strategy").at("recompute_method").dump());
  }
  CHECK(methods.size() == 3);  // none, uniform, block
}

TEST_CASE("a plan that search wrote replays to the time of the search, and so does its trace") {
  const Workplace place;
  const ProgramResult found = place.run(small_search({"--top", "6", "--tokens", "1G", "--json"}));
  REQUIRE(found.code == 0);
  const Json report = Json::parse(found.out);
  for (const Json& plan : report.at("plans")) {
    const std::string number = "0" + std::to_string(plan.at("rank").get<int>());
    const ProgramResult replayed =
        place.run({"replay", "--plan", "out/plan-" + number + ".yaml", "--tokens", "1G", "--json"});
    REQUIRE(replayed.code == 0);
    const Json json = Json::parse(replayed.out);
    const double expected = plan.at("replay").at("iteration_s");
    CHECK(json.at("iteration_s").get<double>() == Approx(expected).epsilon(1e-9));
    CHECK(json.at("usd_total").get<double>() ==
          Approx(plan.at("replay").at("usd_total").get<double>()).epsilon(1e-9));
    CHECK(plan.at("trace") == "out/trace-" + number + ".h5");
    // Parameters gathered under the next iteration want two played; the trace says what one takes.
    const Trace trace = read_trace(place.file("out/trace-" + number + ".h5"));
    const double played =
        plan.at("strategy").at("overlap_param_gather") ? 1.5 * expected : expected * (1 - 1e-9);
    CHECK(trace.timeline.makespan >= played);
    for (const auto& [name, text] : trace.run)
      if (name == "iteration")
        CHECK(parse_quantity<Seconds>(text, "trace").value() == Approx(expected).epsilon(1e-9));
    CHECK(place.run({"launch", "--plan", "out/plan-" + number + ".yaml"}).code == 0);
  }
}

TEST_CASE(
    "zero-bubble plans are found, written, replayed as estimated where nothing contends, and not launched") {
  const std::string kind = GENERATE("zb-h1", "zb-h2", "zb-v");
  const Workplace place;
  place.write("zb.yaml", "schedule: " + kind +
                             "\nnum_virtual_stages_per_pipeline_rank: 1\n"
                             "tensor_model_parallel_size: 1\nmicro_batch_size: 1\n");
  const ProgramResult found =
      place.run(small_search({"--space", "zb.yaml", "--top", "3", "--no-contention", "--json"}));
  CAPTURE(found.err);
  REQUIRE(found.code == 0);
  int seen = 0;
  const Json report = Json::parse(found.out);
  for (const Json& plan : report.at("plans")) {
    const std::string file = "out/plan-0" + std::to_string(plan.at("rank").get<int>()) + ".yaml";
    REQUIRE(place.read(file).find("schedule: " + kind + "\n") != std::string::npos);
    ++seen;
    const ProgramResult replayed = place.run({"replay", "--plan", file, "--no-contention", "--json"});
    REQUIRE(replayed.code == 0);
    const Json json = Json::parse(replayed.out);
    const double expected = plan.at("replay").at("iteration_s");
    CHECK(json.at("iteration_s").get<double>() == Approx(expected).epsilon(1e-9));
    CHECK(json.at("estimate_s").get<double>() == Approx(expected).epsilon(1e-9));
    const ProgramResult launched = place.run({"launch", "--plan", file});
    CHECK(launched.code != 0);
    CHECK((launched.out + launched.err).find("the schedule is " + kind) != std::string::npos);
  }
  CHECK(seen > 0);
}

TEST_CASE("a trace records the command as a shell would read it") {
  const Workplace place;
  REQUIRE(place.run(small_search({"--rule", "$tensor_model_parallel_size == 2 && 'x' != 1"})).code == 2);
  REQUIRE(place.run(small_search({"--rule", "$tensor_model_parallel_size == 2", "--jobs", "2"})).code == 0);
  const std::string command = run_attribute(read_trace(place.file("out/trace-01.h5")), "command_line");
  CHECK(command.find("--rule '$tensor_model_parallel_size == 2'") != std::string::npos);
  CHECK(command.find("--jobs") == std::string::npos);
}

TEST_CASE("plans and traces of an earlier search do not stay among those of this one") {
  const Workplace place;
  REQUIRE(place.run(small_search({"--top", "6"})).code == 0);
  place.write("out/notes.txt", "mine");
  REQUIRE(place.run(small_search({"--top", "1"})).code == 0);
  const Words names = names_in(place.file("out"));
  CHECK(std::count(names.begin(), names.end(), "notes.txt") == 1);
  CHECK(std::count(names.begin(), names.end(), "plan-02.yaml") == 0);
  CHECK(std::count(names.begin(), names.end(), "trace-02.h5") == 0);
  for (const std::string& name : names) CHECK(name.find("partial") == std::string::npos);
}

// They may have taken hours, and a rule that is too strict is soon written.
TEST_CASE("a search that finds nothing keeps the results of an earlier one, and says that they are there") {
  const Workplace place;
  const auto nothing = [&](const Words& more) {
    Words words = small_search({"--rule", "$tensor_model_parallel_size > 0"});
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = place.run(words);
    REQUIRE(result.code == 1);
    return result;
  };
  const std::string remark = "out still holds the plans of an earlier search\n";
  CHECK_THAT(nothing({}).err, !contains_text(remark));
  CHECK(names_in(place.file("out")).empty());
  REQUIRE(place.run(small_search({"--top", "2"})).code == 0);
  const Words found = names_in(place.file("out"));
  const std::string table = place.read("out/plans.csv");
  for (const Words& more : {Words{}, Words{"--json"}}) CHECK_THAT(nothing(more).err, contains_text(remark));
  CHECK_THAT(nothing({"--quiet"}).err, !contains_text(remark));
  CHECK(names_in(place.file("out")) == found);
  CHECK(place.read("out/plans.csv") == table);
}

TEST_CASE("a search that a signal ends leaves no temporary file and no child behind") {
  const Workplace place;
  std::filesystem::create_directory(place.file("out"));
  // Without the small space hundreds of plans are replayed, which takes seconds.
  Words command = small_search({"--top", "1000"});
  command.erase(std::find(command.begin(), command.end(), "--space"),
                std::find(command.begin(), command.end(), "space.yaml") + 1);
  const auto is_replaying = [&] { return names_in(place.file("out")).size() >= 5; };
  const ProgramResult result = run_orrery(
      command, {.folder = place.file(""), .interrupt_when = is_replaying, .start = ProgramStart::binary});
  CHECK(result.code == 128 + SIGTERM);
  CHECK(names_in(place.file("out")) == Words{});
}

// SimGrid handles SIGINT by leaving in its own way.
TEST_CASE("a replay that Ctrl-C ends is ended by that signal, says nothing and leaves no file") {
  const Workplace place;
  place.write("d.yaml",
              "schedule: 1f1b\nmicrobatches: 2000\nstages: [{forward: 1ms, backward: 2ms}, {forward: 1ms, "
              "backward: 2ms}]\nmessage: 1MiB\nlink: {bandwidth: 1GBps, latency: 1us}\n");
  const auto begin = std::chrono::steady_clock::now();
  const auto is_playing = [&] { return std::chrono::steady_clock::now() - begin > std::chrono::seconds(1); };
  const ProgramResult result =
      run_orrery({"replay", "--durations", "d.yaml", "--iterations", "1000", "-o", "t.h5"},
                 {.folder = place.file(""), .interrupt_when = is_playing, .signal = SIGINT});
  CHECK(result.code == 128 + SIGINT);
  CHECK(result.err.empty());
  CHECK(place.names() == Words{"d.yaml", "space.yaml", "two.yaml"});
}

TEST_CASE("one node, one GPU and a model of one layer are searched like others") {
  const Workplace place;
  place.write("one.yaml",
              "{name: one, groups: [{name: a, gpu: A100-SXM4-80GB, gpus_per_node: 1, nic_bandwidth: 200Gbps, "
              "count: 1}]}");
  place.write(
      "layer.json",
      R"({"model_type": "gpt2", "n_embd": 256, "n_layer": 1, "n_head": 4, "n_positions": 1024, "vocab_size": 999})");
  const ProgramResult result = place.run(
      small_search({"--cluster", "one.yaml", "--model", "layer.json", "--global-batch", "1", "--json"}));
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const Json json = Json::parse(result.out);
  CHECK(json.at("plans").size() == 1);
  CHECK(json.at("plans")[0].at("replay").at("usd_total").is_null());  // no price is known
  CHECK(json.at("pareto").empty());
}

TEST_CASE("expert ways are in the table and in the list of plans") {
  const Workplace place;
  place.write("space.yaml",
              "{expert_model_parallel_size: [2], tensor_model_parallel_size: [1], micro_batch_size: [1]}");
  place.write(
      "moe.yaml",
      "{name: small-moe, sequence: 512, hidden: 512, vocabulary: 1000, blocks: [{repeat: 2, hidden: 512, "
      "heads: 8, ffn: 1024, mlp: gated, norm: rms_norm, experts: 4, experts_per_token: 2}]}");
  const ProgramResult result =
      place.run(small_search({"--model", "moe.yaml", "--space", "space.yaml", "--top", "1", "-o", "out"}));
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  CHECK(contains(result.out, " ep2 "));
  const std::string list = read_text_file(place.file("out/plans.csv"));
  const auto cells = [&](std::size_t line) {
    std::istringstream text(list);
    std::string row, cell;
    for (std::size_t i = 0; i <= line; ++i) std::getline(text, row);
    std::istringstream in(row);
    Words words;
    while (std::getline(in, cell, ',')) words.push_back(cell);
    return words;
  };
  const Words names = cells(0), values = cells(1);
  const auto at = std::find(names.begin(), names.end(), "expert_model_parallel_size") - names.begin();
  REQUIRE(static_cast<std::size_t>(at) < values.size());
  CHECK(values[static_cast<std::size_t>(at)] == "2");
}

TEST_CASE("names outside ASCII go through to every result") {
  const Workplace place;
  place.write("größe 夸.yaml",
              "{name: größe 夸, groups: [{name: a, gpu: A100-SXM4-80GB, gpus_per_node: 2, "
              "nic_bandwidth: 200Gbps, count: 1, price: 1 USD/h}]}");
  const ProgramResult result = place.run(small_search({"--cluster", "größe 夸.yaml", "-o", "aus gabe ü"}));
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  CHECK(place.run({"replay", "--plan", "aus gabe ü/plan-01.yaml"}).code == 0);
  CHECK(place.read("aus gabe ü/report.html").find("größe 夸") != std::string::npos);
}

}  // namespace orrery
