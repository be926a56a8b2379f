// The layers of each pipeline part of a published run: as its row says, or as its program deals them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodels/stacks/software_stack.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// Of "0;13;26", the pieces of the model before each part, all of them last, or of "13, 13", the layers of
// each, apart by commas, semicolons or bars, with brackets around them or without. Absent where the text says
// no partition, or a part between the first and the last has no layer.
std::optional<std::vector<LayerRange>> said_partition(const std::string& text, int layers);

// What a stack makes of `layers` layers where nobody says otherwise: SoftwareStack::equal_pieces and
// embedding_counts.
std::vector<LayerRange> usual_parts(int layers, int parts, const SoftwareStack&);

}  // namespace orrery
