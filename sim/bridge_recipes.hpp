// Which preset each of Megatron-Bridge's performance recipes is.
#pragma once

#include "sim/measured_run.hpp"

namespace orrery {

// The preset of a run of Megatron-Bridge, by release, model, GPU and precision: how tokens reach experts, and
// whether that runs beside another microbatch, is set recipe by recipe.
const char* bridge_recipe(const MeasuredRun&);

}  // namespace orrery
