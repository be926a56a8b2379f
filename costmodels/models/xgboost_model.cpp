#include "costmodels/models/xgboost_model.hpp"

#include <xgboost/c_api.h>

#include <utility>

#include "platforms/errors.hpp"

namespace orrery {

namespace {

void check(int status) {
  if (status != 0) throw Defect(std::string("XGBoost: ") + XGBGetLastError());
}

// XGBoost reads arrays through a JSON description of address, type and shape.
std::string array_interface(const float* data, std::size_t rows, std::size_t columns) {
  return R"({"data":[)" + std::to_string(reinterpret_cast<std::uintptr_t>(data)) + R"(,true],"shape":[)" +
         std::to_string(rows) + "," + std::to_string(columns) + R"(],"typestr":"<f4","version":3})";
}

class Matrix {
 public:
  explicit Matrix(const FeatureMatrix& features) {
    check(XGDMatrixCreateFromDense(
        array_interface(features.values().data(), features.rows(), features.columns()).c_str(),
        R"({"missing":NaN,"nthread":1})", &handle_));
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  ~Matrix() { XGDMatrixFree(handle_); }

  [[nodiscard]] DMatrixHandle handle() const { return handle_; }

 private:
  DMatrixHandle handle_ = nullptr;
};

}  // namespace

void FeatureMatrix::add(std::span<const float> row) {
  ORRERY_ENSURE(row.size() == columns_);
  values_.insert(values_.end(), row.begin(), row.end());
}

struct XgboostModel::Handle {
  explicit Handle(DMatrixHandle data) {
    check(XGBoosterCreate(data ? &data : nullptr, data ? 1 : 0, &booster));
    set("nthread", "1");
    set("verbosity", "0");
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { XGBoosterFree(booster); }

  void set(const char* key, const std::string& value) {
    check(XGBoosterSetParam(booster, key, value.c_str()));
  }

  // A booster looks at its parameters only once asked for something, and for that wants some features. Else a
  // model would be loaded by as many threads as there are cores, which then wait by spinning for more to do.
  void take_parameters() {
    set("num_feature", "1");
    bst_ulong count = 0;
    check(XGBoosterGetNumFeature(booster, &count));
  }

  BoosterHandle booster = nullptr;
};

XgboostModel::XgboostModel(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
XgboostModel::XgboostModel(XgboostModel&&) noexcept = default;
XgboostModel& XgboostModel::operator=(XgboostModel&&) noexcept = default;
XgboostModel::~XgboostModel() = default;

XgboostModel XgboostModel::train(const FeatureMatrix& features, std::span<const float> targets,
                                 std::span<const float> weights, const TrainingOptions& options) {
  ORRERY_ENSURE(features.rows() == targets.size() && !targets.empty());
  const Matrix data(features);
  check(XGDMatrixSetFloatInfo(data.handle(), "label", targets.data(), targets.size()));
  if (!weights.empty()) {
    ORRERY_ENSURE(weights.size() == targets.size());
    check(XGDMatrixSetFloatInfo(data.handle(), "weight", weights.data(), weights.size()));
  }
  auto handle = std::make_unique<Handle>(data.handle());
  handle->set("tree_method", "hist");
  handle->set("grow_policy", "lossguide");
  handle->set("max_depth", "0");  // bounded by the leaves alone
  handle->set("max_leaves", std::to_string(options.leaves));
  handle->set("max_bin", "256");
  handle->set("eta", std::to_string(options.learning_rate));
  handle->set("min_child_weight", std::to_string(options.min_child_weight));
  handle->set("subsample", std::to_string(options.row_share));
  handle->set("colsample_bytree", std::to_string(options.column_share));
  handle->set("seed", std::to_string(options.seed));
  handle->set("objective", "reg:squarederror");
  handle->set("base_score", "0");
  if (!options.monotone.empty()) handle->set("monotone_constraints", options.monotone);
  for (int tree = 0; tree < options.trees; ++tree) {
    check(XGBoosterUpdateOneIter(handle->booster, tree, data.handle()));
  }
  return XgboostModel(std::move(handle));
}

XgboostModel XgboostModel::load(std::string_view bytes, const std::string& name) {
  auto handle = std::make_unique<Handle>(nullptr);
  handle->take_parameters();
  // XGBoost takes bytes it cannot recognise for its old binary format and may then read out of bounds, so the
  // first two bytes of a UBJSON or JSON object are checked here.
  const bool object = bytes.size() > 2 && bytes[0] == '{';
  if (!object || XGBoosterLoadModelFromBuffer(handle->booster, bytes.data(), bytes.size()) != 0) {
    throw InputError(name, "a broken model of " + std::to_string(bytes.size()) + " bytes",
                     "a file that `orrery fit` wrote; run it again");
  }
  return XgboostModel(std::move(handle));
}

std::string XgboostModel::save() const {
  bst_ulong size = 0;
  const char* bytes = nullptr;
  check(XGBoosterSaveModelToBuffer(handle_->booster, R"({"format":"ubj"})", &size, &bytes));
  return std::string(bytes, size);
}

std::vector<float> XgboostModel::predict(const FeatureMatrix& features) const {
  if (features.rows() == 0) return {};
  ORRERY_ENSURE(features.columns() == this->features());
  const std::string array = array_interface(features.values().data(), features.rows(), features.columns());
  // Without "cache_id" 1.7.4 fails with a message about a missing parameter.
  const char* config =
      R"({"type":0,"training":false,"iteration_begin":0,"iteration_end":0,"missing":NaN,"strict_shape":false,"cache_id":0})";
  const bst_ulong* shape = nullptr;
  bst_ulong dimensions = 0;
  const float* result = nullptr;
  check(XGBoosterPredictFromDense(handle_->booster, array.c_str(), config, nullptr, &shape, &dimensions,
                                  &result));
  return std::vector<float>(result, result + features.rows());
}

std::size_t XgboostModel::features() const {
  bst_ulong count = 0;
  check(XGBoosterGetNumFeature(handle_->booster, &count));
  return count;
}

void XgboostModel::set_attribute(const std::string& key, const std::string& value) {
  check(XGBoosterSetAttr(handle_->booster, key.c_str(), value.c_str()));
}

std::optional<std::string> XgboostModel::attribute(const std::string& key) const {
  const char* value = nullptr;
  int found = 0;
  check(XGBoosterGetAttr(handle_->booster, key.c_str(), &value, &found));
  if (found == 0) return std::nullopt;
  return std::string(value);
}

std::string xgboost_version() {
  int major = 0, minor = 0, patch = 0;
  XGBoostVersion(&major, &minor, &patch);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

}  // namespace orrery
