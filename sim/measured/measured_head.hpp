// What a published run says of its model's head.
#pragma once

#include <string>
#include <vector>

#include "sim/measured/measured_run.hpp"
#include "strategies/model.hpp"

namespace orrery {

// As the name says, else the note ("untied head", "tied embeddings"), else as the family is.
bool ties_embeddings(const MeasuredRun&, bool of_family);

// Labels in the place of words, and masked positions; what is taken is appended to `assumptions`.
void take_head(const MeasuredRun&, ModelSpec&, std::vector<std::string>& assumptions);

}  // namespace orrery
