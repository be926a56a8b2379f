// Errors of a model on rows that it was not fitted to.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "costmodels/fit.hpp"
#include "costmodels/training_set.hpp"

namespace orrery {

// Summary of predicted / measured, as natural logarithms. Not empty.
FitError summarise(std::vector<double> log_ratios);

// Every split that the set has enough variety for (FitError says which there are).
std::vector<FitError> cross_validate(const TrainingSet&);

// How the model of forward GEMMs prices a measured backward: its two gradients, [M, K, N] and [K, N, M],
// against the time of both together. Absent where the profiles hold no backward for the GPUs of the set.
std::optional<FitError> backward_error(const Profiles&, const TrainingSet&, const XgboostModel&);

}  // namespace orrery
