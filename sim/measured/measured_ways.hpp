// In how many ways published runs split a model and its batch.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "sim/measured/measured_plan.hpp"
#include "sim/measured/measured_words.hpp"

namespace orrery {

struct Degrees {
  int tensor, pipeline, data, context, expert;
};

// What is said of settings that a row leaves open: those within a tenth of the fastest are meant.
inline constexpr const char* kOfFastest = ", of the fastest";

// Whether weights, gradients and optimizer are sharded: what the row says, else what its program does.
bool shards_weights(const SoftwareStack&, const SaidWords&);

// As said, and what GPUs and the other ways leave. Tensor and pipeline ways that are open even so, and expert
// ways with them: all that the GPUs of the plan's cluster, the layers of its model and the batch allow, the
// smallest parts first; expert ways alone: where the weights need them. Of a run that failed, which ran one
// of them that nobody knows, tensor and pipeline ways are lacking.
std::variant<std::vector<Degrees>, Unmapped> degrees_of(const MeasuredRun&, const SaidWords&,
                                                        const MeasuredPlan&,
                                                        std::vector<std::string>& assumptions);

}  // namespace orrery
