#include "costmodels/training_set.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "costmodels/features.hpp"
#include "costmodels/fit.hpp"
#include "platforms/errors.hpp"

namespace orrery {

namespace {

// Faster than this share of the reference cannot be: a unit mistaken or a kernel that did not run.
constexpr double kBelievableEfficiency = 2.0;

// Slower than this many times the reference and a launch cannot be either: nanoseconds read as microseconds,
// a stalled run.
constexpr double kSlowestBelievable = 300;
constexpr Seconds kSlowLaunch = Seconds(20e-6);
const std::string kTooFast = "faster than the data sheet allows",
                  kTooSlow = "hundreds of times slower than the data sheet";

using Reasons = std::map<std::string, std::int64_t>;

// Lets labels with few rows be heard: a label counts by the square root of its rows (`even` 0.5) or all count
// alike
// (`even` 1), but no row more than this many times the average, since some labels have a dozen rows.
constexpr float kHeaviestRow = 30;

void balance(TrainingSet& set, const std::vector<std::string>& labels, float even) {
  std::map<std::string, float> count;
  for (const auto& label : labels) ++count[label];
  const float share = static_cast<float>(labels.size()) / static_cast<float>(count.size());
  for (const auto& label : labels)
    set.weights.push_back(std::min(std::pow(share / count.at(label), even), kHeaviestRow));
}

void add_row(TrainingSet& set, const std::vector<float>& features, Seconds reference, Seconds time,
             std::string model, std::string shape, std::string gpu) {
  set.features.add(features);
  set.targets.push_back(static_cast<float>(std::log(reference / time)));
  set.models.push_back(std::move(model));
  set.shapes.push_back(std::move(shape));
  set.gpus.push_back(std::move(gpu));
  set.large.push_back(false);
}

void add_unique(std::vector<std::string>& list, const std::string& text) {
  const auto at = std::lower_bound(list.begin(), list.end(), text);
  if (at == list.end() || *at != text) list.insert(at, text);
}

// The best measured share of the reference, without the last thousandth of rows, which holds misreadings.
double efficiency_cap(std::vector<float> targets) {
  const auto rank = targets.size() - 1 - targets.size() / 1000;
  std::nth_element(targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(rank), targets.end());
  return std::exp(static_cast<double>(targets[rank]));
}

void require_rows(const TrainingSet& set) {
  if (static_cast<std::int64_t>(set.targets.size()) < kLeastRows) {
    throw InputError("profiles", std::to_string(set.targets.size()) + " usable rows for " + set.name,
                     "at least " + std::to_string(kLeastRows) + "; add tables of that kind");
  }
}

const GpuSpec& gpu_named(const std::string& name) {
  return find_gpu(name, "profiles");
}

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

Gemm shape_of(const MeasuredGemm& row) {
  return {.m = row.m, .n = row.n, .k = row.k, .batch = row.batch, .type = row.type, .pass = row.pass};
}

// A source whose times are in another unit is refused by name; single misreadings are left out.
void refuse_sources(const std::map<std::string, std::pair<std::int64_t, std::int64_t>>& wrong_of_all) {
  for (const auto& [source, counts] : wrong_of_all) {
    if (static_cast<double>(counts.first) > kWorstUnreadableShare * static_cast<double>(counts.second)) {
      throw InputError("profiles",
                       std::to_string(counts.first) + " of " + std::to_string(counts.second) + " GEMMs of '" +
                           source + "' with times that the data sheet rules out",
                       "times in microseconds, on the GPU that the rows name; at most 5 % wrong");
    }
  }
}

std::optional<std::string> implausible(Seconds reference, Seconds time) {
  if (reference / time > kBelievableEfficiency) return kTooFast;
  if (time > (reference + kSlowLaunch) * kSlowestBelievable) return kTooSlow;
  return std::nullopt;
}

std::vector<GemmRow> usable_gemms(const Profiles& profiles, Reasons& left_out) {
  std::vector<GemmRow> rows;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> wrong_of_all;
  for (const auto& gemm : profiles.gemms) {
    const GpuSpec& gpu = gpu_named(gemm.gpu);
    const auto peak = matrix_peak(gpu, gemm.type);
    if (!peak || peak->type != gemm.type) {
      ++left_out["GPU without a peak for " + std::string(to_text(gemm.type))];
      continue;
    }
    const Seconds reference = roofline(shape_of(gemm), gpu, peak->speed);
    if (gemm.timed == TimedAs::framework && reference < kShortestFrameworkTime) {
      ++left_out["short operator timed through a framework"];
    } else if (const auto reason = implausible(reference, gemm.time)) {
      ++left_out[*reason];
      ++wrong_of_all[gemm.source].first;
      ++wrong_of_all[gemm.source].second;
    } else {
      rows.push_back({&gemm, &gpu, *peak, reference});
      ++wrong_of_all[gemm.source].second;
    }
  }
  refuse_sources(wrong_of_all);
  return rows;
}

void add_gemm(TrainingSet& set, const GemmRow& row, GemmModelKind kind) {
  const MeasuredGemm& gemm = *row.measured;
  add_row(set, gemm_features(shape_of(gemm), *row.gpu, row.peak.speed, gemm.timed, kind),
          row.reference * set.card.passes.of(gemm.pass), gemm.time, gemm.model,
          std::to_string(gemm.n) + "x" + std::to_string(gemm.k), gemm.gpu);
  set.large.back() = gemm.m >= 1024;
  set.gradients = set.gradients || gemm.pass != GemmPass::forward;
  add_unique(set.card.configurations, std::string(to_text(gemm.type)));
  set.card.m = std::max(set.card.m, gemm.m);
  set.card.n = std::max(set.card.n, gemm.n);
  set.card.k = std::max(set.card.k, gemm.k);
  add_unique(set.card.gpus, gemm.gpu);
}

void finish(TrainingSet& set) {
  require_rows(set);
  set.card.efficiency_cap = efficiency_cap(set.targets);
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
  // used less gets fewer.
  set.options.row_share = 0.5;
  set.options.column_share = 0.35;
  if (model == ModelKind::gemm && rows.size() >= kManyRows) {
    set.options.trees = 100;
    set.options.leaves = 45;
    set.options.learning_rate = 0.18;
  }
  if (model == ModelKind::gemm_any) set.options.trees = 160;
  if (model == ModelKind::gemm_fp32) set.options.trees = 60;
  if (rows.size() < 1000)
    set.options = {.trees = 60, .leaves = 12, .learning_rate = 0.15, .min_child_weight = 2};
  finish(set);
  return set;
}

// Rows without which the sweeps of one GPU would drown all others in the model for any GPU: every third of a
// sweep.
constexpr std::size_t kPooledStride = 3;

// A sweep of a chip's kernels gains nothing from a few operators that another machine timed through its
// framework: 35 rows of GH200 cost 0.2 points of error on H100.
void drop_framework_rows(std::vector<const GemmRow*>& rows) {
  const auto alone = [](const GemmRow* row) { return row->measured->timed == TimedAs::kernel; };
  if (static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), alone)) < kManyRows) return;
  std::erase_if(rows, [&](const GemmRow* row) { return !alone(row); });
}

std::vector<TrainingSet> gemm_sets(const Profiles& profiles, Reasons& left_out) {
  const auto rows = usable_gemms(profiles, left_out);
  std::map<std::string, std::vector<const GemmRow*>> chips;
  std::vector<const GemmRow*> pooled, fp32;
  for (const GemmRow& row : rows) {
    if (row.peak.type == DataType::fp32) {
      fp32.push_back(&row);
      continue;
    }
    auto& chip = chips[chip_of(*row.gpu)];
    if (row.measured->timed == TimedAs::framework || chip.size() % kPooledStride == 0) pooled.push_back(&row);
    chip.push_back(&row);
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

std::optional<MemoryKernel> kernel_named(std::string_view name) {
  for (const auto kernel :
       {MemoryKernel::norm, MemoryKernel::rope, MemoryKernel::activation, MemoryKernel::residual,
        MemoryKernel::embedding, MemoryKernel::cross_entropy, MemoryKernel::optimizer, MemoryKernel::copy}) {
    if (to_text(kernel) == name) return kernel;
  }
  return std::nullopt;
}

TrainingSet kernel_set(const Profiles& profiles, ModelKind model, Reasons& left_out) {
  const bool framework = model == ModelKind::training_kernel;
  TrainingSet set{.name = framework ? "training-kernels" : "kernels",
                  .card = {.kind = model},
                  .options = {.trees = 100, .leaves = 12, .learning_rate = 0.14},
                  .features = FeatureMatrix(kernel_feature_names().size())};
  if (framework) set.options = {.trees = 40, .leaves = 8, .learning_rate = 0.2, .min_child_weight = 2};
  std::vector<std::string> labels;
  for (const auto& row : profiles.kernels) {
    if ((row.timed == TimedAs::framework) != framework) continue;
    const GpuSpec& gpu = gpu_named(row.gpu);
    const auto kernel = kernel_named(row.op);
    const Seconds reference = stream_time(row.bytes, gpu);
    if (!kernel) {
      ++left_out["kernel without a model here"];
    } else if (framework && reference < kShortestFrameworkTime) {
      ++left_out["short operator timed through a framework"];
    } else if (least_kernel_time(row.bytes, gpu) > row.time) {
      ++left_out[kTooFast];
    } else {
      add_row(set, kernel_features(*kernel, row.bytes, gpu), reference, row.time, row.model, row.op, row.gpu);
      set.kernels.push_back({*kernel, row.bytes, &gpu, row.time});
      set.large.back() = row.bytes >= Bytes(4 * kMebi);
      add_unique(set.card.gpus, row.gpu);
      add_unique(set.card.configurations, row.op);
      labels.push_back(row.gpu + " " + row.op);
    }
  }
  if (set.targets.empty()) return set;
  balance(set, labels, 1.0F);
  require_rows(set);
  relate_to_paces(set, fit_paces(set.kernels));
  finish(set);
  return set;
}

std::optional<CollectiveKind> collective_named(std::string_view name) {
  for (const auto kind : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                          CollectiveKind::all_gather, CollectiveKind::all_to_all}) {
    if (to_text(kind) == name) return kind;
  }
  return std::nullopt;
}

// Reduce-scatter and all-gather are priced as half an all-reduce, their half of its ring. The times in
// Aceso's format are those of the list forms, which copy every rank's part, and would teach a third less
// bandwidth than NCCL has.
bool is_taught(const MeasuredCollective& row, CollectiveKind kind) {
  return row.ranks > 1 && (kind == CollectiveKind::all_reduce || kind == CollectiveKind::all_to_all);
}

TrainingSet collective_set(const Profiles& profiles, ModelKind model, Reasons& left_out) {
  const bool network = model == ModelKind::network;
  const auto& names = network ? network_feature_names() : collective_feature_names();
  TrainingSet set{.name = network ? "network" : "collectives",
                  .card = {.kind = model},
                  .options = {.trees = 100, .leaves = 16, .learning_rate = 0.2, .min_child_weight = 2},
                  .features = FeatureMatrix(names.size())};
  if (network) set.options = {.trees = 40, .leaves = 8, .learning_rate = 0.2, .min_child_weight = 2};
  std::vector<std::string> labels;
  for (const auto& row : profiles.collectives) {
    const auto kind = collective_named(row.op);
    if (!kind || (row.ranks > row.ranks_per_node) != network) continue;
    const Collective op{.kind = *kind,
                        .bytes = row.bytes,
                        .ranks = row.ranks,
                        .ranks_per_node = row.ranks_per_node,
                        .gpu_link = row.gpu_link,
                        .network = row.network};
    if (!is_taught(row, *kind)) {
      ++left_out["reduce-scatter or all-gather: half an all-reduce"];
    } else if (wire_time(op) > row.time * kBelievableEfficiency) {
      ++left_out[kTooFast];
    } else {
      const std::string system = row.source + " " + row.system;
      add_row(set, network ? network_features(op) : collective_features(op), ring_time(op), row.time,
              row.source, row.op, system);
      set.large.back() = row.bytes >= Bytes(kMebi);
      add_unique(set.card.gpus, system);
      add_unique(set.card.configurations, configuration_name(op));
      labels.push_back(system + configuration_name(op));
    }
  }
  if (set.targets.empty()) return set;
  balance(set, labels, 1.0F);
  finish(set);
  return set;
}

TrainingSet transfer_set(const Profiles& profiles) {
  TrainingSet set{.name = "transfers",
                  .card = {.kind = ModelKind::transfer},
                  .options = {.trees = 30, .leaves = 8, .learning_rate = 0.25},
                  .features = FeatureMatrix(transfer_feature_names().size())};
  for (const auto& row : profiles.collectives) {
    if (row.op != "send_recv") continue;
    const bool same_node = row.ranks_per_node >= row.ranks;
    const PointToPoint op{
        .bytes = row.bytes, .path = same_node ? row.gpu_link : row.network, .same_node = same_node};
    const std::string system = row.source + " " + row.system + (same_node ? " in a node" : " between nodes");
    add_row(set, transfer_features(op), transfer_time(op), row.time, row.source, row.op, system);
    set.large.back() = row.bytes >= Bytes(kMebi);
    add_unique(set.card.gpus, system);
  }
  if (!set.targets.empty()) finish(set);
  return set;
}

}  // namespace

void relate_to_paces(TrainingSet& set, const KernelPaces& paces) {
  set.card.paces = paces;
  for (std::size_t i = 0; i < set.kernels.size(); ++i) {
    const KernelTime& row = set.kernels[i];
    const Seconds paced = paced_time(paces[static_cast<std::size_t>(row.kernel)], row.bytes, *row.gpu);
    set.targets[i] = static_cast<float>(std::log(paced / row.time));
  }
}

TrainingSets training_sets(const Profiles& profiles, std::uint64_t seed) {
  TrainingSets all;
  all.sets = gemm_sets(profiles, all.left_out);
  all.sets.push_back(kernel_set(profiles, ModelKind::kernel, all.left_out));
  all.sets.push_back(kernel_set(profiles, ModelKind::training_kernel, all.left_out));
  all.sets.push_back(collective_set(profiles, ModelKind::collective, all.left_out));
  all.sets.push_back(collective_set(profiles, ModelKind::network, all.left_out));
  all.sets.push_back(transfer_set(profiles));
  // A table of GEMMs alone fits the GEMM models; the kinds without any row keep their built-in models.
  std::erase_if(all.sets, [](const TrainingSet& set) { return set.targets.empty(); });
  if (all.sets.empty())
    throw InputError("profiles", "no usable row", "tables that `orrery fit` can learn from");
  for (auto& set : all.sets) set.options.seed = seed;
  return all;
}

}  // namespace orrery
