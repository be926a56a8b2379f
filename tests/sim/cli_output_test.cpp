// Commands that turn results into other files, and what people see of a search.
#include <nlohmann/json.hpp>

#include "costmodels/models/sha256.hpp"
#include "platforms/yaml.hpp"
#include "tests/catch.hpp"
#include "tests/sim/run_program.hpp"
#include "tests/traces/python.hpp"
#include "traces/trace.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::string made_up_gemms() {
  std::string csv = "source,gpu,dtype,op,model,tp,batch,M,N,K,time_us\n";
  for (int m = 128; m <= 8192; m *= 2) {
    for (int n = 1024; n <= 8192; n += 1024) {
      const double flops = 2.0 * m * n * 4096;
      csv += "test,A100-SXM4-80GB,bf16,mlp,toy,1,1," + std::to_string(m) + "," + std::to_string(n) +
             ",4096," + std::to_string(5 + flops / 200e12 * 1e6) + "\n";
    }
  }
  return csv;
}

}  // namespace

TEST_CASE("report takes traces or the folder of a search, and its page needs nothing else") {
  const Workplace place;
  REQUIRE(place.run(small_search()).code == 0);
  for (const Words& inputs : {Words{"out/trace-01.h5", "out/trace-02.h5"}, Words{"out"}}) {
    Words command{"report", "-o", "r.html"};
    command.insert(command.end(), inputs.begin(), inputs.end());
    const ProgramResult result = place.run(command);
    CAPTURE(result.err);
    CHECK(result.code == 0);
    CHECK(result.out.empty());
    const std::string page = place.read("r.html");
    CHECK(page.find("trace-02.h5") != std::string::npos);
    CHECK(page.find("src=\"http") == std::string::npos);
  }
  std::filesystem::create_directory(place.file("empty"));
  check_refused(place.run({"report", "empty"}), {"empty", "without traces"});
}

TEST_CASE("--json of a command that writes files names them") {
  const Workplace place;
  REQUIRE(place.run(small_search()).code == 0);
  for (const std::string command : {"report", "export"}) {
    const ProgramResult result = place.run({command, "out/trace-01.h5", "-o", "x", "--json"});
    CHECK(Json::parse(result.out).at("files") == Json::array({"x"}));
  }
}

TEST_CASE("export writes events that Perfetto opens, and one CSV row a span") {
  const Workplace place;
  REQUIRE(place.run(small_search()).code == 0);
  REQUIRE(place.run({"export", "--format", "perfetto", "out/trace-01.h5", "-o", "t.json"}).code == 0);
  const Json json = Json::parse(place.read("t.json"));
  CHECK(json.at("traceEvents").size() > 50);
  REQUIRE(place.run({"export", "--format", "csv", "out/trace-01.h5", "-o", "t.csv"}).code == 0);
  CHECK(lines_of(place.read("t.csv")) > 50);
}

TEST_CASE("launch files are those of the fastest plan that Megatron-LM runs") {
  const Workplace place;
  place.write("both.yaml",
              "tensor_model_parallel_size: 1\npipeline_model_parallel_size: 8\nmicro_batch_size: 1\n"
              "num_virtual_stages_per_pipeline_rank: 1\nschedule: [zb-h2, 1f1b]\n");
  const ProgramResult result =
      place.run({"search", "--model", "gpt2-345m", "--cluster", "amp-v100", "--sequence", "1024",
                 "--global-batch", "64", "--space", "both.yaml", "--top", "20", "-o", "out"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const auto runs_and_launch = [&](int rank) {
    const std::string number = (rank < 10 ? "0" : "") + std::to_string(rank);
    const std::string plan = place.read("out/plan-" + number + ".yaml");
    const bool has_launch = std::filesystem::exists(place.file("out/launch-" + number + ".args"));
    return std::pair(plan.find("schedule: zb-h2") == std::string::npos, has_launch);
  };
  REQUIRE_FALSE(runs_and_launch(1).first);
  CHECK(result.out.find("no launch file for plan 1: ") != std::string::npos);
  int first = 1;
  while (!runs_and_launch(first).first) {
    CHECK_FALSE(runs_and_launch(first).second);
    ++first;
  }
  CHECK(runs_and_launch(first).second);
  CHECK(result.out.find("out/launch-" + std::string(first < 10 ? "0" : "") + std::to_string(first) + ".sh") !=
        std::string::npos);
}

TEST_CASE("launch prints the script, or writes it with arguments and the map of ranks") {
  const Workplace place;
  REQUIRE(place.run(small_search()).code == 0);
  const std::string plan = "out/plan-01.yaml";
  const ProgramResult printed = place.run({"launch", "--plan", plan});
  CHECK(printed.out.rfind("#!", 0) == 0);
  REQUIRE(place.run({"launch", "--plan", plan, "-o", "l"}).code == 0);
  for (const std::string ending : {".args", ".sh", ".ranks"})
    CHECK(place.read("l" + ending) == place.read("out/launch-01" + ending));
  CHECK(place.read("l.sh").find("torchrun") != std::string::npos);
  CHECK(place.read("l.args").find("--tensor-model-parallel-size") != std::string::npos);
  const Json json = Json::parse(place.run({"launch", "--plan", plan, "--json"}).out);
  CHECK(json.at("arguments") == place.read("l.args"));
  CHECK(json.at("rank_map") == place.read("l.ranks"));
}

// A switch that a plan file forgot would be one in the arguments of `launch`.
TEST_CASE("launch writes what the search wrote, of fully sharded plans and of experts too") {
  struct Row {
    std::string model, space, said;
  };
  const Row row = GENERATE(values<Row>(
      {{"llama2-7b", "use_megatron_fsdp: true\npipeline_model_parallel_size: 1\nmicro_batch_size: 1\n",
        "--data-parallel-sharding-strategy optim_grads_params\n"},
       {"qwen3-30b-a3b",
        "expert_model_parallel_size: [4, 8]\npipeline_model_parallel_size: 2\nmicro_batch_size: 1\n"
        "tensor_model_parallel_size: 1\nnum_virtual_stages_per_pipeline_rank: 1\n",
        "--moe-grouped-gemm\n--moe-token-dispatcher-type alltoall\n"}}));
  const Workplace place;
  place.write("space.yaml", row.space);
  const ProgramResult result =
      place.run({"search", "--model", row.model, "--cluster", "a100-64", "--sequence", "2048",
                 "--global-batch", "64", "--space", "space.yaml", "--top", "1", "-o", "out"});
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  REQUIRE(place.run({"launch", "--plan", "out/plan-01.yaml", "-o", "l"}).code == 0);
  for (const std::string ending : {".args", ".sh", ".ranks"})
    CHECK(place.read("l" + ending) == place.read("out/launch-01" + ending));
  CHECK(place.read("l.args").find(row.said) != std::string::npos);
}

TEST_CASE("catalog lists are printed, or written with -o") {
  const Workplace place;
  const ProgramResult printed = place.run({"catalog", "clusters"});
  CHECK(printed.out.find("demo-a100-h100") != std::string::npos);
  CHECK(place.run({"catalog", "clusters", "-o", "c.txt"}).out.empty());
  CHECK(place.read("c.txt") == printed.out);
}

// tests/costmodels fits whole models; here only what a user of the command meets first.
TEST_CASE("fit says which table it lacks rows of, and writes no half of a set of models") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  place.write("measured/gemm_long.csv", made_up_gemms());
  check_refused(place.run({"fit", "--profiles", "measured", "-o", "costs"}),
                {"gemm", "at least 60", "add tables"});
  place.write("measured/gemm_long.csv", "source,gpu,dtype\n");
  check_refused(place.run({"fit", "--profiles", "measured", "-o", "costs"}), {"gemm_long.csv"});
  const bool left =
      std::filesystem::exists(place.file("costs")) && !std::filesystem::is_empty(place.file("costs"));
  CHECK_FALSE(left);
}

TEST_CASE("a person sees the table, the front, a picture with its time axis, and where the files are") {
  const Workplace place;
  const ProgramResult result = place.run(small_search({"--tokens", "1G", "--global-batch", "256"}));
  REQUIRE(result.code == 0);
  for (const char* part : {"The fastest plans for gpt2-345m (",
                           " billion parameters), replayed event by event", "The Pareto front", "stage 0  ",
                           "|0 s", "candidates", "rejected:", "out/report.html", "out/launch-01.sh"}) {
    CAPTURE(part);
    CHECK(result.out.find(part) != std::string::npos);
  }
  CHECK(result.err.find("searched in") != std::string::npos);
  CHECK(result.err.find('\r') == std::string::npos);  // no progress bar: not a terminal
  CHECK(place.run(small_search({"--quiet"})).err.empty());
}

// What sha256sum says of each file; built-in names have a digest too.
TEST_CASE("a trace holds the digest of every input") {
  const Workplace place;
  place.write("mine.yaml", "like: megatron-core\n");
  place.write("order.csv", "0F0,0F1,0B0,0B1\n");
  place.write("p.yaml",
              "model: gpt2-345m\ncluster: a100-64\nglobal_batch: 2\nsequence: 1024\nnodes: [8]\n"
              "stages: [{group: 0, tensor: 1}]\nparts: [[0, 24]]\n");
  const auto digests = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"replay", "--plan", "p.yaml", "--quiet", "-o", "t.h5"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = place.run(words);
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    return run_attribute(read_trace(place.file("t.h5")), "input_digests");
  };
  const std::string all = digests({"--stack", "mine.yaml", "--schedule-file", "order.csv"});
  for (const std::string name : {"p.yaml", "mine.yaml", "order.csv"}) {
    const std::string content = read_text_file(place.file(name));
    CHECK_THAT(all, contains_text(sha256_hex(content) + "  " + name + "\n"));
  }
  for (const char* name : {"  gpt2-345m\n", "  a100-64\n", "  cost models\n"})
    CHECK_THAT(all, contains_text(name));
  place.write("mine.yaml", "like: nemo-24.07\n");
  CHECK(digests({"--stack", "mine.yaml", "--schedule-file", "order.csv"}) != all);
}

TEST_CASE("a trace that search wrote reads like a table of contents, and like data frames") {
  const Workplace place;
  REQUIRE(place.run(small_search({"--tokens", "1G"})).code == 0);
  const std::string trace = place.file("out/trace-01.h5");
  place.write("script.py", R"(
import sys, h5py, pandas
with h5py.File(sys.argv[1]) as f:
    for name in ["run", "ranks", "ops", "ops/kinds", "links", "link_usage", "stages", "memory", "cost"]:
        assert name in f, name
    for name in ["format_version", "tool_version", "command_line", "seeds", "input_digests", "plan", "cluster", "cost_model_digest", "iteration", "makespan"]:
        assert f["run"].attrs[name], name
    assert len(f["run"].attrs["model_digest"]) == 64
    assert f["run/iteration"].dtype == "f8" and f["run/iteration"].attrs["unit"] == "s"
    assert 0 < f["run/iteration"][()] <= f["run/makespan"][()]
    for name, end in [("run/makespan", "of all iterations played"), ("run/bubble_fraction", "of all iterations played"), ("ops/start", "start of the run"), ("ops/end", "start of the run"), ("memory/activations_peak", "with what a backward recomputes"), ("memory/curve/bytes", "without what that recomputes")]:
        assert f[name].attrs["description"].endswith(end), name
    names = ["kind", "stage", "chunk", "microbatch", "rank", "stream", "start", "end", "bytes", "flops"]
    frame = pandas.DataFrame({name: f["ops"][name][:] for name in names})
    assert (frame["end"] >= frame["start"]).all() and len(frame) > 50
    makespan = f["run"].attrs["makespan"]
    digits = makespan.rstrip("mus")
    seconds = float(digits) * {"us": 1e-6, "ms": 1e-3, "s": 1}[makespan[len(digits):]]
    assert abs(seconds - frame["end"].max()) < 1e-9 * frame["end"].max()
print("good")
)");
  const std::string python = python_with("h5py, pandas");
  CHECK(run_command(python + " " + place.file("script.py") + " " + trace).output == "good\n");
  if (run_command("h5dump --version").status != 0) {
    WARN("no h5dump here (apt-get install hdf5-tools): the header is not looked at");
    return;
  }
  const CommandResult header = run_command("h5dump -H " + trace);
  CHECK(header.status == 0);
  CHECK(header.output.find("GROUP \"ops\"") != std::string::npos);
}

}  // namespace orrery
