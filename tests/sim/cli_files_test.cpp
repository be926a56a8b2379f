// Files: whatever is in them, a wrong one is refused in one line, and none of ours is left half-written.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "sim/commands/commands.hpp"
#include "tests/catch.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

using Words = std::vector<std::string>;

struct WrongFile {
  std::string name, content;
  Words command;  // that reads it
  Words parts;    // of the message
};

Words on_cluster(const std::string& name) {
  return small_search({"--cluster", name});
}
Words on_model(const std::string& name) {
  return small_search({"--model", name});
}
Words in_space(const std::string& name) {
  return small_search({"--space", name});
}

const std::string kGroup = "gpu: A100-SXM4-80GB, gpus_per_node: 2, nic_bandwidth: 200Gbps";

std::string cluster_with(const std::string& group) {
  return "{name: x, groups: [{name: a, " + group + "}]}\n";
}

std::string plan_of(const std::string& model, const std::string& cluster) {
  return "cluster: " + cluster + "\nmodel: " + model +
         "\nglobal_batch: 2\nsequence: 1024\nnodes: [1]\nstages: [{tensor: 1}]\nparts: [[0, 24]]\n";
}

std::string durations_with(const std::string& lines) {
  return lines +
         "stages: [{forward: 1ms, backward: 2ms}, {forward: 1ms, backward: 2ms}]\nmessage: 16MiB\n"
         "link: {bandwidth: 50GBps, latency: 1us}\n";
}

std::string indented(const std::string& lines) {
  std::string moved = "  ";
  for (const char c : lines) moved += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return moved + "\n";
}

std::string binary_junk() {
  std::mt19937 random(7);
  std::string junk;
  for (int i = 0; i < 3000; ++i) junk += static_cast<char>(random());
  return junk;
}

}  // namespace

TEST_CASE("a wrong cluster is refused with file, line and key") {
  const Workplace place;
  const auto row = GENERATE(values<WrongFile>({
      {"c.yaml",
       cluster_with("gpu: A100-SXM4-80GB, gpus_per_node: 2, nic_bandwidth: 200, count: 1"),
       {},
       {"c.yaml:1: groups[0].nic_bandwidth", "'200'", "the unit is missing", "400Gbps"}},
      {"c.yaml",
       cluster_with("gpu: A100-SXM4-80GB, gpus_per_node: 2, nic_bandwidth: 0Gbps, count: 1"),
       {},
       {"nic_bandwidth", "above zero"}},
      {"c.yaml",
       cluster_with("gpu: A100-SXM4-80GB, gpus_per_node: 2, nic_bandwidth: -1Gbps, count: 1"),
       {},
       {"nic_bandwidth", "negative"}},
      {"c.yaml",
       cluster_with("gpu: A100-SXM4-80GB, gpus_per_node: 2, nic_bandwidth: 1e-300bps, count: 1"),
       {},
       {"nic_bandwidth", "1e-15 or more"}},
      {"c.yaml",
       cluster_with("gpu: A100-SXM4-80GB, gpus_per_node: 2, nic_bandwidth: 1e30Gbps, count: 1"),
       {},
       {"nic_bandwidth", "absurdly large"}},
      {"c.yaml",
       cluster_with("gpu: A100-SXM4-80GB, gpus_per_node: 2, nic_bandwidth: nan Gbps, count: 1"),
       {},
       {"nic_bandwidth", "not a finite number"}},
      {"c.yaml", cluster_with(kGroup + ", count: 0"), {}, {"count", "at least 1"}},
      {"c.yaml", cluster_with(kGroup + ", count: 4..2"), {}, {"count"}},
      {"c.yaml", cluster_with(kGroup + ", count: 1, nics: 2"), {}, {"unknown key 'nics'"}},
      {"c.yaml",
       cluster_with("gpu: A100-SXM4-80G, gpus_per_node: 2, nic_bandwidth: 200Gbps, count: 1"),
       {},
       {"did you mean 'A100-SXM4-80GB'?"}},
      {"c.yaml", "name: x\nname: y\n", {}, {"c.yaml:2", "'name' a second time", "line 1"}},
      {"c.yaml", "{name: x, groups: [{name: a", {}, {"c.yaml:1"}},
      {"c.yaml", "", {}, {"nothing"}},
      {"ü 夸.yaml", "[]", {}, {"ü 夸.yaml:1"}},
  }));
  CAPTURE(row.content);
  place.write(row.name, row.content);
  check_refused(place.run(on_cluster(row.name)), row.parts);
}

TEST_CASE("a SimGrid platform without a route, or that is none, is refused in one line of ours") {
  const Workplace place;
  const std::string host = "speed=\"1Gf\"><prop id=\"gpu\" value=\"T4\"/></host>";
  const auto body = GENERATE_COPY(values<std::string>(
      {"<zone id=\"z\" routing=\"Full\"><host id=\"a\" " + host + "<host id=\"b\" " + host + "</zone>",
       "<nonsense/>", "<zone id=\"z\"", std::string("\0\xff", 2)}));
  place.write("p.xml",
              "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
              "<platform version=\"4.1\">" +
                  body + "</platform>\n");
  check_refused(place.run(on_cluster("p.xml")), {"p.xml", "a platform file of SimGrid"});
}

TEST_CASE("a job file stands for options, and the command line goes before it") {
  const Workplace place;
  const Words given{"search",
                    "--model",
                    "gpt2-345m",
                    "--cluster",
                    "two.yaml",
                    "--global-batch",
                    "8",
                    "--sequence",
                    "512",
                    "--rule",
                    "$pipeline_model_parallel_size > 2",
                    "--space",
                    "space.yaml",
                    "--top",
                    "2",
                    "--json"};
  place.write("job.yaml",
              "model: gpt2-345m\ncluster: two.yaml\nglobal-batch: 16\nsequence: 512\ntop: 2\njson: true\n"
              "rule: [$pipeline_model_parallel_size > 2]\nspace:\n" +
                  indented(place.read("space.yaml")));
  const auto by_options = nlohmann::json::parse(place.run(given).out);
  const auto by_file =
      nlohmann::json::parse(place.run({"search", "--job", "job.yaml", "--global-batch", "8"}).out);
  REQUIRE(!by_options["plans"].empty());
  CHECK(by_file["space"] == by_options["space"]);
  CHECK(by_file["plans"] == by_options["plans"]);
}

TEST_CASE("wrong models, spaces, rules, plans and durations are refused with file and key") {
  const Workplace place;
  const auto row = GENERATE(values<WrongFile>({
      {"m.json", "{\"model_type\": \"gpt2\", ", on_model("m.json"), {"m.json:1", "broken JSON"}},
      {"m.json", "[]", on_model("m.json"), {"a list", "a JSON object"}},
      {"m.json", R"({"model_type": "gpt3"})", on_model("m.json"), {"gpt3"}},
      {"m.json",
       R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 0, "n_head": 2, "vocab_size": 9})",
       on_model("m.json"),
       {"n_layer", "0"}},
      {"m.json",
       R"({"model_type": "gpt2", "n_embd": 1e99, "n_layer": 2, "n_head": 2, "vocab_size": 9})",
       on_model("m.json"),
       {"n_embd"}},
      {"m.yaml", "name: x\nhidden: 4\n", on_model("m.yaml"), {"m.yaml:1", "no key"}},
      {"s.yaml",
       "tensor_model_paralel_size: 1",
       in_space("s.yaml"),
       {"did you mean 'tensor_model_parallel_size'?"}},
      {"s.yaml", "tensor_model_parallel_size: 0", in_space("s.yaml"), {"from 1 to 65536"}},
      {"s.yaml", "micro_batch_size: [1, 1]", in_space("s.yaml"), {"each choice once"}},
      {"s.yaml", "schedule: 1f1c", in_space("s.yaml"), {"'1f1c'"}},
      {"r.txt", "# one\n$no_such_name == 1\n", small_search({"--rules", "r.txt"}), {"r.txt:2"}},
      {"j.yaml", "jobs: 0\n", small_search({"--job", "j.yaml"}), {"j.yaml:1: jobs", "'0'", "from 1 to 1024"}},
      {"j.yaml", "tops: 1\n", small_search({"--job", "j.yaml"}), {"j.yaml:1", "did you mean 'top'?"}},
      {"j.yaml", "quiet: 3\n", small_search({"--job", "j.yaml"}), {"j.yaml:1: quiet", "'3'"}},
      {"j.yaml", "budget: {most: 3}\n", small_search({"--job", "j.yaml"}), {"j.yaml:1: budget", "a map"}},
      {"j.yaml",
       "top: 1\nspace: {micro_batch_size: [0]}\n",
       {"search", "--model", "gpt2-345m", "--cluster", "two.yaml", "--global-batch", "8", "--job", "j.yaml"},
       {"j.yaml:2: space.micro_batch_size[0]", "'0'"}},
      {"p.yaml", "model: x\n", {"replay", "--plan", "p.yaml"}, {"p.yaml:1", "no key"}},
      {"p.yaml",
       plan_of("gpt2-345n", "two.yaml"),
       {"replay", "--plan", "p.yaml"},
       {"p.yaml:2: model", "'gpt2-345m'"}},
      {"p.yaml",
       plan_of("gpt2-345m", "a100-46"),
       {"launch", "--plan", "p.yaml"},
       {"p.yaml:1: cluster", "'a100-64'"}},
      {"d.yaml",
       durations_with("schedule: 1f1c\nmicrobatches: 4\n"),
       {"replay", "--durations", "d.yaml"},
       {"d.yaml:1: schedule", "did you mean '1f1b'?"}},
      {"d.yaml",
       durations_with("schedule: 1f1b\nmicrobatches: -4\n"),
       {"replay", "--durations", "d.yaml"},
       {"d.yaml:2: microbatches", "'-4'"}},
      {"d.yaml",
       durations_with("schedule: 1f1b\nmicrobatches: 4\nmicrobatches: 5\n"),
       {"replay", "--durations", "d.yaml"},
       {"d.yaml:3", "a second time"}},
      {"d.yaml",
       durations_with("schedule: 1f1b\nmicrobatches: 4\nreplicas: 65536\n") + "x: 1\n",
       {"replay", "--durations", "d.yaml"},
       {"unknown key 'x'"}},
      {"d.yaml",
       durations_with("schedule: 1f1b\nmicrobatches: 1000000\nreplicas: 65536\n"),
       {"replay", "--durations", "d.yaml"},
       {"at most 100 million"}},
  }));
  CAPTURE(row.content);
  place.write(row.name, row.content);
  check_refused(place.run(row.command), row.parts);
}

TEST_CASE("a file that does not exist, a folder, and binary junk are refused as every kind of file") {
  const Workplace place;
  place.write("junk.json", binary_junk());
  place.write("junk.yaml", binary_junk());
  std::filesystem::create_directory(place.file("folder.yaml"));
  const std::string name = GENERATE("none.yaml", "folder.yaml", "junk.yaml", "junk.json");
  const auto command = GENERATE_COPY(values<Words>({on_cluster(name),
                                                    on_model(name),
                                                    in_space(name),
                                                    small_search({"--rules", name}),
                                                    small_search({"--costs", name}),
                                                    {"replay", "--plan", name},
                                                    {"replay", "--durations", name},
                                                    {"launch", "--plan", name},
                                                    {"report", name},
                                                    {"export", name, "-o", "x"},
                                                    {"fit", "--profiles", name, "-o", "x"}}));
  CAPTURE(command);
  const Words before = place.names();
  check_refused(place.run(command), {name});
  CHECK(place.names() == before);
}

TEST_CASE("a space with absurd ways, and a cluster with too many kinds, end with a message") {
  const Workplace place;
  place.write("s.yaml", "tensor_model_parallel_size: 65536\ncontext_parallel_size: 65536\n");
  CHECK(place.run(in_space("s.yaml")).code == 1);
  std::string groups;
  int dollars = 0;  // else all six were alike, and few plans no mirror images of others
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    groups += std::string(groups.empty() ? "" : ", ") + "{name: " + name + ", " + kGroup +
              ", count: 0..9, price: " + std::to_string(++dollars) + " USD/h}";
  }
  place.write("c.yaml", "{name: six, groups: [" + groups + "]}");
  check_refused(place.run(on_cluster("c.yaml")), {"six", "more than forty million", "--space"});
}

TEST_CASE("nothing is written below a file, in /proc, or to a full device") {
  const Workplace place;
  REQUIRE(place.run(small_search()).code == 0);
  const Words before = place.names();
  const std::vector<WrongFile> rows{
      {"", "", small_search({"-o", "two.yaml/x"}), {"two.yaml/x"}},
      {"", "", small_search({"-o", "/proc/x"}), {"/proc/x"}},
      {"", "", small_search({"-o", "/dev/full"}), {"/dev/full"}},
      {"", "", {"replay", "--plan", "out/plan-01.yaml", "-o", "two.yaml/x.h5"}, {"two.yaml/x.h5"}},
      {"", "", {"replay", "--plan", "out/plan-01.yaml", "-o", "."}, {"directory"}},
      {"", "", {"replay", "--plan", "out/plan-01.yaml", "-o", "/dev/full"}, {"/dev/full", "No space left"}},
      {"", "", {"report", "out", "-o", "/dev/full"}, {"/dev/full", "No space left"}},
      {"", "", {"report", "out", "-o", "two.yaml/x"}, {"two.yaml/x"}},
      {"", "", {"export", "out/trace-01.h5", "-o", "/dev/full"}, {"/dev/full", "No space left"}},
      {"", "", {"export", "--format", "csv", "out/trace-01.h5", "-o", "/proc/x"}, {"/proc/x"}},
      {"", "", {"launch", "--plan", "out/plan-01.yaml", "-o", "two.yaml/x"}, {"two.yaml/x.args"}},
  };
  for (const WrongFile& row : rows) {
    CAPTURE(row.command);
    check_refused(place.run(row.command), row.parts);
    CHECK(place.names() == before);
  }
}

TEST_CASE("a folder is no place for an export, whichever format it has") {
  const Workplace place;
  REQUIRE(place.run(small_search({"--top", "1"})).code == 0);
  const auto everything = [&] {
    Words names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(place.file("")))
      names.push_back(entry.path().string());
    std::sort(names.begin(), names.end());
    return names;
  };
  const Words before = everything();
  for (const char* format : {"perfetto", "chakra", "paje", "csv"}) {
    for (const std::string folder : {"out", "out/"}) {
      CAPTURE(format, folder);
      check_refused(place.run({"export", "--format", format, "out/trace-01.h5", "-o", folder}),
                    {folder + ": found Is a directory; expected a file name"});
      CHECK(everything() == before);
    }
  }
}

TEST_CASE("no file takes the number of a standard stream that is closed") {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int stream : {0, 1, 2}) ::close(stream);
    std::string words[] = {"orrery", "--version"};
    char* pointers[] = {words[0].data(), words[1].data(), nullptr};
    const int code = run_program(2, pointers);
    ::_exit(code == 2 ? ::open("/dev/null", O_RDONLY) : 0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) > 2);
}

TEST_CASE("a path too long for the system is wrong input, whatever it is for") {
  const Workplace place;
  const std::string path(5000, 'x');
  REQUIRE(place.run(small_search()).code == 0);
  for (const Words& command :
       std::vector<Words>{on_model(path),
                          on_cluster(path),
                          in_space(path),
                          small_search({"-o", path}),
                          {"replay", "--plan", path},
                          {"replay", "--plan", "out/plan-01.yaml", "--layer-profile", path},
                          {"replay", "--plan", "out/plan-01.yaml", "-o", path},
                          {"report", path},
                          {"export", path, "-o", "x"},
                          {"validate", "--measured", path},
                          {"fit", "--profiles", path, "-o", "x"}}) {
    CAPTURE(command.front());
    check_refused(place.run(command), {"xxx"});
  }
}

TEST_CASE("a column of a table of runs whose title is nearly a known one is named") {
  const Workplace place;
  place.write("runs.csv", "id,source_key,gpu,n_gpus,tpp,seqq,evidence\nr,mine,A100,8,2,1024,seen\n");
  const ProgramResult said = place.run({"validate", "--measured", "runs.csv"});
  CHECK_THAT(said.err, contains_text("runs.csv: column 'tpp' is not read, did you mean 'tp'?"));
  CHECK_THAT(said.err, contains_text("column 'seqq' is not read, did you mean 'seq'?"));
  CHECK(said.err.find("evidence") == std::string::npos);
  CHECK(place.run({"validate", "--measured", "runs.csv", "--quiet"}).err.empty());
}

TEST_CASE("titles that mean known columns, rows without an id and short rows are said") {
  const Workplace place;
  place.write("runs.csv",
              "id,source_key,gpu,n_gpus,recomputation,tensor_model_parallel_size,Framework,notes of mine\n"
              "NA,mine,A100,8,full,2,,\n,mine,A100,8,full\nr,mine,A100,8,full,2,,\n");
  const ProgramResult said = place.run({"validate", "--measured", "runs.csv", "--json"});
  for (const char* remark :
       {"runs.csv: column 'recomputation' is not read, did you mean 'recompute'?",
        "column 'tensor_model_parallel_size' is not read, did you mean 'tp'?",
        "column 'Framework' is not read, did you mean 'framework'?",
        "rows without an id are called by their line: line 2, line 3",
        "rows with fewer cells than the header, the last of which are taken as blank: line 3"}) {
    CHECK_THAT(said.err, contains_text(remark));
    CHECK_THAT(said.out, contains_text(remark));
  }
  CHECK(said.err.find("notes of mine") == std::string::npos);
  CHECK_THAT(said.out, contains_text("\"line 2\""));
  CHECK(said.out.find("a second row of this id") == std::string::npos);
}

TEST_CASE("a table without a needed column, or with a row that lacks one, is refused") {
  const Workplace place;
  const auto refused = [&](const std::string& table, const std::vector<std::string>& words) {
    place.write("runs.csv", table);
    check_refused(place.run({"validate", "--measured", "runs.csv"}), words);
  };
  refused("tp,source_key,gpu,n_gpus\n1,mine,A100,8\n", {"no column 'id'"});
  CHECK(place.run({"validate", "--measured", "runs.csv"}).err.find("did you mean") == std::string::npos);
  refused("name,source_key,gpu,n_gpus\nr,mine,A100,8\n", {"no column 'id'", "did you mean 'name'?"});
  refused("id,source_key,gpu,gpus\nr,mine,A100,8\n", {"no column 'n_gpus'", "did you mean 'gpus'?"});
  refused("id,source_key,gpu,n_gpus,tp\nr,mine,A100\n", {"line 2", "3 cells", "4 to 5, as the header has"});
  refused("id,source_key,gpu,n_gpus\nr,mine,A100,8,2\n", {"line 2", "5 cells", "4 to 4"});
}

TEST_CASE("a standard output that is full is said") {
  const Workplace place;
  REQUIRE(place.run(small_search()).code == 0);
  const std::vector<Words> commands{{"--version"},
                                    {"--help"},
                                    {"catalog", "gpus"},
                                    {"catalog", "models", "--json"},
                                    {"replay", "--plan", "out/plan-01.yaml"},
                                    {"launch", "--plan", "out/plan-01.yaml"},
                                    small_search({"--json", "--quiet"})};
  for (const Words& command : commands) {
    CAPTURE(command);
    check_refused(place.run(command, "/dev/full"), {"standard output"});
  }
}

TEST_CASE("a trace cut short anywhere is refused, and nothing is written from it") {
  const Workplace place;
  REQUIRE(place.run(small_search()).code == 0);
  const std::string trace = place.read("out/trace-01.h5");
  for (const std::size_t divisor : {2, 3, 5, 100}) {
    place.write("cut.h5", trace.substr(0, trace.size() - trace.size() / divisor));
    check_refused(place.run({"export", "cut.h5", "-o", "x.json"}), {"cut.h5"});
    check_refused(place.run({"report", "cut.h5", "-o", "x.html"}), {"cut.h5"});
  }
  CHECK_FALSE(std::filesystem::exists(place.file("x.json")));
  CHECK_FALSE(std::filesystem::exists(place.file("x.html")));
}

TEST_CASE("a plan of another cluster or model is refused with what does not fit") {
  const Workplace place;
  REQUIRE(place.run(small_search()).code == 0);
  const std::string plan = place.read("out/plan-01.yaml");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = plan;
    changed.replace(changed.find(from), from.size(), to);
    return place.write("p.yaml", changed);
  };
  for (const std::string command : {"replay", "launch"}) {
    check_refused(place.run({command, "--plan", with("two.yaml", "a100-64")}),
                  {"p.yaml", "not between 8 and 8"});
    check_refused(place.run({command, "--plan", with("two.yaml", "demo-a100-h100")}), {"p.yaml", "groups"});
    check_refused(place.run({command, "--plan", with("gpt2-345m", "llama2-7b")}), {"p.yaml", "layers"});
    check_refused(place.run({command, "--plan", with("gpt2-345m", "no-model")}), {"no-model"});
    check_refused(place.run({command, "--plan", with("global_batch: 16", "global_batch: 17")}),
                  {"p.yaml", "17"});
    check_refused(place.run({command, "--plan", with("tensor: 1", "tensor: 3")}), {"p.yaml", "tensor"});
    check_refused(place.run({command, "--plan", with("sequence: 1024", "sequence: 2048")}),
                  {"p.yaml", "2048"});
  }
  check_refused(
      place.run({"replay", "--plan", with("global_batch: 16", "stack: megatron-cor\nglobal_batch: 16")}),
      {"p.yaml:", ": stack", "'megatron-cor'", "'megatron-core'"});
}

TEST_CASE("a folder or file named like a built-in model does not get in its way") {
  const Workplace place;
  std::filesystem::create_directory(place.file("gpt2-345m"));
  CHECK(place.run(small_search()).code == 0);
}

}  // namespace orrery
