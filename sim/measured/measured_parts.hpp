// The layers of each pipeline part of a published run: as its row says, or as its program deals them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodels/stacks/software_stack.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// Of "0;13;26", the pieces of the model before each part, all of them last; of "13, 13", the layers of each,
// apart by commas, semicolons or bars, with brackets around them or without; or of "Et*13|t*13L", a layout of
// Megatron-LM's (core/transformer/pipeline_parallel_layer_layout.py), whose m, what predicts more tokens, is
// no layer here. Absent where the text says no partition, or a part between the first and the last has no
// layer.
std::optional<std::vector<LayerRange>> said_partition(const std::string& text, int layers);
std::optional<int> said_parts(const std::string& text);  // how many it says, of however many layers

// What a stack makes of `layers` layers where nobody says otherwise: SoftwareStack::equal_pieces and
// embedding_counts.
std::vector<LayerRange> usual_parts(int layers, int parts, const SoftwareStack&);

}  // namespace orrery
