#include "sim/measured/bridge_recipes.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>

#include "costmodels/stacks/stack_file.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_dates.hpp"
#include "sim/measured/measured_names.hpp"
#include "sim/measured/measured_words.hpp"

namespace orrery {
namespace {

constexpr const char* kFlex = "megatron-bridge";
constexpr const char* kFlexEager = "megatron-bridge-eager";
constexpr const char* kFlexOverlap = "megatron-bridge-overlap";
constexpr const char* kDeepEp = "megatron-bridge-deepep";
constexpr const char* kDeepEpOverlap = "megatron-bridge-deepep-overlap";
constexpr const char* kAllToAll = "megatron-bridge-alltoall";
constexpr const char* kAllToAllOverlap = "megatron-bridge-alltoall-overlap";
constexpr const char* kGraphs = "megatron-bridge-26.06";
constexpr const char* kGraphsOverlap = "megatron-bridge-graphs-overlap";
constexpr const char* kLibrary = "megatron-bridge-library";
constexpr const char* kLibraryOfQwen = "megatron-bridge-library-qwen";

// Starts of a release and a model; words of which one is the GPU, all where empty; the start of a precision.
struct Recipe {
  std::string_view release, model, gpus;
  const char* stack;
  std::string_view precision = "";
};

// moe_flex_dispatcher_backend (absent: NCCL's all-to-all), moe_a2a_overlap and cuda_graph_impl in
// NVIDIA-NeMo/Megatron-Bridge,
// scripts/performance/configs/{deepseek,gpt_oss,kimi,nemotronh,qwen}/*_base_configs.py. Tags of the
// containers by docs/releases/software-versions.md: 25.11 is v0.2.0, 26.02 v0.3.0, 26.04 v0.4.0, 26.06
// v0.5.0; patch releases are taken as v0.3.1 and v0.4.2, and where the published degrees are those of a
// neighbouring tag, as that one. 26.02 has no DeepEP (docs/releases/known-issues.md). Read after the
// residuals of these runs had been seen. The first that fits; any other run has a flex dispatcher, no overlap
// and no graphs over experts.
constexpr std::array kRecipes{
    Recipe{"25.09", "DeepSeekV3 (dropless", "H100", kDeepEpOverlap},
    Recipe{"25.09", "", "", "megatron-bridge-25.09"},
    Recipe{"25.11", "GPT OSS", "", kAllToAll},
    Recipe{"25.11", "Qwen3_235B", "H100 B200", kAllToAllOverlap},
    Recipe{"25.11", "Qwen3_30B", "B200", kAllToAll},
    Recipe{"25.11", "Qwen3_30B", "H100", kAllToAllOverlap},
    Recipe{"25.11", "DeepSeekV3", "B200", kAllToAll},
    Recipe{"26.02", "Qwen3_235B", "B300", kAllToAllOverlap},
    Recipe{"26.02.01", "GPT OSS", "H100 GB200 GB300", kAllToAll},
    Recipe{"26.02.01", "DeepSeekV3", "H100 B200 B300 GB300", kFlexEager},
    Recipe{"26.02.01", "Qwen3_235B", "H100", kDeepEpOverlap},
    Recipe{"26.02.01", "Qwen3", "B200", kDeepEp},
    Recipe{"26.02.01", "", "", kFlex},
    Recipe{"26.02", "GPT OSS", "", kAllToAll},
    Recipe{"26.02", "Qwen3", "B200", kAllToAll},
    Recipe{"26.02", "Qwen3_235B", "H100", kAllToAllOverlap},
    Recipe{"26.02", "Qwen3_30B", "H100", kAllToAllOverlap},
    Recipe{"26.04.01", "GPT OSS", "GB200", kAllToAllOverlap},
    Recipe{"26.04.01", "GPT OSS", "B200", kAllToAll},
    Recipe{"26.04.01", "DeepSeekV3", "B200", kGraphsOverlap, "MXFP8"},
    Recipe{"26.04.01", "DeepSeekV3", "B200", kDeepEpOverlap, "NVFP4"},
    Recipe{"26.04.01", "DeepSeekV3", "B300", kFlex},
    Recipe{"26.02", "DeepSeekV3", "H100 B200 B300 GB300", kFlexEager},
    Recipe{"26.04.01", "Qwen3_235B", "B300", kFlexEager},
    Recipe{"26.04", "Qwen3_235B", "H100", kAllToAllOverlap},
    Recipe{"26.04", "GPT OSS", "H100 GB300", kAllToAll},
    Recipe{"26.04", "GPT OSS", "GB200", kFlexOverlap},
    Recipe{"26.04", "GPT OSS", "B200", kFlexEager},
    Recipe{"26.04", "Qwen3_235B", "B200 B300", kAllToAll},
    Recipe{"26.04", "DeepSeekV3", "H100 B200 B300 GB300", kFlexEager},
    Recipe{"26.04", "Qwen3_30B", "H100", kFlexEager},
    Recipe{"26.06", "Qwen3_30B", "H100", kFlexEager},
    Recipe{"26.06", "DeepSeekV3", "B200", kFlexEager},
    Recipe{"26.06", "Nemotron_3_Super", "B200", kFlexEager, "MXFP8"},
    Recipe{"26.04", "Nemotron_3_Super", "B200", kFlexEager, "MXFP8"},
    Recipe{"26.06", "GPT OSS", "GB200 GB300", kGraphs, "MXFP8"},
    Recipe{"26.06", "Qwen3_235B", "GB200 GB300", kGraphs, "MXFP8"},
    Recipe{"26.06", "Qwen3_30B", "GB200 GB300 B300", kGraphs, "MXFP8"},
    Recipe{"26.06", "DeepSeekV3", "GB200 GB300", kGraphs, "MXFP8"},
    Recipe{"26.08", "GPT OSS", "GB200 GB300", kGraphs, "MXFP8"},
    Recipe{"26.08", "Qwen3", "GB200 GB300 B300", kGraphs, "MXFP8"},
    Recipe{"26.08", "DeepSeekV3", "GB200 GB300 B300", kGraphs, "MXFP8"},
};

// Of recompute_modules in the same files, read likewise. The first that fits.
using enum RecomputeModule;
struct RecomputeRecipe {
  std::string_view release, model, gpus, precision;
  RecomputeModules modules;
};
constexpr RecomputeModules kNothing(std::initializer_list<RecomputeModule>{});
constexpr std::array kRecomputes{
    RecomputeRecipe{"25", "GPT OSS", "H100 B200 GB200", "", {layernorm, moe_act}},
    RecomputeRecipe{"26", "GPT OSS", "H100 B200 GB200", "BF16", {layernorm, moe_act}},
    RecomputeRecipe{"26", "GPT OSS", "H100 B200", "", {layernorm, moe_act}},
    RecomputeRecipe{"25", "DeepSeekV3", "GB300", "", {moe_act}},
    RecomputeRecipe{"2", "DeepSeekV3", "H100", "", {mla_up_proj, mlp}},
    RecomputeRecipe{"26.04.01", "DeepSeekV3", "B200", "MXFP8", {mla_up_proj, mlp}},
    RecomputeRecipe{"26.04", "DeepSeekV3", "GB200", "", {mlp}},
    RecomputeRecipe{"26.06", "DeepSeekV3", "GB300", "", kNothing},
    RecomputeRecipe{"26.08", "DeepSeekV3", "GB300", "", kNothing},
    RecomputeRecipe{"2", "DeepSeekV3", "", "", {mla_up_proj}},
    RecomputeRecipe{"26", "Kimi", "H100", "", {mla_up_proj, mlp}},
    RecomputeRecipe{"26", "Kimi", "", "", {mla_up_proj}},
    RecomputeRecipe{"26", "Nemotron_3_Nano", "H100", "BF16", {moe, layernorm}},
    RecomputeRecipe{"26", "Nemotron_3_Nano", "H100", "", {moe, layernorm, core_attn, moe_act}},
    RecomputeRecipe{"26", "Nemotron_3_Super", "B300", "NVFP4", {moe_act, layernorm}},
    RecomputeRecipe{"26", "Nemotron_3_Super", "B200", "MXFP8", {moe_act, layernorm}},
};

// Models and GPUs that scripts/performance/configs has recipes for; all others run by those of the library.
bool has_performance_recipe(const std::string& model, const GpuSpec* gpu) {
  constexpr std::array<std::string_view, 8> kModels{"llama3", "deepseekv3", "gptoss",    "kimi",
                                                    "qwen3",  "nemotronh",  "nemotron3", "nemotron4"};
  constexpr std::array<std::string_view, 5> kCards{"H100", "B200", "B300", "GB200", "GB300"};
  const auto starts_as_one_of = [](const std::string& text, const auto& names) {
    return std::any_of(names.begin(), names.end(),
                       [&](std::string_view name) { return text.starts_with(name); });
  };
  return starts_as_one_of(letters_and_digits(model), kModels) &&
         (gpu == nullptr || starts_as_one_of(gpu->name, kCards));
}

bool is_word_in(std::string_view words, std::string_view word) {
  const std::string padded = " " + std::string(words) + " ";
  return padded.find(" " + std::string(word) + " ") != std::string::npos;
}

constexpr std::string_view kName = "Megatron-Bridge ";

// In order, each with the start of its month in years (date_of_program).
struct Release {
  const char* name;
  double date;
};
constexpr std::array kReleases{
    Release{"25.09", 2025 + 8 / 12.0}, Release{"25.11", 2025 + 10 / 12.0}, Release{"26.02", 2026 + 1 / 12.0},
    Release{"26.04", 2026 + 3 / 12.0}, Release{"26.06", 2026 + 5 / 12.0},  Release{"26.08", 2026 + 7 / 12.0},
};

// "26.04.01" of "Megatron-Bridge 26.04.01"; of "Megatron-Bridge (September 2026)" the last release until
// then, "26.08". Empty: neither said.
std::string release_of(const MeasuredRun& run) {
  const std::string framework = run.text("framework");
  const std::string named = framework.substr(std::min(kName.size(), framework.size()));
  if (named.empty() || std::isdigit(static_cast<unsigned char>(named.front())) || !names_its_date(run))
    return named;
  const double date = date_of_program(run);
  std::string last;
  for (const Release& release : kReleases)
    if (release.date <= date) last = release.name;
  return last;
}

// The first row of a table that fits a run, however it spells its model; null: none.
template <class Row, std::size_t Count>
const Row* row_of(const std::array<Row, Count>& rows, const MeasuredRun& run) {
  const std::string release = release_of(run), model = letters_and_digits(run.text("model")),
                    gpu = run.text("gpu"), precision = lower_case(run.text("precision"));
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
    return release.starts_with(row.release) && model.starts_with(letters_and_digits(row.model)) &&
           precision.starts_with(lower_case(std::string(row.precision))) &&
           (row.gpus.empty() || is_word_in(row.gpus, gpu));
  });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

bool is_bridge(const MeasuredRun& run) {
  return run.text("framework").starts_with(kName);
}

// FP8 without more is current scaling (fp8_cs; scripts/performance/utils/precision.py).
SoftwareStack bridge_stack(const MeasuredRun& run) {
  const Recipe* recipe = row_of(kRecipes, run);
  const std::string model = run.text("model");
  const bool qwen = letters_and_digits(model).starts_with("qwen");
  const char* library = qwen ? kLibraryOfQwen : kLibrary;
  const char* other = has_performance_recipe(model, gpu_called(run.text("gpu"), 0)) ? kFlex : library;
  const char* own = recipe == nullptr ? other : recipe->stack;
  // A run that left its recipe's flex dispatcher, without the overlap and the graphs that need it.
  const std::vector<Clause> clauses = clauses_of(run.text("framework"));
  const bool exchanges = (affirms(clauses, {"*alltoall*"}) && !affirms(clauses, {"*alltoalloverlap*"})) ||
                         affirms(clauses_of(run.text("note")), {"alltoalldispatcher"});
  // Or whose graphs are not whole iterations', without the kernels that need that.
  const SaidGraphs graphs = said_graphs(run);
  const bool parts = own == kGraphs && (graphs == SaidGraphs::parts || graphs == SaidGraphs::none);
  SoftwareStack stack = read_stack(exchanges && own != library ? kAllToAll : parts ? kFlex : own);
  const std::string precision = lower_case(run.text("precision"));
  const bool blocks = precision.starts_with("mxfp8") || precision.starts_with("fp8-mx");
  stack.fp8_recipe = blocks ? Fp8Recipe::mxfp8 : Fp8Recipe::tensorwise;
  return stack;
}

// All recipes of Llama 3 70B and 3.1 405B without pipeline stages, v0.2.0 to v0.5.0.
bool bridge_shards_weights(const MeasuredRun& run) {
  const std::string model = letters_and_digits(run.text("model"));
  return is_bridge(run) && run.integer("pp") == 1 &&
         (model.starts_with("llama370b") || model.starts_with("llama31405b"));
}

std::optional<RecomputeModules> bridge_recomputes(const MeasuredRun& run) {
  const RecomputeRecipe* recipe = row_of(kRecomputes, run);
  return recipe == nullptr || recipe->modules.empty() ? std::nullopt : std::optional(recipe->modules);
}

// pipeline_model_parallel_layout of recipes/deepseek/deepseek_v3.py, v0.2.0 to v0.5.0 (25.09 is taken to be
// alike), and pp_layout of the performance scripts: with the embedding 16, 8, 4 layers, then as many each; or
// one layer, then two each. The last part has the rest, or none, what predicts further tokens and the loss.
// Read after errors of these runs had been seen.
std::string bridge_cuts(const MeasuredRun& run, const ModelSpec& model, int parts) {
  const bool known = model.name == "deepseek-v3" || model.name == "deepseek-v3-mtp";
  if (!is_bridge(run) || !known) return {};
  constexpr int kOfTwo = 32;  // parts that have two layers each
  if (parts != 4 && parts != 8 && parts != 16 && parts != kOfTwo) return {};
  std::string cuts = "0";
  for (int part = 1; part < parts; ++part)
    cuts += ";" + std::to_string(parts == kOfTwo ? 2 * part - 1 : 64 / parts * part);
  return cuts + ";" + std::to_string(model.layer_count());
}

}  // namespace orrery
