// `orrery profile` without a GPU: its dry run, its interruptions, and the way from its table to a plan.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "tests/platforms/input_error.hpp"
#include "tests/sim/run_program.hpp"

using namespace orrery;

namespace {

namespace fs = std::filesystem;

std::string content(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::string> words(std::vector<std::string> first, const std::vector<std::string>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

ProgramResult dry_run(const std::string& folder,
                      const std::vector<std::string>& more = {"--only=attention"}) {
  return run_orrery(words({"profile", "--dry-run", "--quiet", "-o", folder}, more));
}

std::string table(const std::string& folder) {
  return content(folder + "/orrery_profile.csv");
}

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("a dry run writes its columns, marks its times as invented and describes the machine") {
  const ScratchFolder scratch;
  REQUIRE(dry_run(scratch.file("m"), {"--only=kernel", "--types=bf16"}).code == 0);
  std::istringstream rows(table(scratch.file("m")));
  std::string line;
  std::getline(rows, line);
  const auto columns = std::count(line.begin(), line.end(), ',');
  int count = 0;
  for (; std::getline(rows, line); ++count) {
    CHECK(std::count(line.begin(), line.end(), ',') == columns);
    CHECK(line.find(",invented,ok,") != std::string::npos);
  }
  // 8 kernels, 3 of them also backward, at 12 sizes of 2 widths.
  CHECK(count == (8 + 3) * 12 * 2);
  const auto machine = nlohmann::json::parse(content(scratch.file("m") + "/machine.json"));
  for (const char* key : {"gpu", "gpus", "driver", "torch", "cuda", "clock", "script", "started", "types"}) {
    INFO(key);
    CHECK(machine.contains(key));
  }
  CHECK(machine.at("clock") == "invented");
}

TEST_CASE("--json says where the script and what it measures lie, and nothing else") {
  const ScratchFolder scratch;
  const ProgramResult run = dry_run(scratch.file("m"), {"--only=attention", "--json"});
  REQUIRE(run.code == 0);
  const auto files = nlohmann::json::parse(run.out);
  for (const char* file : {"script", "table", "machine"})
    CHECK(fs::exists(files.at(file).get<std::string>()));
}

TEST_CASE("--script writes what another machine needs, and names no file that is not there") {
  const ScratchFolder scratch;
  const ProgramResult run = run_orrery({"profile", "--script", "--json", "-o", scratch.file("m")});
  REQUIRE(run.code == 0);
  const auto files = nlohmann::json::parse(run.out);
  CHECK(files.size() == 1);
  CHECK(fs::exists(files.at("script").get<std::string>()));
  CHECK(fs::exists(scratch.file("m") + "/orrery_gpus.json"));
}

TEST_CASE("a table cut anywhere is completed to the bytes of a run without interruption") {
  const ScratchFolder scratch;
  REQUIRE(dry_run(scratch.file("whole")).code == 0);
  const std::string whole = table(scratch.file("whole"));
  // Inside the header, at its end, inside a row, before and after a line break, one byte short, nothing
  // missing.
  for (const std::size_t cut : {std::size_t{0}, std::size_t{7}, whole.find('\n') + 1, whole.size() / 2,
                                whole.rfind('\n', whole.size() / 3), whole.rfind('\n', whole.size() / 3) + 1,
                                whole.size() - 1, whole.size()}) {
    INFO("cut at " << cut);
    const std::string folder = scratch.file("cut-" + std::to_string(cut));
    fs::create_directories(folder);
    fs::copy_file(scratch.file("whole") + "/machine.json", folder + "/machine.json");
    std::ofstream(folder + "/orrery_profile.csv", std::ios::binary) << whole.substr(0, cut);
    CHECK(dry_run(folder).code == 0);
    CHECK(table(folder) == whole);
  }
}

TEST_CASE("a killed run keeps its rows and goes on where it was") {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("m");
  const ProgramResult killed =
      run_orrery({"profile", "--dry-run", "--quiet", "--only=attention", "--pause=0.02", "-o", folder},
                 {.interrupt_when = [&] { return lines(table(folder)) > 5; }, .start = ProgramStart::binary});
  CHECK(killed.code == 128 + SIGTERM);
  const std::string partial = table(folder);
  CHECK(lines(partial) > 5);
  CHECK(lines(partial) < 200);  // it measures no more
  REQUIRE(dry_run(folder).code == 0);
  const std::string completed = table(folder);
  CHECK(lines(completed) ==
        513);  // the header; 2 types x (2 x 6 + 4 sequences) x 2 head sizes x 2 groups x 2 masks x 2 passes
  CHECK(completed.substr(0, partial.rfind('\n') + 1) == partial.substr(0, partial.rfind('\n') + 1));
  REQUIRE(dry_run(folder).code == 0);
  CHECK(table(folder) == completed);
}

TEST_CASE("a second run in a folder is refused while the first one measures, and not after it was killed") {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("m");
  std::optional<ProgramResult> second;
  const auto run_second = [&] {
    if (lines(table(folder)) > 5 && !second) second = dry_run(folder);
    return second.has_value();
  };
  run_orrery({"profile", "--dry-run", "--quiet", "--only=attention", "--pause=0.05", "-o", folder},
             {.interrupt_when = run_second, .start = ProgramStart::binary});
  REQUIRE(second);
  CAPTURE(second->err);
  CHECK(second->code == 2);
  CHECK(lines(second->err) == 1);
  CHECK(contains(second->err, folder + "/orrery_profile.csv in use by another run of `orrery profile`"));
  CHECK(contains(second->err, "another folder (-o)"));
  CHECK(lines(table(folder)) < 200);  // the second one has added none
  CHECK(dry_run(folder).code == 0);
  CHECK(lines(table(folder)) == 513);
}

TEST_CASE("a table that has no room keeps its rows, and the message names the folder") {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("m");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 30'000;  // the scripts fit, 512 rows do not; Python ignores the signal
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const ProgramResult result = dry_run(folder);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CAPTURE(result.err);
  CHECK(result.code == 2);
  CHECK(contains(result.err, folder + ": File too large; expected a folder that can be written, with room"));
  CHECK(lines(table(folder)) > 100);
  CHECK(dry_run(folder).code == 0);
  CHECK(lines(table(folder)) == 513);
}

TEST_CASE("another machine, a foreign table and wrong options are refused") {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("m");
  REQUIRE(dry_run(folder).code == 0);
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
    const ProgramResult result = dry_run(folder, more);
    CHECK(result.code == 2);
    CHECK(result.err.find(part) != std::string::npos);
    CHECK(lines(result.err) == 1);
  };
  refused({"--gpu-name=H100"}, "another folder");
  refused({"--gpu-name=H100-SMX5-80GB"}, "(H100-SXM5-80GB, ");
  refused({"--gpu-name=Abacus"}, "--unknown-gpu");
  refused({"--types=fp4"}, "--types fp4");
  refused({"--pause=soon"}, "--pause: found 'soon'; expected a number");
  refused({"--pause=--"}, "--pause: found '--'");
  refused({"--types=--"}, "--types: found '--'");
  refused({"--types=fp4\nfp8"}, "--types fp4 fp8");
  refused({"--pause=-1"}, "a number from 0 to 60");
  refused({"--only=everything"}, "--only: found 'everything'");
  refused({"--model=no-such-model"}, "no-such-model");
  refused({"--python=no-such-program"}, "no program 'no-such-program'");
  std::ofstream(folder + "/orrery_profile.csv") << "a,b\n1,2\n";
  refused({}, "other columns");
  fs::remove(folder + "/machine.json");
  refused({}, "without machine.json");
}

TEST_CASE("a run of limited minutes leaves a sample of every kind of shape, and goes on") {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("m");
  // 1.2 s, and at least 1 ms a row.
  const std::vector<std::string> gemms{"--only=gemm", "--types=bf16", "--pause=0.001"};
  REQUIRE(dry_run(folder, words(gemms, {"--minutes=0.02"})).code == 0);
  const std::string partial = table(folder);
  const std::size_t rows = lines(partial);
  CHECK(rows > 30);
  CHECK(rows < 2254);
  for (const char* part : {",grouped,", ",linear,forward,", ",dgrad,", ",wgrad,", ",grid,", ",llama3-8b,"})
    CHECK(contains(partial, part));
  REQUIRE(dry_run(folder, {"--only=gemm", "--types=bf16"}).code == 0);
  CHECK(lines(table(folder)) == 2254);  // the header; 2049 of layers and the grid, 204 of experts
  CHECK(table(folder).starts_with(partial));
  CHECK(dry_run(folder, {"--minutes=0"}).code == 2);
}

TEST_CASE("a dry run invents times of the data types that its GPU has, and of no others") {
  const ScratchFolder scratch;
  const auto types = [&](const std::string& gpu) {
    const std::string folder = scratch.file("of " + gpu);
    REQUIRE(dry_run(folder, {"--only=kernel", "--gpu-name=" + gpu}).code == 0);
    const auto machine = nlohmann::json::parse(content(folder + "/machine.json"));
    return machine.at("types").get<std::vector<std::string>>();
  };
  using Types = std::vector<std::string>;
  CHECK(types("A100-SXM4-80GB") == Types{"fp32", "tf32", "fp16", "bf16"});
  CHECK(types("v100") == Types{"fp32", "fp16"});
  CHECK(types("NVIDIA H100 80GB HBM3") == Types{"fp32", "tf32", "fp16", "bf16", "fp8"});
  const ProgramResult refused = dry_run(scratch.file("m"), {"--types=fp8"});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "--types fp8; expected some of fp32,tf32,fp16,bf16"));
}

TEST_CASE("layers of one part are measured each: attention without an MLP, an MLP without attention") {
  const ScratchFolder scratch;
  REQUIRE(dry_run(scratch.file("m"), {"--only=gemm", "--types=bf16", "--model=nemotron-h-8b"}).code == 0);
  const std::string rows = table(scratch.file("m"));
  // 32 heads of 128 with 8 of keys and values, hidden 4096; two matrices of 21504.
  CHECK(rows.find("forward,nemotron-h-8b,1,4096,6144,4096,") != std::string::npos);
  CHECK(rows.find("forward,nemotron-h-8b,1,4096,21504,4096,") != std::string::npos);
  CHECK(rows.find("forward,nemotron-h-8b,1,4096,4096,21504,") != std::string::npos);
}

TEST_CASE("a model of the catalog becomes the layer that is measured") {
  const ScratchFolder scratch;
  REQUIRE(dry_run(scratch.file("m"), {"--only=gemm", "--types=bf16", "--model=llama2-70b"}).code == 0);
  const std::string rows = table(scratch.file("m"));
  // Whole: QKV of 64 + 2 x 8 heads of 128, gate and up of 2 x 28672, hidden 8192.
  CHECK(rows.find("forward,llama2-70b,1,4096,10240,8192,") != std::string::npos);
  CHECK(rows.find("wgrad,llama2-70b,1,4096,57344,8192,") != std::string::npos);
  CHECK(rows.find("gpt3") == std::string::npos);
}

TEST_CASE("the head that is measured is as wide as the model's, of labels too") {
  const ScratchFolder scratch;
  const std::string model = scratch.file("tagger.yaml");
  std::ofstream(model) << "name: tagger\nsequence: 512\nvocabulary: 30528\noutputs: 9\nhidden: 1024\n"
                          "blocks:\n  - {hidden: 1024, heads: 16, ffn: 4096, mlp: gelu, norm: layer_norm}\n";
  REQUIRE(dry_run(scratch.file("m"), {"--only=gemm", "--types=bf16", "--model=" + model}).code == 0);
  const std::string rows = table(scratch.file("m"));
  CHECK(rows.find("forward,tagger,1,4096,128,1024,") != std::string::npos);  // in rows of 128
  CHECK(rows.find(",30592,1024,") == std::string::npos);
}

namespace {

// Runs `orrery profile` with a PyTorch that computes nothing (fake_torch), and leaves no trace in this
// program.
class FakeTorch {
 public:
  FakeTorch(std::initializer_list<std::pair<const char*, std::string>> settings = {}) {
    set("PYTHONPATH", std::string(ORRERY_SOURCE_DIR) + "/tests/sim/fake_torch");
    set("PYTHONDONTWRITEBYTECODE", "1");
    for (const auto& [name, value] : settings) set(name, value);
  }
  FakeTorch(const FakeTorch&) = delete;
  FakeTorch& operator=(const FakeTorch&) = delete;
  ~FakeTorch() {
    for (const auto& [name, value] : before_) {
      if (value)
        ::setenv(name.c_str(), value->c_str(), 1);
      else
        ::unsetenv(name.c_str());
    }
  }

  [[nodiscard]] ProgramResult run(const std::string& folder, const std::vector<std::string>& more) const {
    return run_orrery(words({"profile", "--quiet", "-o", folder}, more));
  }

 private:
  void set(const std::string& name, const std::string& value) {
    const char* old = std::getenv(name.c_str());
    before_[name] = old == nullptr ? std::nullopt : std::optional<std::string>(old);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::map<std::string, std::optional<std::string>> before_;
};

const std::vector<std::string> kKernels{"--only=kernel", "--types=bf16"};
constexpr std::size_t kKernelRows = std::size_t{8 + 3} * 12 * 2;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a GPU that is lost ends the run, and the next one measures what is missing") {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("m");
  const auto message =
      GENERATE(as<std::string>{}, "CUDA error: unspecified launch failure",
               "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx",
               "HIP error: the operation cannot be performed", "something that stays broken");
  {
    const FakeTorch lost{{"FAKE_FAIL_FROM", "2000"}, {"FAKE_MESSAGE", message}};
    const ProgramResult run = lost.run(folder, kKernels);
    CAPTURE(run.err);
    CHECK(run.code == 2);
    CHECK(lines(run.err) == 1);
    CHECK(contains(run.err, message.substr(0, 40)));
    CHECK(contains(run.err, "run this again"));
    CHECK(count(table(folder), "GPU lost: ") == 1);
    CHECK(lines(table(folder)) < kKernelRows);
  }
  const FakeTorch works;
  CHECK(works.run(folder, kKernels).code == 0);
  CHECK(count(table(folder), ",ok,") == kKernelRows);
}

TEST_CASE("a row that failed once is tried once more; --retry tries again") {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("m");
  const auto message = GENERATE(as<std::string>{}, "CUDA error: out of memory",
                                "CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling cublasLtMatmul");
  for (const std::size_t failed : {1, 2, 2}) {
    const FakeTorch once{{"FAKE_FAIL_FROM", "1"}, {"FAKE_FAIL_TO", "1"}, {"FAKE_MESSAGE", message}};
    CHECK(once.run(folder, kKernels).code == 0);
    CHECK(count(table(folder), ",events,ok,") == kKernelRows - 1);
    CHECK(lines(table(folder)) == kKernelRows + failed);  // and the header
  }
  const FakeTorch works;
  CHECK(works.run(folder, words(kKernels, {"--retry"})).code == 0);
  CHECK(count(table(folder), ",events,ok,") == kKernelRows);
}

TEST_CASE("a run most of whose rows failed says so and does not end well") {
  const ScratchFolder scratch;
  const FakeTorch full{{"FAKE_FAIL_FROM", "1"}, {"FAKE_MESSAGE", "CUDA error: out of memory"}};
  const ProgramResult run = full.run(scratch.file("m"), kKernels);
  CAPTURE(run.err);
  CHECK(run.code == 1);
  CHECK(contains(run.err, "264 of 264 kernel rows failed, 264 of them with 'out of memory'"));
}

TEST_CASE(
    "an older PyTorch leaves out the kernels that it lacks, or gets repeated keys and values beforehand") {
  const ScratchFolder scratch;
  const std::vector<std::string> attention{"--only=attention", "--types=bf16"};
  {
    const FakeTorch old{{"FAKE_AGE", "old"}};
    CHECK(old.run(scratch.file("old"), attention).code == 0);
    CHECK(count(table(scratch.file("old")), ",unfused,") == 64);
    CHECK(count(table(scratch.file("old")), ",events,ok,") == 64);
    CHECK(count(table(scratch.file("old")), ",unsupported: ") == 192);
  }
  const FakeTorch middle{{"FAKE_AGE", "middle"}, {"FAKE_LOG", scratch.file("log")}};
  CHECK(middle.run(scratch.file("middle"), attention).code == 0);
  CHECK(count(table(scratch.file("middle")), ",events,ok,") == 256);
  CHECK_FALSE(contains(content(scratch.file("log")), "repeat_interleave"));
}

TEST_CASE("collectives are timed while NCCL writes to standard output, and --json stays one document") {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("m");
  const FakeTorch two{{"FAKE_GPUS", "2"}, {"NCCL_DEBUG", "INFO"}};
  const ProgramResult run = two.run(folder, {"--only=collective", "--json"});
  CAPTURE(run.err);
  CHECK(run.code == 0);
  CHECK(nlohmann::json::parse(run.out).at("table") == folder + "/orrery_profile.csv");
  CHECK(contains(run.err, "NCCL INFO"));
  CHECK(count(table(folder), ",events,ok,") == std::size_t{5} * 19);
}

TEST_CASE("collectives are given up after three process groups that ended one after another") {
  const ScratchFolder scratch;
  const FakeTorch two{{"FAKE_GPUS", "2"}, {"FAKE_FAIL_FROM", "1"}};
  const ProgramResult run = two.run(scratch.file("m"), {"--only=collective"});
  CAPTURE(run.err);
  CHECK(run.code == 2);
  CHECK(contains(run.err, "3 process groups of 2 GPUs ending one after another"));
  CHECK(count(table(scratch.file("m")), ",process group ended,") == 3);
}

TEST_CASE("a GPU that no catalog has is refused before it is measured, unless that is asked for") {
  const ScratchFolder scratch;
  const FakeTorch other{{"FAKE_NAME", "NVIDIA H200 NVL"}};
  const ProgramResult refused = other.run(scratch.file("m"), kKernels);
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "found the GPU 'NVIDIA H200 NVL', which the catalog does not have"));
  CHECK(contains(refused.err, "H200"));
  CHECK_FALSE(fs::exists(scratch.file("m") + "/orrery_profile.csv"));
  CHECK(contains(refused.err,
                 "--unknown-gpu to measure it and describe it in a cluster file for `orrery fit --cluster`"));
  CHECK(other.run(scratch.file("m"), words(kKernels, {"--unknown-gpu"})).code == 0);
  CHECK(contains(table(scratch.file("m")), "\nNVIDIA H200 NVL,bf16,kernel"));
  CHECK(other.run(scratch.file("n"), words(kKernels, {"--gpu-name=h200"})).code == 0);
}

TEST_CASE(
    "what is timed is what is priced: gradients of weights, rotations in one pass, grouped heads as they "
    "are") {
  const ScratchFolder scratch;
  const FakeTorch logging{{"FAKE_LOG", scratch.file("log")}};
  REQUIRE(logging.run(scratch.file("m"), {"--only=kernel", "--only=attention", "--types=bf16"}).code == 0);
  const std::string log = content(scratch.file("log"));
  CHECK(contains(log, "gradients of 3 "));  // norm: input, weight and bias
  // 0.25 MiB of rotated elements are read once and written once, and nothing is copied beside.
  CHECK(contains(log, "\nmul 524288\n"));
  CHECK(contains(log, "\nmasked_fill "));
  for (const char* beside : {"\nrepeat_interleave ", "\ncat ", "\nsum ", "\nfill "})
    CHECK_FALSE(contains(log, beside));
}

TEST_CASE(
    "profile, fit and search meet: one's own models price a plan and leave their digest in the result") {
  const Workplace place;
  const ProgramResult measured = place.run(
      {"profile", "--dry-run", "--quiet", "--types=fp32,bf16", "--model=llama2-7b", "-o", "measured"});
  REQUIRE(measured.code == 0);
  check_refused(place.run({"fit", "--profiles", "measured", "-o", "costs"}), {"--dry-run", "--invented"});
  REQUIRE(place.run({"fit", "--profiles", "measured", "--invented", "--quiet", "-o", "costs"}).code == 0);
  const auto own = place.run(small_search({"--costs", "costs", "--json", "-o", "own"}));
  const auto built_in = place.run(small_search({"--json", "-o", "built-in"}));
  REQUIRE(own.code == 0);
  REQUIRE(built_in.code == 0);
  const std::string fitted = place.read("costs/provenance.json");
  CHECK(fitted.find("orrery_profile.csv") != std::string::npos);
  const auto digest = [](const ProgramResult& result) {
    return nlohmann::json::parse(result.out).at("cost_models").get<std::string>();
  };
  CHECK(digest(own).size() == 64);
  CHECK(digest(own) != digest(built_in));
  // The trace of the best plan says the same.
  CHECK(place.read("own/trace-01.h5").find(digest(own)) != std::string::npos);
}
