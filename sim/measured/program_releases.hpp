// Presets of programs that changed with the years: which one a published run's was, by its date and by what
// it uses.
#pragma once

#include "sim/measured/measured_run.hpp"

namespace orrery {

// Megatron-LM: of a row that says neither year nor a later feature one of the first.
const char* megatron_lm_release(const MeasuredRun&);
// Megatron-Core and Megatron-LM on it, where a row names it.
const char* megatron_core_release(const MeasuredRun&);
// Megatron-DeepSpeed: until and since it was rebased.
const char* megatron_deepspeed_release(const MeasuredRun&);
// DeepSpeed's ZeRO-3 without Megatron-LM: until and since it gathers under compute.
const char* deepspeed_zero3_release(const MeasuredRun&);
const char* nanotron_release(const MeasuredRun&);
// OneFlow: with tensor or pipeline ways, and without.
const char* oneflow_release(const MeasuredRun&);
// NeMo's programs without a release in their name.
const char* nemo_release(const MeasuredRun&);

}  // namespace orrery
