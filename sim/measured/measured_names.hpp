// What published tables call GPUs and models, in the words of Orrery.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "platforms/gpu.hpp"
#include "sim/measured/measured_run.hpp"

namespace orrery {

// The card of the catalog that has every word of the name ("NVIDIA A100 80GB PCIe"), makers and kinds of
// memory aside; `gigabytes` (0: not given) counts as one. The first of several, so SXM before PCIe. Null:
// none.
const GpuSpec* gpu_called(const std::string& name, double gigabytes);

// Of a run's GPU, in the catalog's words ("Hopper"); empty: a GPU that nobody knows.
std::string_view architecture_of(const MeasuredRun&);
bool multiplies_in_fp8(const MeasuredRun&);  // its GPU does

// The built-in model of that name, punctuation and case aside, and whatever follows it: "Llama-2-70B" is
// llama2-70b, "Qwen3_235B_A22B (EP8)" is qwen3-235b-a22b.
std::optional<std::string> builtin_model_called(const std::string& name);

}  // namespace orrery
