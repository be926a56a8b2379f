// How much longer or shorter a gradient GEMM takes than the model of forward GEMMs says of its shape.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodels/fit/fit.hpp"
#include "costmodels/models/features.hpp"
#include "costmodels/models/xgboost_model.hpp"
#include "traces/gemm_pass.hpp"

namespace orrery {

// A forward GEMM and its gradients on one machine, as measured and as the forward model says. Ratios, so that
// the level of a machine and source cancels.
struct GradientPair {
  std::string gpu, model;
  double input = 0, weight = 0;  // predicted time of the gradient / predicted forward
  std::optional<double> input_measured{}, both_measured{};  // over the measured forward
};

// Pairs of the GPUs in `gpus`, as a forward model of their kind (GemmModelKind) says.
std::vector<GradientPair> gradient_pairs(const Profiles&, const std::vector<std::string>& gpus, GemmModelKind,
                                         const XgboostModel&);

// The geometric means over GPUs: the input gradient where it was timed alone, then the weight gradient from
// what is left of both together. Absent where neither was measured.
std::optional<PassFactors> fit_pass_factors(const std::vector<GradientPair>&);

// Errors of the measured ratios with each GPU's own pairs (each transformer's, where one GPU has them all)
// held out of the factors, and with no factors at all.
std::vector<FitError> pass_errors(const std::vector<GradientPair>&);

}  // namespace orrery
