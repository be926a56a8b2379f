// Options: what is wrong is said in one line, and nothing is guessed.
#include <nlohmann/json.hpp>

#include "strategies/schedule.hpp"
#include "strategies/schedule_file.hpp"
#include "tests/catch.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

struct Refusal {
  std::vector<std::string> arguments;
  std::vector<std::string> parts;  // of the message
};

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("a command line that makes no sense is refused in one line that says why") {
  const Workplace place;
  const auto row = GENERATE(values<Refusal>({
      {{"serch"}, {"'serch'", "did you mean 'search'?"}},
      {{""}, {"no command ''"}},
      {{"search"}, {"no --model", "`orrery search --help`"}},
      {{"search", "--model"}, {"--model without a value"}},
      {{"search", "--model="}, {"--model without a value"}},
      {{"search", "--model", "gpt2-345m"}, {"no --cluster"}},
      {{"search", "--model", "gpt2-345m", "--cluster", "two.yaml"}, {"no --global-batch"}},
      {small_search({"--mod", "x"}), {"unknown option '--mod'", "did you mean '--mode'?"}},
      {small_search({"--mod=x"}), {"unknown option '--mod'", "did you mean '--mode'?"}},
      // Names of what stands without an option are none of options.
      {small_search({"--plan=x"}), {"unknown option '--plan'"}},
      {small_search({"--plan"}), {"unknown option '--plan'"}},
      {{"export", "--trace", "a.h5", "-o", "x"}, {"unknown option '--trace'"}},
      {{"search", "--arguments without an option=x"}, {"unknown option '--arguments without an option'"}},
      {small_search({"--top", "3", "--top", "4"}), {"--top more than once"}},
      {small_search({"--quiet=3"}), {"--quiet with a value"}},
      {small_search({"stray"}), {"'stray'", "belongs to no option"}},
      {small_search({"-o", ""}), {"--output", "an empty text"}},
      {{"replay"}, {"neither --plan nor --durations"}},
      {{"replay", "--plan", "a", "--durations", "b"}, {"both --plan and --durations"}},
      {{"replay", "--plan", "p", "--message", "1MiB"}, {"--message", "no --collective"}},
      {{"replay", "--plan", "p", "--collective", "broadcast"}, {"--collective beside a plan"}},
      {{"replay", "--collective", "all_reduced"}, {"'all_reduced'", "all_reduce, reduce_scatter"}},
      {{"replay", "--collective", "broadcast", "--cluster", "two.yaml"}, {"no --message"}},
      {{"replay", "--collective", "broadcast", "--cluster", "two.yaml", "--message", "1"}, {"'1'", "unit"}},
      {{"replay", "--collective", "broadcast", "--cluster", "two.yaml", "--message", "1MiB", "--gpus", "5"},
       {"--gpus", "from 2 to 4"}},
      {{"replay", "--collective", "all_to_all", "--cluster", "two.yaml", "--message", "1MiB", "--algorithm",
        "ring"},
       {"--algorithm", "can run all_to_all"}},
      {{"replay", "--durations", "d", "--tokens", "1T"}, {"--tokens", "beside --durations"}},
      {{"replay", "--durations", "d", "--pricing", "spot"}, {"--pricing", "beside --durations"}},
      {{"replay", "--collective", "broadcast", "--pricing", "spot"}, {"--pricing", "beside --collective"}},
      {{"replay", "--plan", "p", "--jobs", "banana"}, {"--jobs", "'banana'", "from 1 to 1024"}},
      {{"report"}, {"no trace"}},
      {{"export", "a.h5"}, {"no --output"}},
      {{"export", "a.h5", "-o", "-"}, {"'-'", "/dev/stdout"}},
      {{"export", "a.h5", "b.h5", "-o", "x"}, {"2 traces"}},
      {{"export", "--format", "perfeto", "a.h5", "-o", "x"}, {"'perfeto'", "did you mean 'perfetto'?"}},
      {{"launch"}, {"no --plan"}},
      {{"fit"}, {"no --profiles"}},
      {{"fit", "--profiles", "."}, {"no --output"}},
      {{"validate", "--classics"}, {"--classics", "no --measured"}},
      {{"validate", "--without", "torchtitann"}, {"--without", "did you mean 'torchtitan"}},
      {{"profile", "-o", "p", "--only", "gem"}, {"--only", "'gem'", "did you mean 'gemm'?"}},
      {{"profile", "-o", "p", "--types", ""}, {"--types", "an empty text"}},
      {{"catalog"}, {"nothing", "gpus, instances, models"}},
      {{"catalog", "gpu"}, {"'gpu'", "did you mean 'gpus'?"}},
      {{"catalog", "gpus", "models"}, {"2 arguments"}},
  }));
  CAPTURE(row.arguments);
  check_refused(place.run(row.arguments), row.parts);
}

TEST_CASE("a value that is no value of its option is refused") {
  const Workplace place;
  const auto row = GENERATE(values<Refusal>({
      {{"--global-batch", "0"}, {"'0'", "from 1 to 10000000"}},
      {{"--global-batch", "-3"}, {"'-3'"}},
      {{"--global-batch", "1e3"}, {"'1e3'"}},
      {{"--global-batch", "nan"}, {"'nan'"}},
      {{"--global-batch", ""}, {"''"}},
      {{"--global-batch", "99999999999999999999999"}, {"from 1 to 10000000"}},
      {{"--sequence", "999999999999"}, {"--sequence"}},
      {{"--top", "0"}, {"from 1 to 1000"}},
      {{"--top", "99999999999"}, {"from 1 to 1000"}},
      {{"--jobs", "0"}, {"from 1 to 1024"}},
      {{"--jobs", "99999999999999999999"}, {"from 1 to 1024"}},
      {{"--seed", "-1"}, {"--seed"}},
      {{"--tokens", "0"}, {"--tokens", "'0'"}},
      {{"--tokens", "inf"}, {"'inf'"}},
      {{"--tokens", "nan"}, {"'nan'"}},
      {{"--tokens", "1e18P"}, {"from 1 to 1e18"}},
      {{"--tokens", "5X"}, {"'5X'"}},
      {{"--tokens", "1T", "--budget", "100"}, {"the unit is missing", "2000 USD"}},
      {{"--tokens", "1T", "--budget", "-5 USD"}, {"negative"}},
      {{"--tokens", "1T", "--budget", "nan USD"}, {"not a finite number"}},
      {{"--tokens", "1T", "--budget", "1e400 USD"}, {"out of range"}},
      {{"--tokens", "1T", "--deadline", "3USD"}, {"that is the unit of an amount of money"}},
      {{"--budget", "5 USD"}, {"--budget", "no --tokens"}},
      {{"--mode", "cost"}, {"neither --budget nor --deadline"}},
      {{"--mode", "heterogenous"}, {"did you mean 'heterogeneous'?"}},
      {{"--precision", "bf61"}, {"did you mean 'bf16'?"}},
      {{"--precision", "fp8"}, {"'fp8'", "A100-SXM4-80GB", "'a100'"}},
      {{"--rule", ""}, {"--rule"}},
      {{"--rule", "1"}, {"true or false"}},
      {{"--rule", "$tensor_model_parallel_size >"}, {"the end"}},
      {{"--rule", "$tensor_model_parallel_sise > 1"}, {"did you mean 'tensor_model_parallel_size'?"}},
      {{"--rule", "\x01\n\xff"}, {"\\x01\\n\\xff"}},
      {{"--model", "gpt2-345n"}, {"did you mean 'gpt2-345m'?"}},
      {{"--model", ""}, {"''"}},
      {{"--model", "."}, {"'.'"}},
      {{"--cluster", ""}, {"''"}},
      {{"--cluster", "demo-a100-h10"}, {"did you mean 'demo-a100-h100'?"}},
  }));
  CAPTURE(row.arguments);
  check_refused(place.run(small_search(row.arguments)), row.parts);
  CHECK(place.names() == Words{"space.yaml", "two.yaml"});
}

TEST_CASE("what-ifs of a replay take what makes sense and refuse the rest") {
  const Workplace place;
  place.write("d.yaml",
              "schedule: 1f1b\nmicrobatches: 4\nstages: [{forward: 1ms, backward: 2ms}, {forward: 1ms, "
              "backward: 2ms}]\n"
              "message: 16MiB\nlink: {bandwidth: 50GBps, latency: 1us}\n");
  const auto replay = [&](Words more) {
    more.insert(more.begin(), {"replay", "--durations", "d.yaml"});
    return place.run(more);
  };
  CHECK(replay({"--jitter", "0.1", "--runs", "5", "--iterations", "3", "--slow", "1.0=1.5"}).code == 0);
  check_refused(replay({"--jitter", "nan"}), {"--jitter", "'nan'", "from 0 to 2"});
  check_refused(replay({"--jitter", "-1"}), {"'-1'"});
  check_refused(replay({"--jitter", "1e9"}), {"from 0 to 2"});
  check_refused(replay({"--runs", "5"}), {"no --jitter"});
  check_refused(replay({"--runs", "0", "--jitter", "0.1"}), {"from 1 to 100000"});
  check_refused(replay({"--iterations", "0"}), {"--iterations"});
  check_refused(replay({"--slow", "x"}), {"--slow", "STAGE=FACTOR"});
  check_refused(replay({"--slow", "9=2"}), {"--slow"});
  check_refused(replay({"--slow", "0=nan"}), {"--slow"});
  check_refused(replay({"--slow", "0=2@5", "--iterations", "5"}), {"iteration 5", "below the 5"});
  CHECK(replay({"--slow", "0=2@4", "--iterations", "5"}).code == 0);
  check_refused(replay({"--algorithm", "rign"}), {"did you mean 'ring'?"});
  check_refused(replay({"--schedule-file", "none.csv"}), {"none.csv"});
}

TEST_CASE("a schedule file that does not split the backward plays all of a split one") {
  const Workplace place;
  // One stage pair, two microbatches, 1F1B: 2 x (1 + 3) ms and a bubble of (1 + 3) ms, W being 1 of the 3.
  const std::string stages =
      "stages: [{forward: 1ms, backward: 2ms, weight_gradient: 1ms}, {forward: 1ms, backward: 2ms, "
      "weight_gradient: 1ms}]\n"
      "tensor: {ranks: 2, message: 1KiB, per_forward: 1, per_backward: 1}\n"
      "message: 1B\nlink: {bandwidth: 1e6GBps, latency: 0us}\n";
  place.write("split.yaml", "schedule: zb-h1\nmicrobatches: 2\np2p: eager\n" + stages);
  place.write("1f1b.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  const ProgramResult played =
      place.run({"replay", "--durations", "split.yaml", "--schedule-file", "1f1b.csv", "--json"});
  CAPTURE(played.err);
  REQUIRE(played.code == 0);
  const auto json = nlohmann::json::parse(played.out);
  CHECK(json.at("iteration_s").get<double>() == Approx((2 + 1) * (1 + 3) * 1e-3).epsilon(0.01));
}

TEST_CASE("a built-in schedule written as a file idles in the same phases on every stage") {
  struct Row {
    ScheduleKind kind;
    int stages, chunks, microbatches, group;
  };
  // Fewer microbatches than stages, as many, one less than that, more.
  const Row row = GENERATE(values<Row>({{ScheduleKind::gpipe, 4, 1, 2, 0},
                                        {ScheduleKind::gpipe, 3, 1, 6, 0},
                                        {ScheduleKind::one_f_one_b, 2, 1, 1, 0},
                                        {ScheduleKind::one_f_one_b, 4, 1, 2, 0},
                                        {ScheduleKind::one_f_one_b, 4, 1, 3, 0},
                                        {ScheduleKind::one_f_one_b, 4, 1, 4, 0},
                                        {ScheduleKind::one_f_one_b, 4, 1, 9, 0},
                                        {ScheduleKind::interleaved, 2, 2, 2, 2},
                                        {ScheduleKind::interleaved, 2, 2, 3, 3},
                                        {ScheduleKind::interleaved, 4, 2, 8, 4},
                                        {ScheduleKind::interleaved, 4, 3, 11, 7}}));
  const bool interleaved = row.kind == ScheduleKind::interleaved;
  const ScheduleShape shape{row.kind,   TransferMode::eager, row.stages,
                            row.chunks, row.microbatches,    row.group};
  std::string stages;
  for (int stage = 0; stage < row.stages; ++stage) {
    // The slowest in the middle, so that those before and behind it wait in their warm-up, steady phase and
    // drain.
    const std::string times =
        stage == row.stages / 2 ? "{forward: 3ms, backward: 5ms}" : "{forward: 1ms, backward: 2ms}";
    std::string chunks;
    for (int chunk = 0; chunk < row.chunks; ++chunk) chunks += (chunk > 0 ? ", " : "") + times;
    stages += "  - " + (interleaved ? "{chunks: [" + chunks + "]}" : times) + "\n";
  }
  const Workplace place;
  place.write("d.yaml", "schedule: " + std::string(to_text(row.kind)) + "\nmicrobatches: " +
                            std::to_string(row.microbatches) + "\np2p: eager\nstages:\n" + stages +
                            (interleaved ? "microbatch_group: " + std::to_string(row.group) + "\n" : "") +
                            "message: 1MiB\nlink: {bandwidth: 10GBps, latency: 1us}\n");
  place.write("order.csv", to_csv(make_schedule(shape)));
  const auto played = [&](const Words& more) {
    Words words{"replay", "--durations", "d.yaml", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult run = place.run(words);
    CAPTURE(run.err);
    REQUIRE(run.code == 0);
    return nlohmann::json::parse(run.out).at("stages");
  };
  CAPTURE(to_text(row.kind), row.stages, row.microbatches);
  CHECK(played({"--schedule-file", "order.csv"}) == played({}));
}

// One stage, two microbatches: F 1 ms, I 2 ms, W 1 ms each, whatever the schedule of the durations is.
TEST_CASE("a schedule file may split the backward of durations that have a weight gradient") {
  const Workplace place;
  const auto replay = [&](const std::string& row) {
    place.write("d.yaml", "schedule: 1f1b\nmicrobatches: 2\np2p: eager\nstages: [" + row +
                              "]\nmessage: 1B\nlink: {bandwidth: 1GBps, latency: 0us}\n");
    place.write("split.csv", "0F0,0I0,0F1,0I1,0W0,0W1\n");
    return place.run({"replay", "--durations", "d.yaml", "--schedule-file", "split.csv", "--json"});
  };
  const ProgramResult played = replay("{forward: 1ms, backward: 2ms, weight_gradient: 1ms}");
  CAPTURE(played.err);
  REQUIRE(played.code == 0);
  const auto json = nlohmann::json::parse(played.out);
  CHECK(json.at("iteration_s").get<double>() == Approx(2 * (1 + 2 + 1) * 1e-3));
  CHECK(json.at("activities") == 2 * 3);
  check_refused(replay("{forward: 1ms, backward: 3ms}"), {"split.csv", "weight_gradient in every row"});
}

TEST_CASE("options that a collective alone does not know are refused, and its results are written") {
  const Workplace place;
  const auto collective = [&](Words more) {
    more.insert(more.begin(), {"replay", "--collective", "all_reduce", "--cluster", "a100-64", "--gpus", "8",
                               "--message", "1MiB"});
    return place.run(more);
  };
  for (const Words& option : {Words{"--runs", "5"}, Words{"--slow", "0=2"}, Words{"--no-fold"}})
    check_refused(collective(option), {option.front(), "--plan or --durations"});
  place.write("cut.yaml", kTwoNodes + "links: [{name: a100.node0.nic0.up, state: down}]\n");
  check_refused(
      place.run({"replay", "--collective", "all_reduce", "--cluster", "cut.yaml", "--message", "1MiB"}),
      {"a100.node0.nic0.up is down"});
  REQUIRE(collective({"-o", "c.json"}).code == 0);
  CHECK(nlohmann::json::parse(place.read("c.json")).at("gpus") == 8);
}

TEST_CASE("one collective is also told as the models of measured ones have it") {
  const Workplace place;
  const auto played = [&](const char* kind) {
    const ProgramResult run = place.run({"replay", "--collective", kind, "--cluster", "h100-512", "--gpus",
                                         "8", "--message", "64MiB", "--message", "1MiB", "--json"});
    REQUIRE(run.code == 0);
    return nlohmann::json::parse(run.out);
  };
  const auto predicted = played("all_to_all").at("predicted");
  REQUIRE(predicted.size() == 2);
  CHECK(predicted[0].at("bytes") == 64 * 1024 * 1024);
  // 215 us (cost_models_test.cpp: "collectives take what was measured"); less than the links need is
  // impossible.
  CHECK(predicted[0].at("time_s").get<double>() == Approx(215e-6).epsilon(0.1));
  CHECK(predicted[0].at("time_s") > predicted[1].at("time_s"));
  CHECK(predicted[0].at("extrapolated") == false);
}

TEST_CASE("a collective that no model of measured ones has is said to be none that is predicted") {
  const Workplace place;
  const auto played = [&](const char* kind, const Words& more) {
    Words words{"replay", "--collective", kind, "--cluster", "a100-64", "--gpus", "8", "--message", "1MiB"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult run = place.run(words);
    REQUIRE(run.code == 0);
    return run.out;
  };
  const auto broadcast = nlohmann::json::parse(played("broadcast", {"--json"}));
  CHECK(broadcast.at("predicted").is_null());
  CHECK(broadcast.at("results").size() > 0);
  const std::string text = played("broadcast", {});
  CHECK_THAT(text, !contains_text("as measured: "));
  CHECK_THAT(text,
             contains_text("no prediction as measured is known:\nno plan sends a broadcast, and no model"));
  // A row of a prediction and the remark that says what it is go together.
  const std::string predicted = played("all_reduce", {});
  CHECK_THAT(predicted, contains_text("  as measured  "));
  CHECK_THAT(predicted, contains_text("as measured: what a plan pays"));
  CHECK_THAT(predicted, !contains_text("is known"));
}

// A ring leaves a leaf of two nodes with what one of them sends: by uplinks of a quarter of their NICs it
// goes at half the speed. One NIC at a tenth slows all hops.
TEST_CASE("what plans pay for a collective is told of the cluster's fabric and links") {
  const Workplace place;
  const auto times = [&](const std::string& cluster) {
    place.write(
        "c.yaml",
        "groups:\n  - {name: g, gpu: A100-SXM4-80GB, gpus_per_node: 8, nics_per_node: 8, nic_bandwidth: "
        "200Gbps, count: 4, price: 10 USD/h}\n" +
            cluster);
    const ProgramResult run = place.run(
        {"replay", "--collective", "all_gather", "--cluster", "c.yaml", "--message", "1GiB", "--json"});
    CAPTURE(run.err);
    REQUIRE(run.code == 0);
    const auto json = nlohmann::json::parse(run.out);
    const double paid = json.at("predicted")[0].at("time_s");
    CHECK(paid >= json.at("results")[0].at("least_s").get<double>());
    return paid;
  };
  const double alone = times("");
  CHECK(times("fabric: {nodes_per_leaf: 2, oversubscription: 4}\n") == Approx(2 * alone).epsilon(0.02));
  CHECK(times("fabric: {nodes_per_leaf: 2, oversubscription: 1}\n") == Approx(alone).epsilon(5e-3));
  CHECK(times("links: [{name: g.node1.nic3.up, bandwidth: 0.1x}]\n") > 4 * alone);
}

TEST_CASE("the largest values that options take end within seconds") {
  const Workplace place;
  const auto row = GENERATE(values<Words>({{"--global-batch", "10000000"},
                                           {"--sequence", "100000000"},
                                           {"--jobs", "1024"},
                                           {"--top", "1000"},
                                           {"--seed", "4611686018427387904"},
                                           {"--tokens", "1e18", "--budget", "1e15 USD"}}));
  CAPTURE(row);
  const ProgramResult result = place.run(small_search(row));
  CAPTURE(result.err);
  CHECK((result.code == 0 || result.code == 1));
}

TEST_CASE("--help of every command begins with an example, and --version says one line") {
  const Workplace place;
  const auto command =
      GENERATE(values<std::string>({"search", "replay", "report", "export", "launch", "catalog", "fit"}));
  const ProgramResult result = place.run({command, "--help"});
  CHECK(result.code == 0);
  CHECK(result.err.empty());
  CHECK(result.out.rfind("Example:\n  orrery " + command + " ", 0) == 0);
  CHECK(place.run({"--help"}).out.find("\n  " + command + " ") != std::string::npos);
  CHECK(place.run({"--version"}).out.rfind("orrery ", 0) == 0);
}

namespace {

// The words of the example of a command, without "orrery".
Words example_of(const Workplace& place, const std::string& command) {
  std::istringstream line(place.run({command, "--help"}).out.substr(std::string("Example:\n").size()));
  Words words;
  std::string word;
  line >> word;
  for (std::getline(line, word); word.find_first_not_of(' ') != std::string::npos;) {
    std::istringstream rest(word);
    words.clear();
    while (rest >> word) words.push_back(word);
    break;
  }
  return words;
}

}  // namespace

TEST_CASE("the runs of two seeds are other runs") {
  const Workplace place;
  place.write("d.yaml",
              "schedule: 1f1b\nmicrobatches: 4\nstages: [{forward: 1ms, backward: 2ms}]\n"
              "message: 16MiB\nlink: {bandwidth: 50GBps, latency: 1us}\n");
  const auto replayed = [&](const std::string& seed) {
    return run_json(place,
                    {"replay", "--durations", "d.yaml", "--jitter", "0.1", "--runs", "2", "--seed", seed});
  };
  const auto first = replayed("1"), next = replayed("2");
  // The first of two runs is the one played: the mean tells the second.
  const double played = first.at("iteration_s"),
               second = 2 * first.at("runs").at("mean_s").get<double>() - played;
  CHECK(std::abs(second - played) > 1e-9);
  CHECK(std::abs(second - next.at("iteration_s").get<double>()) > 1e-9);
}

TEST_CASE("the built program does what its copy in these tests does") {
  const Workplace place;
  for (const Words& words : {Words{}, Words{"--version"}, Words{"catalog", "schedules"}, Words{"serach"},
                             small_search({"--no-such-option"}), small_search({"--rule", "true"})}) {
    CAPTURE(words);
    const ProgramResult copy = place.run(words);
    const ProgramResult built = run_orrery(words, {.folder = place.file(""), .start = ProgramStart::binary});
    CHECK(built.code == copy.code);
    CHECK(built.out == copy.out);
    CHECK(built.err == copy.err);
  }
}

TEST_CASE("the examples of --help work one after the other") {
  const Workplace place;
  REQUIRE(place.run(small_search({"-o", "out"})).code == 0);
  for (const std::string command : {"replay", "report", "export", "launch", "catalog"}) {
    const Words words = example_of(place, command);
    CAPTURE(words);
    CHECK(words.front() == command);
    const ProgramResult result = run_orrery(words, {.folder = place.file(""), .start = ProgramStart::binary});
    CAPTURE(result.err);
    CHECK(result.code == 0);
  }
  // The example of search takes seconds: its options are tried with the model and cluster that do not exist.
  Words search = example_of(place, "search");
  *(std::find(search.begin(), search.end(), "--model") + 1) = "no-such-model";
  check_refused(place.run(search), {"no-such-model"});
  check_refused(place.run(example_of(place, "fit")), {"measured/", "no readable folder"});
}

}  // namespace orrery
