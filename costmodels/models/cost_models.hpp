// Seconds for operators, from XGBoost models of efficiency fitted on measured operators.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "costmodels/operators/operator.hpp"

namespace orrery {

struct OperatorQuery {
  int gpu = 0;  // index into the `gpus` argument of predict
  Operator op;
};

struct Prediction {
  Seconds time;               // never zero for an operator that exists
  bool extrapolated = false;  // the GPU or the shape lies outside what was measured
  bool own = false;           // by a model of the user's folder, within what it was measured on
};

// What the models of the user's folder were measured on; nothing of those in the program.
struct OwnModels {
  std::vector<std::string> held;           // in words: "gemm of A100-SXM4-80GB, up to 12800 x 4096 x 4096"
  bool compute = false, exchange = false;  // of GEMMs, attention or kernels; of collectives or transfers
};

// Of operators that the user's folder has a kind of model for, those that were asked for and those that it
// answered within what it was measured on. Exchanges count only where it has no model of compute.
struct OwnAnswers {
  std::size_t asked = 0, answered = 0;
  void add(const OwnModels&, const Operator&, const Prediction&);
  OwnAnswers& operator+=(const OwnAnswers&);
  bool operator==(const OwnAnswers&) const = default;
};

// Errors of GEMMs of 1,024 rows and more on GPUs that were left out of the fit one by one, shares of 1: over
// all rows, and of the GPUs that were best and worst.
struct UnseenGpuError {
  double mean = 0, least = 0, most = 0;
};

class CostModels {
 public:
  // The models committed under costmodels/fitted, compiled into the binary.
  static CostModels built_in();
  // The models that `orrery fit -o FOLDER` wrote; what it had no measurements for comes from the built-in
  // ones. Throws InputError.
  static CostModels from_folder(const std::string& folder);

  CostModels(CostModels&&) noexcept;
  CostModels& operator=(CostModels&&) noexcept;
  ~CostModels();

  // One batch per model, whatever the number of queries. Order of answers = order of queries.
  [[nodiscard]] std::vector<Prediction> predict(std::span<const GpuSpec> gpus,
                                                std::span<const OperatorQuery> queries) const;

  // Whether GEMMs of the GPU's chip were measured.
  [[nodiscard]] bool measured(const GpuSpec&) const;
  // Whether gradients of GEMMs that the GPU computes for this type were measured on its chip.
  [[nodiscard]] bool measured_gradients(const GpuSpec&, DataType) const;
  // What to expect of GEMMs that the GPU computes for this type; absent where GEMMs of the GPU or of its chip
  // taught the model that prices them, or where the fit could leave no GPU out.
  [[nodiscard]] std::optional<UnseenGpuError> unseen_error(const GpuSpec&, DataType) const;
  [[nodiscard]] const OwnModels& own() const;
  [[nodiscard]] std::string digest() const;  // SHA-256 of all model files, hex

 private:
  struct Impl;
  explicit CostModels(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery
