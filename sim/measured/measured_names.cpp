#include "sim/measured/measured_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "costmodels/stacks/stack_file.hpp"
#include "sim/measured/bridge_recipes.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_attention.hpp"
#include "sim/measured/measured_dates.hpp"
#include "sim/measured/measured_trainers.hpp"
#include "sim/measured/measured_words.hpp"
#include "sim/measured/said_kernels.hpp"
#include "sim/measured/titan_stack.hpp"
#include "strategies/model.hpp"

namespace orrery {
namespace {

// "NVIDIA A100 80GB HBM2e": a100, 80gb.
std::vector<std::string> card_words(const std::string& name) {
  constexpr std::array kNoise{"nvidia", "geforce", "tesla",       "amd",       "instinct",   "gpu",
                              "dgx",    "hgx",     "hbm2",        "hbm2e",     "hbm3",       "hbm3e",
                              "nvl72",  "nvl36",   "one",         "blackwell", "generation", "edition",
                              "server", "hopper",  "workstation", "oam",       "ac"};
  std::vector<std::string> words(1);
  for (const unsigned char c : name) {
    if (std::isalnum(c)) {
      words.back() += static_cast<char>(std::tolower(c));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  const auto is_noise = [&](const std::string& word) {
    return word.empty() || std::find(kNoise.begin(), kNoise.end(), word) != kNoise.end();
  };
  words.erase(std::remove_if(words.begin(), words.end(), is_noise), words.end());
  // "80 GB" is one word, and so is "80G"; "8x" before a card counts them.
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] != "gb") continue;
    words[i - 1] += "gb";
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (std::string& word : words) {
    const std::size_t digits = word.find_first_not_of("0123456789");
    if (digits == 0 || digits == std::string::npos) continue;
    if (word.substr(digits) == "g") word += "b";
    if (word[digits] == 'x' && digits + 1 < word.size()) word.erase(0, digits + 1);
  }
  return words;
}

// Forms of a board are matched by how they start: SXM is SXM4, SXM3 is not SXM2 but the same board faster or
// slower by a few percent.
bool is_word_of(const std::string& word, const std::vector<std::string>& card) {
  const std::string form = word.rfind("sxm", 0) == 0 ? "sxm" : word;
  return std::any_of(card.begin(), card.end(), [&](const std::string& own) {
    return form == "sxm" ? own.rfind(form, 0) == 0 : own == word;
  });
}

// "192gb" of a B200, of which its driver says 180: within a tenth.
bool is_memory_of(const std::string& word, const GpuSpec& gpu) {
  const std::size_t digits = word.find_first_not_of("0123456789");
  if (digits == 0 || digits > 3 || word.substr(digits) != "gb") return false;
  constexpr double kApart = 0.1;
  return std::abs(std::stod(word) / to_gibibytes(gpu.memory) - 1) < kApart;
}

// Frameworks by the start of their name in a row; the first that fits.
struct FrameworkStack {
  const char* start;
  const char* stack;
};
constexpr std::array kFrameworks{
    FrameworkStack{"NeMo/Megatron-Core 24.07", "nemo-24.07"},
    FrameworkStack{"NeMo 24.03", "nemo-24.03"},
    FrameworkStack{"NeMo AutoModel", "nemo-automodel"},
    FrameworkStack{"NeMo Automodel", "nemo-automodel"},
    FrameworkStack{"llm-foundry", "llm-foundry"},
    FrameworkStack{"DeepSpeed ZeRO-3", "deepspeed-zero3"},
    FrameworkStack{"Megatron-DeepSpeed", "megatron-deepspeed"},
    FrameworkStack{"Megatron + DeepSpeed", "megatron-deepspeed"},
    FrameworkStack{"DeepSpeed Megatron-LM v1.1.5 3D", "amp"},  // of the tables, AMP's runs alone
    FrameworkStack{"DeepSpeed Megatron-LM", "megatron-deepspeed"},
    FrameworkStack{"Megatron-Core", "megatron-core-defaults"},
    FrameworkStack{"ATorch DeepSpeed 3D", "atorch-3d"},
    FrameworkStack{"Aleph Alpha", "aleph-alpha"},
    FrameworkStack{"AA-Scaling", "aleph-alpha"},
    FrameworkStack{"InternEvo", "internevo"},
    FrameworkStack{"FlagScale", "flagscale"},
    FrameworkStack{"Fast-LLM", "fast-llm"},
    FrameworkStack{"metaseq", "metaseq"},
    FrameworkStack{"llm.c", "llm.c"},
    FrameworkStack{"llmq", "llm.c"},
    FrameworkStack{"LLM.Q", "llm.c"},
    FrameworkStack{"torchtune", "torchtune"},
    FrameworkStack{"KempnerForge, eager", "kempnerforge-eager"},
    FrameworkStack{"KempnerForge", "kempnerforge"},
};
// Runtimes of their own, which no preset is like.
constexpr std::array kOtherRuntimes{"OneFlow"};

// Of programs without a preset, by a word in their name: what they are built on, or most like.
constexpr std::array kLikenesses{
    FrameworkStack{"nemo", "nemo-24.12"},
    FrameworkStack{"torch.compile", "torchtitan"},
    FrameworkStack{"maxtext", "maxtext"},
    FrameworkStack{"transformer engine", "transformer-engine"},
    FrameworkStack{"kempnerforge", "kempnerforge"},
    FrameworkStack{"modalities", "modalities"},
    FrameworkStack{"fsdp", "pytorch-fsdp"},
    FrameworkStack{"llm foundry", "llm-foundry"},
    FrameworkStack{"mosaic", "llm-foundry"},
    FrameworkStack{"neox", "megatron-deepspeed"},
    FrameworkStack{"nanotron", "nanotron"},
    FrameworkStack{"alpa", "alpa"},
    FrameworkStack{"jax", "jax"},
    FrameworkStack{"levanter", "jax"},
    FrameworkStack{"pax", "jax"},
    FrameworkStack{"tensorflow", "tensorflow"},
};

bool multiplies_in_fp8(const MeasuredRun& run) {
  const GpuSpec* gpu = gpu_called(run.text("gpu"), 0);
  return gpu && gpu->fp8.has_value();
}

// The loss of Megatron-Core works in the place of its fp32 logits since 9634c0e4a3 of 13 June 2024: of a run
// that says its year alone that is not known.
void use_loss_of_then(const MeasuredRun& run, SoftwareStack& stack) {
  constexpr double kMiddle = 2024.5;
  if (stack.name == "megatron-core-2024" && date_of_program(run) > kMiddle)
    stack.logit_peak = read_stack("megatron-core-defaults").logit_peak;
}

constexpr double kOverlapsByArgument =
    2025;  // of Megatron-Core: what a run of 2024 does not name it did not have

constexpr double kUntilPaper = 0.4;  // years between code and paper (assumption)

// A row that says neither year nor a later feature is taken for one of the first.
const char* megatron_of(const MeasuredRun& run) {
  constexpr int kSequenceParallelism = 2022;  // arXiv 2205.05198, which also brought selective recomputation
  constexpr int kFlash = 2023;                // FlashAttention
  constexpr double kScatterGather = 2021.22;  // 21 March 2021
  // Overlaps of September to November 2023.
  constexpr double kOverlaps = 2023.8;
  const double date = date_of_program(run), overlaps = kOverlaps + (names_its_date(run) ? 0 : kUntilPaper);
  const auto is_on = [&](const char* column) { return run.text(column).rfind("yes", 0) == 0; };
  if (date >= overlaps) return date < kOverlapsByArgument ? "megatron-core-2024" : "megatron-core-defaults";
  if (date >= kFlash) return "megatron-lm-2023";
  if (multiplies_in_fp8(run) || is_on("flash_attn")) return "megatron-core-defaults";
  const bool selective = run.text("recompute").rfind("selective", 0) == 0;
  if (date >= kSequenceParallelism || selective || is_on("sequence_parallel")) return "megatron-lm-2022";
  return date > 0 && date < kScatterGather ? "megatron-lm-2020" : "megatron-lm-2021";
}

constexpr double kGathersAhead = 2022;  // DeepSpeed's commit 4912e0ad: ZeRO-3 gathers under compute

// A preset, and what its residuals tell of: all releases of a program.
struct Likeness {
  std::string stack, family;
};

// NeMo's presets: on Blackwell; until its launcher left cuDNN's attention on (stacks.yaml, nemo-24.07);
// since.
const char* nemo_of(const MeasuredRun& run) {
  constexpr double kFusedAttention = 2024.65;
  const double date = date_of_program(run);
  if (architecture_of(run).starts_with("Blackwell")) return "nemo-graphs";
  return date > 0 && date < kFusedAttention ? "nemo-24.07" : "nemo-24.12";
}

// Of a program without a preset; all of it was set after errors of published runs had been seen. NeMo's
// layers were Megatron-LM's of their time until Transformer Engine, which came for H100 in 2023.
Likeness likeness_of(const MeasuredRun& run) {
  const std::string framework = run.text("framework");
  const std::string low = lower_case(framework);
  constexpr double kTransformerEngine = 2024;
  const double date = date_of_program(run);
  const bool early = date > 0 && date < kTransformerEngine && !multiplies_in_fp8(run);
  if (says(low, "nemo") && early) return {megatron_of(run), framework};
  constexpr std::string_view kCompiler = "torch.compile", kTransformer = "transformer engine";
  if (is_compiled(low) && !says(low, "fsdp")) return {"compiled-program", std::string(kCompiler)};
  const std::vector<Clause> clauses = clauses_of(framework);
  const auto like = std::find_if(kLikenesses.begin(), kLikenesses.end(), [&](const FrameworkStack& one) {
    if (one.start == kTransformer) return affirms(clauses, {"*transformerengine*"});
    return one.start == kCompiler ? is_compiled(low) : says(low, one.start);
  });
  if (like != kLikenesses.end()) {
    const bool nemo = std::string_view(like->stack) == "nemo-24.12";
    if (std::string_view(like->stack) == "tensorflow" && affirms(clauses, {"xla"}))
      return {"tensorflow-xla", like->start};
    return {nemo ? nemo_of(run) : like->stack, like->start};
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
  if (!says(low, "deepspeed")) return {megatron_of(run), framework};
  if (says(low, "megatron")) return {"megatron-deepspeed", framework};
  return {date >= kGathersAhead ? "deepspeed-zero3-2022" : "deepspeed-zero3", framework};
}

}  // namespace

const GpuSpec* gpu_called(const std::string& name, double gigabytes) {
  std::vector<std::string> words = card_words(name);
  if (words.empty()) return nullptr;
  // Where the name is an alias its card comes first; with another memory it is another card.
  const auto has_memory = [&](const GpuSpec& gpu) {
    return gigabytes == 0 || is_word_of(std::to_string(std::lround(gigabytes)) + "gb", card_words(gpu.name));
  };
  // Word by word; `about`: with what is sold of its memory.
  const auto has_words = [&](const GpuSpec& gpu, bool about) {
    const std::vector<std::string> card = card_words(gpu.name);
    return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
      return is_word_of(word, card) || (about && is_memory_of(word, gpu));
    });
  };
  const auto fits = [&](const GpuSpec& gpu) { return has_words(gpu, false); };
  const auto is_alias = [&](const GpuSpec& gpu) {
    return std::any_of(gpu.aliases.begin(), gpu.aliases.end(),
                       [&](const std::string& alias) { return card_words(alias) == words; });
  };
  const std::vector<GpuSpec>& catalog = gpu_catalog();
  const auto first = [&](const auto& wanted) {
    const auto found = std::find_if(catalog.begin(), catalog.end(), wanted);
    return found == catalog.end() ? nullptr : &*found;
  };
  const GpuSpec* found = first([&](const GpuSpec& gpu) { return is_alias(gpu) && has_memory(gpu); });
  if (!found) found = first([&](const GpuSpec& gpu) { return fits(gpu) && has_memory(gpu); });
  if (!found) found = first(is_alias);
  if (!found) found = first(fits);
  if (!found) found = first([&](const GpuSpec& gpu) { return has_words(gpu, true); });
  // "GB10 (DGX Spark)", a card and its machine.
  if (const std::size_t machine = name.find(" ("); !found && machine != std::string::npos)
    return gpu_called(name.substr(0, machine), gigabytes);
  return found;
}

std::string_view architecture_of(const MeasuredRun& run) {
  const GpuSpec* gpu = gpu_called(run.text("gpu"), 0);
  return gpu ? std::string_view(gpu->architecture) : std::string_view();
}

std::optional<std::string> builtin_model_called(const std::string& name) {
  // "meta-llama/Meta-Llama-3.1-405B"; of that size 3.1, and 3.3, have the layers of 3.
  std::string wanted = letters_and_digits(name.substr(name.rfind('/') + 1));
  if (wanted.starts_with("metallama")) wanted.erase(0, 4);
  const auto longest = [](const std::string& text) {
    std::optional<std::string> found;
    for (const std::string& known : builtin_model_names()) {
      if (!text.starts_with(letters_and_digits(known))) continue;
      if (!found || known.size() > found->size()) found = known;
    }
    return found;
  };
  if (auto found = longest(wanted)) return found;
  for (const std::string_view release : {"llama31", "llama33"}) {
    if (wanted.starts_with(release)) return longest("llama3" + wanted.substr(release.size()));
  }
  return std::nullopt;
}

namespace {

std::optional<SoftwareStack> stack_of_program(const MeasuredRun& run, std::vector<std::string>& assumptions) {
  const std::string framework = run.text("framework"), low = lower_case(framework);
  if (says(framework, "Megatron") && says(framework, "DeepSpeed") &&
      said_sharding(run.text("optimizer_sharding")) == Sharding::weights)
    return read_stack("megatron-deepspeed-zero3");
  if (framework.starts_with("Megatron-Bridge")) return bridge_stack(run);
  const bool experts = run.integer("n_experts").value_or(1) > 1 || says(low, "moe");
  if (says(low, "deepspeed") &&
      (says(low, "megatron") || says_any(low, {"deepspeed-moe", "deepspeed moe"})) && experts)
    return read_stack("deepspeed-moe");
  const double date = date_of_program(run);
  if (framework.starts_with("torchtitan")) return titan_stack(run, date);
  constexpr double kGathersAgain = 2024.545;  // 17 July: nanotron's tp_recompute_allgather
  if (low.starts_with("nanotron") && date > 0 && date < kGathersAgain) return read_stack("nanotron-2024");
  // Its layers of before Transformer Engine (core/models/gpt/gpt_layer_specs.py, get_gpt_layer_local_spec).
  constexpr double kChoosesLayers = 2023;
  if (framework.starts_with("Megatron") && says_any(low, {"local layers", "transformer-impl local"}) &&
      !(date > 0 && date < kChoosesLayers))
    return read_stack("megatron-lm-2023");
  if (says(low, "primus") && !says(low, "jax")) return read_stack("primus");
  if (framework.starts_with("Megatron-Core") && date > 0 && date < kOverlapsByArgument)
    return read_stack("megatron-core-2024");
  const bool hugging_face = says_any(low, {"hugging face", "huggingface"});
  if (framework.starts_with("DeepSpeed ZeRO-3") && date >= kGathersAhead && !hugging_face)
    return read_stack("deepspeed-zero3-2022");
  if (const FrameworkStack* known = row_starting(kFrameworks, framework); known && !hugging_face) {
    constexpr double kRebased = 2023.5;  // deepspeedai/Megatron-DeepSpeed 7f7cea32 of 12 July 2023
    const bool rebased = date >= kRebased + (names_its_date(run) ? 0 : kUntilPaper);
    const bool on_megatron = std::string_view(known->stack) == "megatron-deepspeed";
    return in_said_bits(run, read_stack(on_megatron && rebased ? "megatron-deepspeed-2023" : known->stack));
  }
  const auto is_other = [&](const char* start) { return framework.rfind(start, 0) == 0; };
  if (framework.empty() || std::any_of(kOtherRuntimes.begin(), kOtherRuntimes.end(), is_other))
    return std::nullopt;
  if (framework.rfind("Megatron-LM", 0) == 0) return read_stack(megatron_of(run));
  if (auto trainer = trainer_stack(run)) return trainer;
  const Likeness like = likeness_of(run);
  SoftwareStack stack = in_said_bits(run, read_stack(like.stack));
  constexpr double kStopsEarly = 2023.75;  // PyTorch 2.1
  if (date > 0 && date < kStopsEarly) stack.stops_recomputation = false;
  if (is_of_pytorch(stack) && is_before_flash_attention(date)) stack.flash_attention = false;
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
