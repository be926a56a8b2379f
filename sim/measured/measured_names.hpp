// What published tables call GPUs, programs and models, in the words of Orrery.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "costmodels/stacks/software_stack.hpp"
#include "platforms/gpu.hpp"
#include "sim/measured/measured_run.hpp"

namespace orrery {

// The card of the catalog that has every word of the name ("NVIDIA A100 80GB PCIe"), makers and kinds of
// memory aside; `gigabytes` (0: not given) counts as one. The first of several, so SXM before PCIe. Null:
// none.
const GpuSpec* gpu_called(const std::string& name, double gigabytes);

// Of a run's GPU, in the catalog's words ("Hopper"); empty: a GPU that nobody knows.
std::string_view architecture_of(const MeasuredRun&);

// The built-in model of that name, punctuation and case aside, and whatever follows it: "Llama-2-70B" is
// llama2-70b, "Qwen3_235B_A22B (EP8)" is qwen3-235b-a22b.
std::optional<std::string> builtin_model_called(const std::string& name);

// The preset that stands for a run's program. Megatron-LM's changed with the years: the year is that of the
// source, or that of what the run uses. Of a program that is not known the name is given to the family, so
// that no residuals of others are taken for its own, and said among the assumptions. Absent where the row
// names none.
std::optional<SoftwareStack> stack_of_run(const MeasuredRun&, std::vector<std::string>& assumptions);

}  // namespace orrery
