// Errors of a model on rows that it was not fitted to.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "costmodels/fit/fit.hpp"
#include "costmodels/fit/training_set.hpp"

namespace orrery {

// Summary of predicted / measured, as natural logarithms. Not empty.
FitError summarise(std::vector<double> log_ratios);

// What the reference alone says of the rows, without a model: all of them, and by GPU. `name` stands in
// FitError::held_out.
std::vector<FitError> reference_errors(const TrainingSet&, const std::string& name);

// Every split that the set has enough variety for (FitError says which there are).
std::vector<FitError> cross_validate(const TrainingSet&);

}  // namespace orrery
