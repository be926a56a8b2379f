// Measurements turned into rows a model learns from.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "costmodels/model_card.hpp"
#include "costmodels/xgboost_model.hpp"
#include "traces/profile_reader.hpp"

namespace orrery {

// An operator timed through a framework takes the host's time when its reference is shorter; only longer ones
// tell about the GPU.
inline constexpr Seconds kShortestFrameworkTime = Seconds(60e-6);

struct TrainingSet {
  std::string name;  // of the model file
  ModelCard card{};
  TrainingOptions options{};
  FeatureMatrix features{1};
  std::vector<float> targets{};  // log(reference / time)
  std::vector<float> weights{};  // empty for all alike
  bool gradients = false;        // GEMM: whether gradients were among the rows, so that the trees know them
  // Kernels: what each target is relative to depends on the rows that were taught (relate_to_paces).
  std::vector<KernelTime> kernels{};
  // What can be held out, one entry a row.
  std::vector<std::string> models{}, shapes{}, gpus{};
  std::vector<bool> large{};  // M >= 1024; kernels: 4 MiB and more; collectives and transfers: 1 MiB and more
};

// The pace of each kernel in these rows, and targets relative to it.
void relate_to_paces(TrainingSet&, const KernelPaces&);

struct TrainingSets {
  std::vector<TrainingSet> sets;
  std::map<std::string, std::int64_t> left_out;  // by reason
};

// Sets in a fixed order: one GEMM set for each chip with enough rows, then gemm-any, gemm-fp32, kernels,
// collectives, transfers. Throws InputError when a kind has too few rows.
TrainingSets training_sets(const Profiles&, std::uint64_t seed);

}  // namespace orrery
