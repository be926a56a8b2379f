// What measured GEMMs teach: a model of each chip with enough of them, and those for any GPU.
#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include "costmodels/fit/fit.hpp"
#include "costmodels/fit/training_rows.hpp"
#include "costmodels/models/features.hpp"
#include "costmodels/models/physical_bound.hpp"

namespace orrery {

namespace {

// One model a chip: cards with the same multiprocessors differ in memory, which the features say.
std::string chip_of(const GpuSpec& gpu) {
  return gpu.architecture + "-" + std::to_string(gpu.multiprocessors);
}

std::string file_name(std::string text) {
  for (char& letter : text) {
    letter = letter == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return "gemm-" + text;
}

constexpr std::size_t kManyRows = 10000;

struct GemmRow {
  const MeasuredGemm* measured;
  const GpuSpec* gpu;
  MatrixPeak peak;
  Seconds reference;
};

std::vector<GemmRow> usable_gemms(const Profiles& profiles, TaughtFiles& files) {
  std::vector<GemmRow> rows;
  SourceCheck check("GEMMs", files);
  for (const auto& gemm : profiles.gemms) {
    const GpuSpec& gpu = gpu_named(profiles, gemm.gpu);
    const auto peak = matrix_peak(gpu, gemm.type);
    if (!peak || peak->type != gemm.type) {
      files.leave_out(gemm.at, "GPU without a peak for " + std::string(to_text(gemm.type)));
      continue;
    }
    const Seconds reference = roofline(operator_of(gemm), gpu, peak->speed);
    if (gemm.timed == TimedAs::framework && reference < kShortestFrameworkTime) {
      files.leave_out(gemm.at, "short operator timed through a framework");
    } else if (check.believes(
                   gemm.source, gemm.at,
                   {.least = least_time(operator_of(gemm), gpu), .expected = reference, .time = gemm.time})) {
      rows.push_back({&gemm, &gpu, *peak, reference});
    }
  }
  check.refuse_wrong_sources();
  return rows;
}

void add_gemm(TrainingSet& set, const GemmRow& row, GemmModelKind kind) {
  const MeasuredGemm& gemm = *row.measured;
  add_row(set, gemm_features(operator_of(gemm), *row.gpu, row.peak.speed, gemm.timed, kind),
          row.reference * set.card.passes.of(gemm.pass), gemm.time, gemm.model,
          std::to_string(gemm.n) + "x" + std::to_string(gemm.k), gemm.gpu);
  set.large.back() = gemm.m >= 1024;
  add_unique(set.card.configurations, std::string(to_text(gemm.type)));
  if (gemm.pass != GemmPass::forward) add_unique(set.card.configurations, kGradients);
  set.card.m = std::max(set.card.m, gemm.m);
  set.card.n = std::max(set.card.n, gemm.n);
  set.card.k = std::max(set.card.k, gemm.k);
  add_unique(set.card.gpus, gemm.gpu);
}

// No GEMM takes longer because its extents are multiples of more. The models for any GPU are left without, as
// the clocks of many cards were derived over their answers (platforms/catalog/gpus.yaml).
std::string better_if_aligned(GemmModelKind kind) {
  if (kind == GemmModelKind::any_gpu) return {};
  std::string constraints;
  for (const std::string_view feature : gemm_feature_names(kind))
    constraints +=
        (constraints.empty() ? "(" : ",") + std::string(feature.starts_with("log2_align") ? "1" : "0");
  return constraints + ")";
}

TrainingSet gemm_set(std::string name, ModelKind model, const std::vector<const GemmRow*>& rows) {
  const auto kind = model == ModelKind::gemm ? GemmModelKind::one_gpu : GemmModelKind::any_gpu;
  TrainingSet set{.name = std::move(name),
                  .card = {.kind = model},
                  .features = FeatureMatrix(gemm_feature_names(kind).size())};
  if (model == ModelKind::gemm_fp32) set.card.passes = {1, 1};  // the factors were measured in 16 bits
  std::size_t framework = 0;
  for (const GemmRow* row : rows) {
    add_gemm(set, *row, kind);
    framework += row->measured->timed == TimedAs::framework ? 1 : 0;
  }
  set.card.framework = 2 * framework > rows.size();
  // Sampling and the sizes of trees were chosen on A40 alone (transformers held out), so the errors of A100
  // and H100 are of models that were not chosen by them. Every leaf costs 80 bytes in the repository; what is
  // used less gets fewer. How many trees the model for any GPU has was chosen by A40 and A100, each held out,
  // in the mean of three seeds.
  set.options.row_share = 0.5;
  set.options.column_share = 0.35;
  if (model == ModelKind::gemm && rows.size() >= kManyRows) {
    set.options.trees = 100;
    set.options.leaves = 45;
    set.options.learning_rate = 0.18;
  }
  if (model == ModelKind::gemm_any) set.options.trees = 50;
  if (model == ModelKind::gemm_fp32) set.options.trees = 60;
  if (rows.size() < 1000)
    set.options = {.trees = 60, .leaves = 12, .learning_rate = 0.15, .min_child_weight = 2};
  set.options.monotone = better_if_aligned(kind);
  finish(set);
  return set;
}

// Rows without which the sweeps of one GPU would drown all others in the model for any GPU: every third of a
// sweep. Where there are few rows in all, nothing drowns.
constexpr std::uint64_t kPooledStride = 3;

// Which rows of many go into the model for any GPU.
class PooledRows {
 public:
  explicit PooledRows(const std::vector<GemmRow>& rows) {
    std::size_t halves = 0;
    for (const GemmRow& row : rows) {
      halves += row.peak.type == DataType::fp32 ? 0 : 1;
      if (row.measured->pass != GemmPass::forward) with_gradients_.insert(row.measured->source);
    }
    all_ = halves < kManyRows;
  }

  bool take(const GemmRow& row, const std::string& chip) {
    const MeasuredGemm& gemm = *row.measured;
    // A sweep that goes from pass to pass would show one of three passes alone to every third place.
    const std::uint64_t place = with_gradients_.count(gemm.source) > 0 ? layer_number(gemm) : places_[chip]++;
    return all_ || gemm.timed == TimedAs::framework || place % kPooledStride == 0;
  }

 private:
  // Alike for the three passes of a layer, whose extents change places; else without order.
  static std::uint64_t layer_number(const MeasuredGemm& gemm) {
    std::array<std::int64_t, 3> extents{gemm.m, gemm.n, gemm.k};
    std::sort(extents.begin(), extents.end());
    std::uint64_t number = 0;
    for (const std::int64_t extent : extents) {
      number = (number ^ static_cast<std::uint64_t>(extent)) * 0x9e3779b97f4a7c15U;
      number ^= number >> 29U;
    }
    return number;
  }

  bool all_ = false;
  std::set<std::string> with_gradients_;         // sources
  std::map<std::string, std::uint64_t> places_;  // of the next row of each chip's sweeps
};

// A sweep of a chip's kernels gains nothing from a few operators that another machine timed through its
// framework: 35 rows of GH200 cost 0.2 points of error on H100.
void drop_framework_rows(std::vector<const GemmRow*>& rows) {
  const auto alone = [](const GemmRow* row) { return row->measured->timed == TimedAs::kernel; };
  if (static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), alone)) < kManyRows) return;
  std::erase_if(rows, [&](const GemmRow* row) { return !alone(row); });
}

}  // namespace

std::vector<TrainingSet> gemm_sets(const Profiles& profiles, TaughtFiles& files) {
  const auto rows = usable_gemms(profiles, files);
  std::map<std::string, std::vector<const GemmRow*>> chips;
  std::vector<const GemmRow*> pooled, fp32;
  PooledRows choice(rows);
  for (const GemmRow& row : rows) {
    if (row.peak.type == DataType::fp32) {
      fp32.push_back(&row);
      continue;
    }
    const std::string chip = chip_of(*row.gpu);
    if (choice.take(row, chip)) pooled.push_back(&row);
    chips[chip].push_back(&row);
  }
  std::vector<TrainingSet> sets;
  for (auto& [chip, members] : chips) {
    drop_framework_rows(members);
    if (static_cast<std::int64_t>(members.size()) < kLeastRowsOfGpu) continue;
    sets.push_back(gemm_set(file_name(chip), ModelKind::gemm, members));
  }
  if (!pooled.empty()) {
    sets.push_back(gemm_set("gemm-any", ModelKind::gemm_any, pooled));
    balance(sets.back(), sets.back().gpus, 0.5F);
  }
  if (!fp32.empty()) sets.push_back(gemm_set("gemm-fp32", ModelKind::gemm_fp32, fp32));
  return sets;
}

}  // namespace orrery
