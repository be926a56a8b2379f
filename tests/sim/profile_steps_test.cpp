// `orrery profile --steps` without a GPU: its table, and what it refuses.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "platforms/yaml.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/run_program.hpp"

using namespace orrery;

TEST_CASE("steps that were measured become rows that validate predicts; what failed says why") {
  const ScratchFolder scratch;
  const std::string script = std::string(ORRERY_SOURCE_DIR) + "/costmodels/profile/orrery_steps.py";
  std::ofstream(scratch.file("steps.json")) << R"({"machine": {"gpu": "NVIDIA H100 80GB HBM3",
    "torch": "2.11.0+cu130", "transformers": "5.17.0", "host": {"processor": "a processor"}, "script": "1",
    "begun": "2026-11-27T09:10:18Z"}, "cases": {
    "a": {"case": {"name": "a", "program": "fsdp2", "model": "llama3-8b", "layers": 8, "seq": 8192, "mbs": 1,
      "recompute": "none", "precision": "bf16", "compile": true, "experts": ""},
      "result": {"queued_s": 0.28, "allocated_gb": 47.8, "reserved_gb": 63.1}},
    "b": {"case": {"name": "b", "program": "hf", "model": "qwen3-30b-a3b", "layers": 4, "seq": 4096, "mbs": 1,
      "recompute": "full", "precision": "pure bf16", "compile": false, "experts": "eager"},
      "result": "TypeError: of a library,\n not of ours"}}})";
  const std::string command = "python3 " + script + " --table -o " + scratch.file("");
  REQUIRE(std::system(command.c_str()) == 0);
  const std::string rows = read_text_file(scratch.file("steps.csv"));
  CHECK(contains(rows, "\"PyTorch 2.11 FSDP2 (torch.compile, compiled loss, fused AdamW, November 2026)\""));
  CHECK(contains(rows, "failed,\"TypeError: of a library, not of ours\""));
  const ProgramResult result =
      run_orrery({"validate", "--json", "--quiet", "--measured", scratch.file("steps.csv")});
  REQUIRE(result.code == 0);
  const auto runs = nlohmann::json::parse(result.out).at("runs");
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].at("id") == "orrery-h100-a");
  CHECK(runs[0].at("measured_s") == 0.28);
  CHECK(runs[0].at("predicted_s").get<double>() > 0.1);
  CHECK(runs[1].at("measured_s").is_null());
}

TEST_CASE("options that say how operators are measured are refused beside --steps") {
  const ScratchFolder scratch;
  const ProgramResult refused = run_orrery({"profile", "--steps", "--only=gemm", "-o", scratch.file("m")});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "--steps: found --only beside it"));
  // A Python without PyTorch, or a PyTorch that sees no GPU.
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const ProgramResult nothing = run_orrery({"profile", "--steps", "-o", scratch.file("m")});
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  CHECK(nothing.code == 2);
  CHECK(nothing.err.starts_with("orrery profile: --steps: found "));
  CHECK(std::count(nothing.err.begin(), nothing.err.end(), '\n') == 1);
  const ProgramResult script = run_orrery({"profile", "--steps", "--script", "-o", scratch.file("m")});
  CHECK(script.code == 0);
  CHECK(script.out == scratch.file("m") + "/orrery_steps.py\n");
}
