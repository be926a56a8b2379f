#include "costmodels/fit/cross_validation.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "costmodels/models/features.hpp"
#include "platforms/errors.hpp"

namespace orrery {

namespace {

// splitmix64 (Steele et al. 2014): the same rows are held out whatever the library's generator is.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31U);
}

constexpr std::size_t kFolds = 5;

struct Split {
  std::string held_out;
  std::vector<std::size_t> fold;  // of each row; kNever is trained on only
  std::size_t folds = 0;
  std::vector<std::string> apart{};  // of each row: what no taught row has of an asked one; empty: any may
};
constexpr std::size_t kNever = static_cast<std::size_t>(-1);

Split random_split(const TrainingSet& set) {
  Split split{"random", std::vector<std::size_t>(set.targets.size(), kNever), 1};
  for (std::size_t row = 0; row < split.fold.size(); ++row) {
    if (mixed(row ^ mixed(set.options.seed)) % kFolds == 0) split.fold[row] = 0;
  }
  return split;
}

// One fold a label, or labels dealt to at most `folds` in the order of their names.
Split split_by(std::string held_out, const std::vector<std::string>& labels, std::size_t folds) {
  std::map<std::string, std::size_t> number;
  for (const auto& label : labels) number.emplace(label, 0);
  std::size_t next = 0;
  for (auto& [label, fold] : number) fold = next++ % folds;
  Split split{std::move(held_out), {}, std::min(next, folds)};
  for (const auto& label : labels) split.fold.push_back(number.at(label));
  return split;
}

// Rows taught and asked in a fold.
struct Lesson {
  std::vector<std::size_t> taught, asked;
};

Lesson lesson_of(const Split& split, std::size_t fold) {
  Lesson lesson;
  std::set<std::string> examined;
  for (std::size_t row = 0; row < split.fold.size(); ++row) {
    if (split.fold[row] != fold) continue;
    lesson.asked.push_back(row);
    if (!split.apart.empty()) examined.insert(split.apart[row]);
  }
  for (std::size_t row = 0; row < split.fold.size(); ++row) {
    if (split.fold[row] != fold && (split.apart.empty() || examined.count(split.apart[row]) == 0))
      lesson.taught.push_back(row);
  }
  return lesson;
}

TrainingSet rows_where(const TrainingSet& set, const std::vector<std::size_t>& rows) {
  TrainingSet part{.name = set.name,
                   .card = set.card,
                   .options = set.options,
                   .features = FeatureMatrix(set.features.columns())};
  part.features.reserve(rows.size());
  for (const std::size_t row : rows) {
    part.features.add(set.features.row(row));
    part.targets.push_back(set.targets[row]);
    if (!set.weights.empty()) part.weights.push_back(set.weights[row]);
    if (!set.kernels.empty()) part.kernels.push_back(set.kernels[row]);
  }
  return part;
}

// Log of predicted / measured for every held-out row; NaN for the others.
std::vector<double> held_out_ratios(const TrainingSet& set, const Split& split) {
  std::vector<double> ratios(set.targets.size(), std::nan(""));
  for (std::size_t fold = 0; fold < split.folds; ++fold) {
    const auto [taught, asked] = lesson_of(split, fold);
    if (taught.empty() || asked.empty()) continue;
    TrainingSet lesson = rows_where(set, taught), exam = rows_where(set, asked);
    if (!set.kernels.empty()) {
      relate_to_own(lesson);
      relate_to(exam, lesson.card);
    }
    const auto answers = train(lesson).predict(exam.features);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      ratios[asked[i]] = static_cast<double>(exam.targets[i]) - static_cast<double>(answers[i]);
    }
  }
  return ratios;
}

void report(std::vector<FitError>& errors, const TrainingSet& set, const Split& split,
            const std::string& rows, const std::vector<double>& ratios,
            const std::function<bool(std::size_t)>& chosen) {
  std::vector<double> some;
  for (std::size_t row = 0; row < ratios.size(); ++row) {
    if (!std::isnan(ratios[row]) && chosen(row)) some.push_back(ratios[row]);
  }
  if (some.empty()) return;
  FitError error = summarise(std::move(some));
  error.model = set.name;
  error.held_out = split.held_out;
  error.rows = rows;
  errors.push_back(std::move(error));
}

// Which rows of a kind decide the time of an iteration; kernels are summarised over all.
std::string large_rows(ModelKind kind) {
  switch (kind) {
    case ModelKind::gemm:
    case ModelKind::gemm_any:
    case ModelKind::gemm_fp32:
      return "M >= 1024";
    case ModelKind::attention:
      return "2048 tokens and more";
    case ModelKind::kernel:
    case ModelKind::training_kernel:
      return "4 MiB and more";
    case ModelKind::collective:
    case ModelKind::network:
    case ModelKind::transfer:
      return "1 MiB and more";
  }
  throw Defect("a model kind without rows");
}

std::vector<Split> splits_of(const TrainingSet& set) {
  std::vector<Split> splits{random_split(set)};
  const auto varied = [](const std::vector<std::string>& labels) {
    return std::any_of(labels.begin(), labels.end(),
                       [&](const auto& label) { return label != labels.front(); });
  };
  const bool one_gpu = set.card.kind == ModelKind::gemm;
  if ((one_gpu || set.card.kind == ModelKind::kernel || set.card.kind == ModelKind::training_kernel) &&
      varied(set.models)) {
    splits.push_back(split_by("model", set.models, kNever));
    if (one_gpu && varied(set.shapes)) {
      // Transformers share matrices, all of Llama 2 70B's are Llama 3 70B's, and those are known already.
      splits.push_back(split_by("model+shape", set.models, kNever));
      splits.back().apart = set.shapes;
    }
  }
  if (one_gpu && varied(set.shapes)) splits.push_back(split_by("shape", set.shapes, kFolds));
  if (set.card.kind == ModelKind::attention && varied(set.shapes))
    splits.push_back(split_by("head dim", set.shapes, kNever));
  if (!one_gpu && varied(set.gpus)) splits.push_back(split_by("gpu", set.gpus, kNever));
  return splits;
}

}  // namespace

FitError summarise(std::vector<double> log_ratios) {
  ORRERY_ENSURE(!log_ratios.empty());
  FitError error{.count = static_cast<std::int64_t>(log_ratios.size())};
  const double count = static_cast<double>(log_ratios.size());
  double sum = 0;
  for (double& ratio : log_ratios) {
    sum += ratio;
    ratio = std::abs(std::exp(ratio) - 1);
    error.mape += ratio / count;
  }
  std::sort(log_ratios.begin(), log_ratios.end());
  const std::size_t last = log_ratios.size() - 1;
  error.median = log_ratios[last / 2];
  error.p95 = log_ratios[last * 95 / 100];
  error.worst = log_ratios[last];
  error.bias = std::exp(sum / count) - 1;
  return error;
}

std::vector<FitError> reference_errors(const TrainingSet& set, const std::string& name) {
  std::vector<FitError> errors;
  std::vector<double> ratios(set.targets.begin(), set.targets.end());
  const Split none{name, {}, 0};
  report(errors, set, none, "all", ratios, [](std::size_t) { return true; });
  for (const auto& gpu : set.card.gpus) {
    report(errors, set, none, gpu, ratios, [&](std::size_t row) { return set.gpus[row] == gpu; });
  }
  return errors;
}

std::vector<FitError> cross_validate(const TrainingSet& set) {
  std::vector<FitError> errors;
  for (const Split& split : splits_of(set)) {
    const auto ratios = held_out_ratios(set, split);
    report(errors, set, split, "all", ratios, [](std::size_t) { return true; });
    report(errors, set, split, large_rows(set.card.kind), ratios,
           [&](std::size_t row) { return set.large[row]; });
    if (split.held_out == "random" || split.held_out == "shape" || set.card.gpus.size() < 2) continue;
    for (const auto& gpu : set.card.gpus) {
      report(errors, set, split, gpu, ratios, [&](std::size_t row) { return set.gpus[row] == gpu; });
      if (set.card.kind != ModelKind::gemm_any && set.card.kind != ModelKind::gemm_fp32) continue;
      report(errors, set, split, gpu + ", M >= 1024", ratios,
             [&](std::size_t row) { return set.gpus[row] == gpu && set.large[row]; });
    }
  }
  return errors;
}

}  // namespace orrery
