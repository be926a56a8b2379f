#include "sim/bridge_recipes.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace orrery {
namespace {

constexpr const char* kFlex = "megatron-bridge";
constexpr const char* kFlexOverlap = "megatron-bridge-overlap";
constexpr const char* kAllToAll = "megatron-bridge-alltoall";
constexpr const char* kAllToAllOverlap = "megatron-bridge-alltoall-overlap";
constexpr const char* kGraphs = "megatron-bridge-26.06";

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
    Recipe{"25.09", "DeepSeekV3 (dropless", "H100", kFlexOverlap},
    Recipe{"25.09", "", "", "megatron-bridge-25.09"},
    Recipe{"25.11", "GPT OSS", "", kAllToAll},
    Recipe{"25.11", "Qwen3_235B", "B200", kAllToAllOverlap},
    Recipe{"25.11", "Qwen3_30B", "B200", kAllToAll},
    Recipe{"25.11", "Qwen3_30B", "H100", kAllToAllOverlap},
    Recipe{"25.11", "DeepSeekV3", "B200", kAllToAll},
    Recipe{"26.02", "Qwen3_235B", "B300", kAllToAllOverlap},
    Recipe{"26.02.01", "GPT OSS", "H100 GB200 GB300", kAllToAll},
    Recipe{"26.02.01", "", "", kFlex},
    Recipe{"26.02", "GPT OSS", "", kAllToAll},
    Recipe{"26.02", "Qwen3", "B200", kAllToAll},
    Recipe{"26.02", "Qwen3_30B", "H100", kAllToAllOverlap},
    Recipe{"26.04.01", "GPT OSS", "GB200", kAllToAllOverlap},
    Recipe{"26.04.01", "GPT OSS", "B200", kAllToAll},
    Recipe{"26.04.01", "DeepSeekV3", "B200", kFlexOverlap},
    Recipe{"26.04.01", "Qwen3_235B", "B300", kFlex},
    Recipe{"26.04", "GPT OSS", "H100 GB300", kAllToAll},
    Recipe{"26.04", "Qwen3_235B", "B200 B300", kAllToAll},
    Recipe{"26.06", "GPT OSS", "GB200 GB300", kGraphs, "MXFP8"},
    Recipe{"26.06", "Qwen3_235B", "GB200 GB300", kGraphs, "MXFP8"},
    Recipe{"26.06", "Qwen3_30B", "GB200 GB300 B300", kGraphs, "MXFP8"},
    Recipe{"26.06", "DeepSeekV3", "GB200 GB300", kGraphs, "MXFP8"},
    Recipe{"26.08", "GPT OSS", "GB200 GB300", kGraphs, "MXFP8"},
    Recipe{"26.08", "Qwen3", "GB200 GB300 B300", kGraphs, "MXFP8"},
    Recipe{"26.08", "DeepSeekV3", "GB200 GB300", kGraphs, "MXFP8"},
};

bool is_word_in(std::string_view words, std::string_view word) {
  const std::string padded = " " + std::string(words) + " ";
  return padded.find(" " + std::string(word) + " ") != std::string::npos;
}

}  // namespace

const char* bridge_recipe(const MeasuredRun& run) {
  constexpr std::string_view kName = "Megatron-Bridge ";
  const std::string framework = run.text("framework"), model = run.text("model"), gpu = run.text("gpu"),
                    precision = run.text("precision");
  if (framework.size() <= kName.size()) return kFlex;
  const std::string_view release = std::string_view(framework).substr(kName.size());
  const auto found = std::find_if(kRecipes.begin(), kRecipes.end(), [&](const Recipe& recipe) {
    return release.starts_with(recipe.release) && model.starts_with(recipe.model) &&
           precision.starts_with(recipe.precision) && (recipe.gpus.empty() || is_word_in(recipe.gpus, gpu));
  });
  return found == kRecipes.end() ? kFlex : found->stack;
}

}  // namespace orrery
