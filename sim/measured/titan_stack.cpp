#include "sim/measured/titan_stack.hpp"

#include <regex>
#include <string>

#include "costmodels/stacks/stack_file.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_names.hpp"
#include "sim/measured/measured_trainers.hpp"
#include "sim/measured/measured_words.hpp"
#include "strategies/model.hpp"

namespace orrery {
namespace {

bool is_mixture(const MeasuredRun& run) {
  if (run.integer("n_experts").value_or(1) > 1) return true;
  const auto builtin = builtin_model_called(run.text("model"));
  return builtin && read_model(*builtin).has_experts();
}

// "torchtitan with torch.compile", "compile of model and loss", "the model compiled too".
bool says_compiled_model(const MeasuredRun& run) {
  static const std::regex kModel(R"(compil[a-z]*( [a-z]+){0,2} model|model( [a-z]+){0,2} compiled)");
  constexpr std::size_t kLongest = 400;  // std::regex goes as deep as its text is long
  return is_compiled(lower_case(run.text("framework"))) ||
         std::regex_search(lower_case(run.text("note")).substr(0, kLongest), kModel);
}

// A row that says its year alone is taken for the middle of it. Eager: neither layers nor loss are compiled,
// whatever the year. Recipes of mixtures of experts compile nothing, or the loss alone (compile.components of
// torchtitan's deepseek_v3_16b.toml, 08b8b244f of August 2025, and of its config_registry.py).
const char* preset_of(const MeasuredRun& run, double date) {
  constexpr double kCompiledLoss = 2025.25, kCudnnOnBlackwell = 2025.37, kEmbeddingAlone = 2025.58;
  if (runs_eager(lower_case(run.text("framework"))) || (is_mixture(run) && !says_compiled_model(run)))
    return date >= kCudnnOnBlackwell ? "torchtitan-eager-2025" : "torchtitan-eager";
  if (date >= kEmbeddingAlone) return "torchtitan-2025-08";
  return date >= kCompiledLoss ? "torchtitan-2025" : "torchtitan";
}

// Recipes of mixtures compile the loss even where they compile nothing else. From 786e26f8e of 27 April 2026
// on all of them take the loss in ChunkedCELoss's eight pieces (components/loss.py).
void use_loss_of(const MeasuredRun& run, double date, SoftwareStack& stack) {
  constexpr double kCompiledRecipe = 2025.58, kInPieces = 2026.32;
  const std::string framework = lower_case(run.text("framework"));
  const bool of_mixture =
      date >= kCompiledRecipe && !runs_eager(framework) && stack.preset == "torchtitan-eager-2025";
  if (of_mixture || says(framework, "compiled loss")) {
    const SoftwareStack compiled = read_stack("torchtitan-2025");
    stack.cross_entropy = compiled.cross_entropy;
    stack.logit_peak = compiled.logit_peak;
    stack.sharded_logit_peak = compiled.sharded_logit_peak;
  }
  const Said chunked = said(framework_and_note(run), {"*chunked*"});
  if (chunked == Said::no || (date < kInPieces && !says(framework, "chunked"))) return;
  stack.sharded_logit_peak.reset();
  stack.loss_pieces = 8;
}

// DeepEP and HybridEP bring tokens by kernels of their own; since 5242bdf71 of 14 April 2026 layers with
// experts are compiled whole.
void use_dispatch_of(const MeasuredRun& run, double date, SoftwareStack& stack) {
  constexpr double kCompilesExperts = 2026.28;
  const std::string framework = lower_case(run.text("framework"));
  const bool own = says_any(framework, {"deepep", "hybridep"});
  // Rows go straight to their place in the symmetric memory of the rank they belong to (pull request 3640).
  const bool in_place = says(framework, "minimalasyncep");
  if (own || in_place || (date >= kCompilesExperts && says_compiled_model(run)))
    stack.experts.eager_forward = stack.experts.eager_backward = 0;
  if (in_place) stack.experts.eager_memory = 0;
}

// From 6a3a9da95 of 9 October 2025 on torchtitan takes cuDNN's attention on any card (models/attention.py);
// read after errors of runs of that time had been seen. Since ff0829c10 of 27 January 2026 it copies no keys
// and values for query heads (enable_gqa), and PyTorch's cuDNN then refuses what its FlashAttention-2 takes
// ("no available kernel"; trace of titan-autoresearch, May 2026). FlexAttention, its default since June 2026,
// is taken for as fast (assumption).
void use_attention_of(const MeasuredRun& run, double date, SoftwareStack& stack) {
  constexpr double kCudnnOnAll = 2025.77, kGroupedHeads = 2026 + 0.9 / 12;
  if (date >= kGroupedHeads) {
    stack.attention = AttentionKernel::flash2;
    stack.repeated_keys = false;
  } else if (date >= kCudnnOnAll && architecture_of(run) == "Hopper") {
    stack.attention = AttentionKernel::flash;
  }
}

// What DTensor's dispatch takes of the host around each exchange of tensor ways, in mixtures of experts,
// whose attention, router and shared experts are DTensors too: fitted to five runs of four sources
// (titan-pr2564, titan-pr2570, titan-pr3548, titan-h200-30b), traced and eager, of which one says that
// launches bound it.
void use_dispatch_host(const MeasuredRun& run, SoftwareStack& stack) {
  constexpr Seconds kAroundExchange{3e-3};
  const bool in_tensor_ways = run.integer("tp").value_or(1) > 1;
  if (in_tensor_ways && is_mixture(run) && stack.preset == "torchtitan-eager-2025")
    stack.host.collective = kAroundExchange;
}

// PyTorch's pull request 169404 of December 2025; torchtitan runs on its nightly builds.
void use_copies_of(double date, SoftwareStack& stack) {
  constexpr double kOneSequenceInOrder = 2025.95;
  if (date >= kOneSequenceInOrder) stack.sequence_copies = SequenceCopies::of_several;
}

}  // namespace

// GraphTrainer's default policy keeps every product (experiments/graph_trainer/passes.py, f213796fd of 22
// April 2026).
SoftwareStack titan_stack(const MeasuredRun& run, double date) {
  constexpr double kGraphPolicy = 2026.25;
  SoftwareStack stack = in_said_bits(run, read_stack(preset_of(run, date)));
  if (date >= kGraphPolicy && says_any(lower_case(run.text("framework")), {"graph_trainer", "graphtrainer"}))
    stack.selective = SelectiveRecompute::elementwise;
  use_loss_of(run, date, stack);
  use_dispatch_of(run, date, stack);
  use_attention_of(run, date, stack);
  use_dispatch_host(run, stack);
  use_copies_of(date, stack);
  return stack;
}

}  // namespace orrery
