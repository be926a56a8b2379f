#include "sim/measured/measured_stack.hpp"

#include <algorithm>
#include <array>

#include "costmodels/stacks/stack_file.hpp"
#include "sim/measured/bridge_recipes.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_attention.hpp"
#include "sim/measured/measured_dates.hpp"
#include "sim/measured/measured_names.hpp"
#include "sim/measured/measured_trainers.hpp"
#include "sim/measured/measured_words.hpp"
#include "sim/measured/program_releases.hpp"
#include "sim/measured/said_kernels.hpp"
#include "sim/measured/titan_stack.hpp"

namespace orrery {
namespace {

// Frameworks by the start of their name in a row, the first that fits; of those that have several a
// function tells which preset a run's was.
struct Program {
  const char* start;
  const char* stack;
  const char* (*release)(const MeasuredRun&) = nullptr;

  const char* preset(const MeasuredRun& run) const { return release ? release(run) : stack; }
};
constexpr std::array kFrameworks{
    Program{"NeMo/Megatron-Core 24.07", "nemo-24.07"},
    Program{"NeMo 24.03", "nemo-24.03"},
    Program{"NeMo AutoModel", "nemo-automodel"},
    Program{"NeMo Automodel", "nemo-automodel"},
    Program{"llm-foundry", "llm-foundry"},
    Program{"DeepSpeed Megatron-LM v1.1.5 3D", "amp"},  // of the tables, AMP's runs alone
    Program{"ATorch DeepSpeed 3D", "atorch-3d"},
    Program{"Aleph Alpha", "aleph-alpha"},
    Program{"AA-Scaling", "aleph-alpha"},
    Program{"InternEvo", "internevo"},
    Program{"FlagScale", "flagscale"},
    Program{"Fast-LLM", "fast-llm"},
    Program{"metaseq", "metaseq"},
    Program{"llm.c", "llm.c"},
    Program{"llmq", "llm.c"},
    Program{"LLM.Q", "llm.c"},
    Program{"torchtune", "torchtune"},
    Program{"KempnerForge, eager", "kempnerforge-eager"},
    Program{"KempnerForge", "kempnerforge"},
    Program{"Megatron-Core", nullptr, megatron_core_release},
    Program{"Megatron-DeepSpeed", nullptr, megatron_deepspeed_release},
    Program{"Megatron + DeepSpeed", nullptr, megatron_deepspeed_release},
    Program{"DeepSpeed Megatron-LM", nullptr, megatron_deepspeed_release},
    Program{"DeepSpeed ZeRO-3", nullptr, deepspeed_zero3_release},
    Program{"Megatron-LM", nullptr, megatron_lm_release},
    Program{"OneFlow", nullptr, oneflow_release},
};
// Of programs without a preset, by a word in their name: what they are built on, or most like.
constexpr std::array kLikenesses{
    Program{"nemo", nullptr, nemo_release},
    Program{"torch.compile", "torchtitan"},
    Program{"maxtext", "maxtext"},
    Program{"transformer engine", "transformer-engine"},
    Program{"kempnerforge", "kempnerforge"},
    Program{"modalities", "modalities"},
    Program{"fsdp", "pytorch-fsdp"},
    Program{"llm foundry", "llm-foundry"},
    Program{"mosaic", "llm-foundry"},
    Program{"neox", "megatron-deepspeed"},
    Program{"nanotron", nullptr, nanotron_release},
    Program{"alpa", "alpa"},
    Program{"jax", "jax"},
    Program{"levanter", "jax"},
    Program{"pax", "jax"},
    Program{"tensorflow", "tensorflow"},
};

// The loss of Megatron-Core works in the place of its fp32 logits since 9634c0e4a3 of 13 June 2024: of a run
// that says its year alone that is not known.
void use_loss_of_then(const MeasuredRun& run, SoftwareStack& stack) {
  constexpr double kMiddle = 2024.5;
  if (stack.name == "megatron-core-2024" && date_of_program(run) > kMiddle)
    stack.logit_peak = read_stack("megatron-core-defaults").logit_peak;
}

// A preset, and what its residuals tell of: all releases of a program.
struct Likeness {
  std::string stack, family;
};

// Of a program without a preset; all of it was set after errors of published runs had been seen. NeMo's
// layers were Megatron-LM's of their time until Transformer Engine, which came for H100 in 2023.
Likeness likeness_of(const MeasuredRun& run) {
  const std::string framework = run.text("framework");
  const std::string low = lower_case(framework);
  constexpr double kTransformerEngine = 2024;
  const double date = date_of_program(run);
  const bool early = date > 0 && date < kTransformerEngine && !multiplies_in_fp8(run);
  if (says(low, "nemo") && early) return {megatron_lm_release(run), framework};
  constexpr std::string_view kCompiler = "torch.compile", kTransformer = "transformer engine";
  if (is_compiled(low) && !says(low, "fsdp")) return {"compiled-program", std::string(kCompiler)};
  const std::vector<Clause> clauses = clauses_of(framework);
  const auto like = std::find_if(kLikenesses.begin(), kLikenesses.end(), [&](const Program& one) {
    if (one.start == kTransformer) return affirms(clauses, {"*transformerengine*"});
    return one.start == kCompiler ? is_compiled(low) : says(low, one.start);
  });
  if (like != kLikenesses.end()) {
    const bool xla = std::string_view(like->start) == "tensorflow" && affirms(clauses, {"xla"});
    return {xla ? "tensorflow-xla" : like->preset(run), like->start};
  }
  // Programs of one's own were forks of Megatron-LM at first; since FSDP came with PyTorch 2 most are not.
  constexpr double kOwnPrograms = 2023;
  const bool recent = date >= kOwnPrograms || multiplies_in_fp8(run) || says(low, "pytorch") ||
                      (date <= 0 && !says(low, "deepspeed"));
  const bool own = !says(low, "megatron") || low.starts_with("pytorch");  // "PyTorch eager (mini-megatron)"
  const bool written = says_any(low, {"pytorch", "eager", "own script", "own program"});
  const bool course = says(lower_case(framework + "; " + run.text("model")), "cs336");
  if (own && recent && course) return {"cs336", "cs336"};
  if (own && recent) return {written ? "pytorch-eager" : "pytorch", framework};
  if (!says(low, "deepspeed")) return {megatron_lm_release(run), framework};
  if (says(low, "megatron")) return {megatron_deepspeed_release(run), framework};
  return {deepspeed_zero3_release(run), framework};
}

std::optional<SoftwareStack> stack_of_program(const MeasuredRun& run, std::vector<std::string>& assumptions) {
  const std::string framework = run.text("framework"), low = lower_case(framework);
  if (says(framework, "Megatron") && says(framework, "DeepSpeed") &&
      said_sharding(run.text("optimizer_sharding")) == Sharding::weights)
    return read_stack("megatron-deepspeed-zero3");
  if (says(low, "deepspeedexamples") && says(low, "megatron"))
    return read_stack(says(low, "1.1.5") ? "megatron-v1.1.5-deepspeed" : "megatron-v0-deepspeed");
  if (framework.starts_with("Megatron-Bridge")) return bridge_stack(run);
  const bool experts = run.integer("n_experts").value_or(1) > 1 || says(low, "moe");
  if (says(low, "deepspeed") &&
      (says(low, "megatron") || says_any(low, {"deepspeed-moe", "deepspeed moe"})) && experts)
    return read_stack("deepspeed-moe");
  const double date = date_of_program(run);
  if (framework.starts_with("torchtitan")) return titan_stack(run, date);
  // Its layers of before Transformer Engine (core/models/gpt/gpt_layer_specs.py, get_gpt_layer_local_spec).
  constexpr double kChoosesLayers = 2023;
  if (framework.starts_with("Megatron") && says_any(low, {"local layers", "transformer-impl local"}) &&
      !(date > 0 && date < kChoosesLayers))
    return read_stack("megatron-lm-2023");
  if (says(low, "primus") && !says(low, "jax")) return read_stack("primus");
  const bool hugging_face = says_any(low, {"hugging face", "huggingface"});
  if (const Program* known = row_starting(kFrameworks, framework); known && !hugging_face)
    return in_said_bits(run, read_stack(known->preset(run)));
  if (framework.empty()) return std::nullopt;
  if (auto trainer = trainer_stack(run)) return trainer;
  const Likeness like = likeness_of(run);
  SoftwareStack stack = in_said_bits(run, read_stack(like.stack));
  constexpr double kStopsEarly = 2023.75;  // PyTorch 2.1
  if (date > 0 && date < kStopsEarly) stack.stops_recomputation = false;
  // PyTorch has FlashAttention since its 2.0 of March 2023: what is like it had none before, unless told.
  constexpr double kPyTorch2 = 2023;
  if (is_of_pytorch(stack) && date > 0 && date < kPyTorch2) stack.flash_attention = false;
  if (says(low, "compiled loss")) {
    const SoftwareStack compiled = read_stack("torchtitan-2025");
    stack.cross_entropy = compiled.cross_entropy;
    stack.logit_peak = compiled.logit_peak;
  }
  // F.cross_entropy of 16-bit logits: they, their softmax, and the gradients of both (litgpt/utils.py).
  constexpr double kIn16Bits = 8;
  if (says_any(low, {"litgpt", "lit-gpt"})) stack.logit_peak = kIn16Bits;
  const std::vector<Clause> words = framework_and_note(run);
  use_said_adam(run, stack);
  if (affirms(words, {"*ddpofitsown*"})) stack.copies_to_buckets = false;
  if (!low.starts_with(stack.name))
    assumptions.push_back("no preset for " + framework + ": as " + stack.name);
  stack.family = like.family;
  // Its engine for pipelines has no virtual stages (deepspeed/runtime/pipe/engine.py).
  if (says(low, "deepspeed")) stack.may_interleave = false;
  return stack;
}

}  // namespace

std::optional<SoftwareStack> stack_of_run(const MeasuredRun& run, std::vector<std::string>& assumptions) {
  const std::string given = run.text("stack");
  auto stack = given.empty() ? stack_of_program(run, assumptions)
                             : std::optional(read_stack(given, "run " + run.id() + ", column stack"));
  if (!stack) return stack;
  if (given.empty()) use_loss_of_then(run, *stack);
  use_said_sharding(run, *stack);
  use_said_scales(run, *stack);
  use_said_permutation(run, *stack);
  use_said_experts(run, *stack);
  use_said_exchange(run, *stack);
  use_said_async_tensors(run, *stack);
  if (given.empty()) {
    use_said_kernels(run, *stack);
    use_attention_of_run(run, *stack);
    use_said_shares(run, *stack);
  }
  return stack;
}

}  // namespace orrery
