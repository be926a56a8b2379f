// Presets of programs that changed with the years: which one a published run's was, by its date and by what
// it uses.
#pragma once

#include <string_view>

#include "sim/measured/measured_run.hpp"

namespace orrery {

// Megatron-LM: of a row that says neither year nor a later feature one of the first.
std::string_view megatron_lm_release(const MeasuredRun&);
// Megatron-Core and Megatron-LM on it, where a row names it.
std::string_view megatron_core_release(const MeasuredRun&);
// Megatron-DeepSpeed: until and since it was rebased.
std::string_view megatron_deepspeed_release(const MeasuredRun&);
// DeepSpeed's ZeRO-3 without Megatron-LM: until and since it gathers under compute.
std::string_view deepspeed_zero3_release(const MeasuredRun&);
std::string_view nanotron_release(const MeasuredRun&);
// OneFlow: with tensor or pipeline ways, and without.
std::string_view oneflow_release(const MeasuredRun&);
// NeMo's programs without a release in their name.
std::string_view nemo_release(const MeasuredRun&);

}  // namespace orrery
