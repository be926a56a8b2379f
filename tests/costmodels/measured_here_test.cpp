// The models in the program, which other machines and libraries taught, against operators that
// `orrery profile` measured on H100 and H200 (costmodels/measured/own). None of these GEMMs taught them.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "costmodels/fit/training_rows.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/built_in_costs.hpp"
#include "traces/profile_reader.hpp"

using namespace orrery;

namespace {

const Profiles& measured_here() {
  static const Profiles profiles =
      read_profiles(std::string(ORRERY_SOURCE_DIR) + "/costmodels/measured/own", InventedTimes::refused);
  return profiles;
}

const std::vector<GpuSpec>& cards() {
  static const std::vector<GpuSpec> gpus{find_gpu("H100-SXM5-80GB", "test"),
                                         find_gpu("H200-SXM-141GB", "test")};
  return gpus;
}
int card(const std::string& name) {
  return name == cards()[0].name ? 0 : 1;
}

struct Errors {
  double sum = 0, absolute = 0;  // of ln(predicted / measured), of |predicted / measured - 1|
  int count = 0;
  [[nodiscard]] double bias() const { return std::expm1(sum / count); }
  [[nodiscard]] double mean() const { return absolute / count; }
};

// Operators with the times that were measured, and what each is counted under.
class Rows {
 public:
  void add(std::string name, const std::string& gpu, const Operator& op, Seconds measured) {
    queries_.push_back({card(gpu), op});
    measured_.push_back(measured);
    names_.push_back(std::move(name));
  }
  [[nodiscard]] std::size_t size() const { return queries_.size(); }
  [[nodiscard]] std::map<std::string, Errors> errors() const {
    const auto answers = test::cost_models().predict(cards(), queries_);
    std::map<std::string, Errors> errors;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      Errors& of = errors[names_[i]];
      const double ratio = answers[i].time / measured_[i];
      of.sum += std::log(ratio);
      of.absolute += std::abs(ratio - 1);
      ++of.count;
    }
    return errors;
  }

 private:
  std::vector<OperatorQuery> queries_;
  std::vector<Seconds> measured_;
  std::vector<std::string> names_;
};

// As layers ask: a gradient is a GEMM of its own shape.
Gemm as_asked(const MeasuredGemm& row) {
  Gemm gemm = operator_of(row);
  gemm.pass = GemmPass::forward;
  return gemm;
}

}  // namespace

TEST_CASE("large GEMMs measured here, gradients too, take what their shapes are predicted to") {
  Rows rows;
  for (const auto& row : measured_here().gemms) {
    if (std::min({row.m, row.n, row.k}) < 1024 || row.type == DataType::tf32) continue;
    const char* passes[] = {"forward", "input gradient", "weight gradient"};
    rows.add(std::string(to_text(row.type)) + (row.batch > 1 ? " grouped " : " ") +
                 passes[static_cast<int>(row.pass)],
             row.gpu, as_asked(row), row.time);
  }
  REQUIRE(rows.size() > 2500);
  const auto errors = rows.errors();
  for (const auto& [name, of] : errors) {
    CAPTURE(name, of.count, of.mean(), of.bias());
    const bool wide = name.starts_with("fp32");  // on vector units, 12 to 18 % too slow
    CHECK(of.mean() < (wide ? 0.20 : 0.12));
    CHECK(std::abs(of.bias()) < (wide ? 0.20 : 0.12));
  }
  for (const char* name : {"bf16 forward", "bf16 input gradient", "bf16 weight gradient"})
    CHECK(errors.at(name).mean() < 0.10);
}

TEST_CASE("memory that is 1.4 times as fast changes no large GEMM, as measured and as predicted") {
  // The same shapes on H100 (3.35 TB/s) and H200 (4.8 TB/s), one chip and one power limit.
  std::map<std::string, std::array<double, 2>> times;
  for (const auto& row : measured_here().gemms) {
    if (std::min({row.m, row.n, row.k}) < 1024 || row.type != DataType::bf16) continue;
    const std::string shape = std::to_string(row.m) + "x" + std::to_string(row.n) + "x" +
                              std::to_string(row.k) + "x" + std::to_string(row.batch) +
                              std::to_string(static_cast<int>(row.pass));
    times[shape][static_cast<std::size_t>(card(row.gpu))] = row.time.value();
  }
  double sum = 0;
  int count = 0;
  for (const auto& [shape, of] : times) {
    if (of[0] == 0 || of[1] == 0) continue;
    sum += std::log(of[1] / of[0]);
    ++count;
  }
  REQUIRE(count > 500);
  CHECK(std::abs(sum / count) < 0.01);
  const Gemm large{.m = 8192, .n = 8192, .k = 8192};
  const auto answers =
      test::cost_models().predict(cards(), std::vector<OperatorQuery>{{0, large}, {1, large}});
  CHECK(answers[1].time.value() == Approx(answers[0].time.value()).epsilon(0.02));
}

TEST_CASE("few rows an expert stream weights at what the multiprocessors reach, not at what memory could") {
  // Weights alone, read once, at H200's 4.8 TB/s would take half of the time: 3.0 TB/s are reached.
  Rows rows;
  double reached = 0;
  for (const auto& row : measured_here().gemms) {
    if (row.batch == 1 || std::min(row.m, row.k) > 256 || row.type != DataType::bf16) continue;
    rows.add(row.gpu, row.gpu, as_asked(row), row.time);
    const double bytes = 2.0 * static_cast<double>(row.batch * row.n) * static_cast<double>(row.k);
    if (card(row.gpu) == 1 && row.pass == GemmPass::forward)
      reached = std::max(reached, bytes / row.time.value());
  }
  CHECK(reached < 3.3e12);
  for (const auto& [name, of] : rows.errors()) {
    CAPTURE(name, of.count, of.mean(), of.bias());
    CHECK(of.mean() < 0.25);
    CHECK(std::abs(of.bias()) < 0.22);
  }
}

TEST_CASE("fused attention measured here takes what its table says") {
  Rows rows;
  for (const auto& row : measured_here().attentions) {
    if (row.kernel == "eager") continue;
    const auto kernel = row.kernel == "flash2" ? AttentionKernel::flash2 : AttentionKernel::flash_2026;
    rows.add(row.kernel + (row.backward ? " backward" : " forward"), row.gpu,
             operator_of(row, kernel, SoftmaxKernel::fused), row.time);
  }
  REQUIRE(rows.size() > 300);
  for (const auto& [name, of] : rows.errors()) {
    CAPTURE(name, of.count, of.mean(), of.bias());
    CHECK(of.mean() < 0.08);
    CHECK(std::abs(of.bias()) < 0.06);
  }
}
