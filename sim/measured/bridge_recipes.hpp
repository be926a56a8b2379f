// Which preset each of Megatron-Bridge's performance recipes is.
#pragma once

#include <string>

#include "costmodels/stacks/software_stack.hpp"
#include "sim/measured/measured_run.hpp"
#include "strategies/model.hpp"
#include "strategies/recompute.hpp"

namespace orrery {

// The preset of a run of Megatron-Bridge, by release, model, GPU and precision: how tokens reach experts, and
// whether that runs beside another microbatch, is set recipe by recipe. With the scaling of its 8 bits.
SoftwareStack bridge_stack(const MeasuredRun&);

// Whether a run is of Megatron-Bridge, whose tables leave out the rest:
bool is_bridge(const MeasuredRun&);
// whether its recipe shards weights (use_megatron_fsdp);
bool bridge_shards_weights(const MeasuredRun&);
// what it recomputes (recompute_modules); absent: nothing;
std::optional<RecomputeModules> bridge_recomputes(const MeasuredRun&);
// the layers of each of `parts` pipeline parts, as a row would say them; empty: as its stack deals them.
std::string bridge_cuts(const MeasuredRun&, const ModelSpec&, int parts);

}  // namespace orrery
