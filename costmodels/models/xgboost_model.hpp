// XGBoost behind one checked wrapper: train, predict in batches, save and load as bytes. No XGBoost type
// leaves here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// Rows of equally many features, row after row.
class FeatureMatrix {
 public:
  explicit FeatureMatrix(std::size_t columns) : columns_(columns) {}

  void reserve(std::size_t rows) { values_.reserve(rows * columns_); }
  void add(std::span<const float> row);  // of `columns` features
  [[nodiscard]] std::size_t columns() const { return columns_; }
  [[nodiscard]] std::size_t rows() const { return values_.size() / columns_; }
  [[nodiscard]] std::span<const float> row(std::size_t index) const {
    return std::span(values_).subspan(index * columns_, columns_);
  }
  [[nodiscard]] const std::vector<float>& values() const { return values_; }

 private:
  std::size_t columns_;
  std::vector<float> values_;
};

// How a model is grown. The defaults are the smallest that FIDELITY found to cost 0.2 points against twice
// the depth.
struct TrainingOptions {
  int trees = 200;
  int leaves = 16;  // of each tree, split where the loss falls most
  double learning_rate = 0.13;
  double min_child_weight = 8;
  double row_share = 1, column_share = 1;  // drawn for each tree, from the seed
  std::string monotone{};  // "(1,0,-1)": how the target may move with each feature; empty for any way
  std::uint64_t seed = 1;
  bool operator==(const TrainingOptions&) const = default;
};

// A fitted model. One thread, so that the same data give the same bytes.
class XgboostModel {
 public:
  // `weights`: how much each row counts; empty for all alike.
  static XgboostModel train(const FeatureMatrix&, std::span<const float> targets,
                            std::span<const float> weights, const TrainingOptions&);
  // Bytes that `save` wrote. `name` is the file in messages. Throws InputError when they are not a model.
  static XgboostModel load(std::string_view bytes, const std::string& name);

  XgboostModel(XgboostModel&&) noexcept;
  XgboostModel& operator=(XgboostModel&&) noexcept;
  ~XgboostModel();

  [[nodiscard]] std::string save() const;  // UBJSON with the attributes
  // Always ask in batches: a row of a batch costs some 10 us, a call for one row some 300 us.
  [[nodiscard]] std::vector<float> predict(const FeatureMatrix&) const;
  [[nodiscard]] std::size_t features() const;

  void set_attribute(const std::string& key, const std::string& value);
  [[nodiscard]] std::optional<std::string> attribute(const std::string& key) const;

 private:
  struct Handle;
  explicit XgboostModel(std::unique_ptr<Handle> handle);
  std::unique_ptr<Handle> handle_;
};

std::string xgboost_version();  // "1.7.4"

}  // namespace orrery
