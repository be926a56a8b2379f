// torchtitan as it was when a run of it was made.
#include "sim/measured/titan_stack.hpp"

#include "costmodels/stacks/stack_file.hpp"
#include "tests/catch.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {
namespace {

// The preset of a row with this program and source.
std::string preset(const char* framework, const char* source = "") {
  return test::stack_of({{"framework", framework}, {"gpu", "H100"}, {"source", source}}).name;
}

}  // namespace

TEST_CASE("torchtitan compiles its loss from April 2025 on; a month may follow the year") {
  const auto of = [](const char* source) { return preset("torchtitan", source); };
  CHECK(of("benchmarks/llama3_h100_202412_torchtitan.md") == "torchtitan");
  CHECK(of("benchmarks/llama3_8b_h200_2025-06_torchtitan.md") == "torchtitan-2025");
  CHECK(of("issue 1000 (March 2025)") == "torchtitan");
  CHECK(of("pull 1884 (October 2025)") == "torchtitan-2025-08");
  CHECK(of("arXiv 2410.06511") == "torchtitan");
  CHECK(of("report 120259") == "torchtitan");  // no year
}

TEST_CASE("torchtitan that says it is eager is not compiled in any year") {
  CHECK(preset("torchtitan, eager (March 2025)") == "torchtitan-eager");
  CHECK(preset("torchtitan, eager (2025)") == "torchtitan-eager-2025");
  CHECK(preset("torchtitan without torch.compile (2025)") == "torchtitan-eager-2025");
  CHECK(preset("torchtitan (2025)") == "torchtitan-2025");
}

TEST_CASE(
    "what torchtitan's date tells: pieces of its loss, copies of its sequences, GraphTrainer's policy") {
  const auto of = [](const char* framework) {
    return test::stack_of({{"framework", framework}, {"model", "Llama 3 8B"}, {"gpu", "B200"}});
  };
  CHECK(of("torchtitan (April 2026)").loss_pieces == 1);
  CHECK(of("torchtitan (May 2026)").loss_pieces == 8);
  CHECK(of("torchtitan, eager (May 2026)").loss_pieces == 8);
  CHECK(of("torchtitan with chunked cross-entropy (March 2026)").loss_pieces == 8);
  CHECK(of("torchtitan (May 2026), loss not chunked").loss_pieces == 1);
  CHECK(of("torchtitan (2024)").cross_entropy == CrossEntropyKernel::separate);
  CHECK(of("torchtitan (2024), compiled loss").cross_entropy == CrossEntropyKernel::online);
  CHECK(of("torchtitan (May 2026)").selective == SelectiveRecompute::every_second_gemm);
  CHECK(of("torchtitan (May 2026)").sequence_copies == SequenceCopies::of_several);
  CHECK(of("torchtitan (May 2025)").sequence_copies == SequenceCopies::all);
  CHECK(of("torchtitan GraphTrainer (May 2026)").selective == SelectiveRecompute::elementwise);
  CHECK(of("torchtitan graph_trainer (March 2026)").selective == SelectiveRecompute::every_second_gemm);
}

TEST_CASE(
    "torchtitan compiles of mixtures of experts the loss alone unless told, their dispatch since 2026") {
  const auto of = [](const char* framework, const char* note = "") {
    return test::stack_of(
        {{"framework", framework}, {"model", "DeepSeek-V3 16B"}, {"note", note}, {"gpu", "H100"}});
  };
  CHECK(of("torchtitan (October 2025)").name == "torchtitan-eager-2025");
  CHECK(of("torchtitan (October 2025)", "compile of loss only").name == "torchtitan-eager-2025");
  const auto around_exchange = [](const char* model, const char* tensor_ways) {
    return test::stack_of({{"framework", "torchtitan, eager (October 2025)"},
                           {"model", model},
                           {"tp", tensor_ways},
                           {"gpu", "H100"}})
        .host.collective;
  };
  CHECK(around_exchange("DeepSeek-V3 16B", "2") == Seconds(3e-3));
  CHECK(around_exchange("DeepSeek-V3 16B", "1") == Seconds(1e-3));
  CHECK(around_exchange("Llama 3 8B", "2") == Seconds(1e-3));
  for (const char* note : {"torch.compile of model and loss", "the model compiled too"})
    CHECK(of("torchtitan (October 2025)", note).name == "torchtitan-2025-08");
  CHECK(of("torchtitan with torch.compile (October 2025)").name == "torchtitan-2025-08");
  CHECK(test::stack_of({{"framework", "torchtitan (October 2025)"}, {"model", "Llama 3 8B"}, {"gpu", "H100"}})
            .name == "torchtitan-2025-08");
  const auto moved = [&](const char* framework) { return of(framework).experts.eager_forward; };
  CHECK(moved("torchtitan (October 2025)") > 0);
  CHECK(moved("torchtitan with torch.compile (October 2025)") > 0);
  CHECK(moved("torchtitan with torch.compile (May 2026)") == 0);
  CHECK(moved("torchtitan (May 2026)") > 0);
  CHECK(moved("torchtitan with DeepEP (October 2025)") == 0);
  CHECK(moved("torchtitan, experts by MinimalAsyncEP (June 2026)") == 0);
  const auto held = [&](const char* framework) { return of(framework).experts.eager_memory; };
  CHECK(held("torchtitan, experts by MinimalAsyncEP (June 2026)") == 0);
  CHECK(held("torchtitan with DeepEP (October 2025)") > 0);
  const auto peak = [&](const char* framework) { return of(framework).logit_peak; };
  CHECK(peak("torchtitan (October 2025)") == read_stack("torchtitan-2025").logit_peak);
  CHECK(peak("torchtitan, eager (October 2025)") == read_stack("torchtitan-eager-2025").logit_peak);
  CHECK(peak("torchtitan (July 2025)") == read_stack("torchtitan-eager-2025").logit_peak);
}

}  // namespace orrery
