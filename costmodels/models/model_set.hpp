// The fitted models of one folder, and the batches they are asked in.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "costmodels/models/attention_table.hpp"
#include "costmodels/models/cost_models.hpp"
#include "costmodels/models/model_card.hpp"
#include "costmodels/models/size_curve.hpp"
#include "costmodels/models/xgboost_model.hpp"

namespace orrery {

struct ModelFile {
  std::string name, content;
};

inline constexpr std::string_view kProvenanceFile = "provenance.json";

// Those in the program are the bytes that it was built with.
enum class ModelOrigin { program, folder };

class ModelSet {
 public:
  // `files`: the models, attention.yaml and provenance.json, which lists the digest of each model: XGBoost
  // may read out of bounds on a damaged model, so of a folder only bytes that the digest vouches for reach
  // it. Throws InputError.
  ModelSet(const std::vector<ModelFile>& files, const std::string& place, ModelOrigin);

  // Takes over what this set has no model for: kinds, and GPUs or systems that its own models of a kind did
  // not see. Collectives and transfers over links unlike those of its own models are theirs.
  void complete_with(ModelSet&& other);

  [[nodiscard]] std::vector<Prediction> predict(std::span<const GpuSpec> gpus,
                                                std::span<const OperatorQuery> queries) const;
  [[nodiscard]] bool measured_gpu(const GpuSpec&) const;  // its chip has a GEMM model of its own
  // Whether gradients of GEMMs that the GPU computes for this type were measured on its chip.
  [[nodiscard]] bool measured_gradients(const GpuSpec&, DataType) const;
  // CostModels says which.
  [[nodiscard]] std::optional<UnseenGpuError> unseen_error(const GpuSpec&, DataType) const;
  // Of the models that complete_with found here; of none before.
  [[nodiscard]] const OwnModels& own() const { return own_; }
  [[nodiscard]] const std::string& digest() const { return digest_; }

 private:
  struct Fitted {
    ModelCard card;
    XgboostModel model;
  };
  struct GemmBatch;
  struct GemmChoice {
    std::size_t model = 0;
    bool measured = false;
  };

  [[nodiscard]] bool is_own(std::size_t model) const { return model < own_.held.size(); }

  template <class Knows>
  [[nodiscard]] std::size_t best(ModelKind, const Knows&) const;
  [[nodiscard]] std::size_t best_for(ModelKind, const GpuSpec&) const;
  [[nodiscard]] std::size_t best_for(ModelKind, const Collective&) const;
  [[nodiscard]] std::size_t best_for(const PointToPoint&) const;
  [[nodiscard]] std::optional<std::size_t> attention_model(Attention, const GpuSpec&) const;
  [[nodiscard]] GemmChoice gemm_model(const GpuSpec&, DataType computed) const;
  void predict_gemms(std::span<const GpuSpec>, std::span<const OperatorQuery>,
                     std::vector<Prediction>&) const;
  void predict_attention(std::span<const GpuSpec>, std::span<const OperatorQuery>,
                         std::vector<Prediction>&) const;
  void predict_kernels(std::span<const GpuSpec>, std::span<const OperatorQuery>,
                       std::vector<Prediction>&) const;
  void predict_collectives(std::span<const GpuSpec>, std::span<const OperatorQuery>,
                           std::vector<Prediction>&) const;
  void predict_transfers(std::span<const GpuSpec>, std::span<const OperatorQuery>,
                         std::vector<Prediction>&) const;
  [[nodiscard]] PointToPoint as_measured(const PointToPoint&, const GpuSpec&) const;

  // One curve for each of `variants`, all sizes of all of them in one batch.
  template <class Variant, class Features, class Reference>
  std::vector<SizeCurve> curves(const Fitted&, const std::vector<Variant>& variants, const Features&,
                                const Reference&) const;

  std::vector<Fitted> models_;  // the user's own first
  OwnModels own_;
  AttentionTable attention_;
  std::map<ModelKind, UnseenGpuError> unseen_errors_;
  std::string digest_;
};

}  // namespace orrery
