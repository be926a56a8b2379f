// The cost models in the program, read once for all tests of it.
#pragma once

#include <string_view>
#include <vector>

#include "costmodels/models/cost_models.hpp"
#include "platforms/gpu.hpp"

namespace orrery::test {

inline const CostModels& cost_models() {
  // Never destroyed: XGBoost frees its thread's state before statics go.
  static const auto& models = *new CostModels(CostModels::built_in());
  return models;
}

inline Prediction predict(std::string_view gpu, const Operator& op) {
  const std::vector<GpuSpec> gpus{find_gpu(gpu, "test")};
  const std::vector<OperatorQuery> queries{{0, op}};
  return cost_models().predict(gpus, queries).front();
}

inline double microseconds_of(std::string_view gpu, const Operator& op) {
  return predict(gpu, op).time.value() * 1e6;
}

}  // namespace orrery::test
