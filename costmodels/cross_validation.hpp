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

}  // namespace orrery
