// Layers of a published run that stay in 16 bits where the others multiply in fewer.
#pragma once

#include "sim/measured/measured_run.hpp"
#include "strategies/model.hpp"

namespace orrery {

// By its recipe, or its note where it multiplies in 4 bits: "5 of 32 layers bf16", "last 4 layers in bf16".
void keep_sixteen_bits(const MeasuredRun&, ModelSpec&);

}  // namespace orrery
