// Measurements turned into rows a model learns from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "costmodels/models/attention_table.hpp"
#include "costmodels/models/model_card.hpp"
#include "costmodels/models/xgboost_model.hpp"
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
  // Kernels: what each target is relative to depends on the rows that were taught (relate_to).
  std::vector<KernelTime> kernels{};
  // What can be held out, one entry a row.
  std::vector<std::string> models{}, shapes{}, gpus{};
  std::vector<bool> large{};  // M >= 1024; kernels: 4 MiB and more; collectives and transfers: 1 MiB and more
};

// Kernels: what limits those of the set into its card, and its features and targets relative to that.
void relate_to_own(TrainingSet&);
// The same relative to what limits those that taught another card.
void relate_to(TrainingSet&, const ModelCard& taught);

XgboostModel train(const TrainingSet&);

// The files of the profiles again, with what was read but is not taught moved from used to skipped.
class TaughtFiles {
 public:
  explicit TaughtFiles(std::vector<ProfileFile> files) : files_(std::move(files)) {}

  void leave_out(TableLine, const std::string& reason);
  void doubt(std::size_t file, std::string why);
  [[nodiscard]] const std::vector<ProfileFile>& all() const { return files_; }

 private:
  std::vector<ProfileFile> files_;
};

struct TrainingSets {
  std::vector<TrainingSet> sets;
  std::vector<ProfileFile> files;                // those of the profiles; used: taught
  std::map<std::string, std::int64_t> left_out;  // of kinds with too few rows, by reason
};

// Sets in a fixed order: one GEMM set for each chip with enough rows, then gemm-any, gemm-fp32, attention,
// kernels, collectives, transfers. Throws InputError when a kind has too few rows, or a source too many times
// that its data sheet rules out. What attention learns is relative to the table's answers.
TrainingSets training_sets(const Profiles&, const AttentionTable&, std::uint64_t seed);

// GEMMs of each chip with kLeastRowsOfGpu rows, of any GPU, and in fp32.
std::vector<TrainingSet> gemm_sets(const Profiles&, TaughtFiles&);

// All measured attention, however few rows: what the published bars say of it can be judged all the same.
TrainingSet attention_set(const Profiles&, const AttentionTable&, TaughtFiles&);

}  // namespace orrery
