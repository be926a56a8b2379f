#include "costmodels/training_set.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "costmodels/features.hpp"
#include "costmodels/fit.hpp"
#include "costmodels/training_rows.hpp"
#include "platforms/errors.hpp"

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

Gemm shape_of(const MeasuredGemm& row) {
  return {.m = row.m, .n = row.n, .k = row.k, .batch = row.batch, .type = row.type, .pass = row.pass};
}

std::vector<GemmRow> usable_gemms(const Profiles& profiles, Reasons& left_out) {
  std::vector<GemmRow> rows;
  SourceCheck check("GEMMs", left_out);
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
    } else if (check.believes(gemm.source, reference, gemm.time)) {
      rows.push_back({&gemm, &gpu, *peak, reference});
    }
  }
  check.refuse_wrong_sources();
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
  const bool training = model == ModelKind::training_kernel;
  TrainingSet set{.name = training ? "training-kernels" : "kernels",
                  .card = {.kind = model},
                  .options = {.trees = 100, .leaves = 12, .learning_rate = 0.14},
                  .features = FeatureMatrix(kernel_feature_names().size())};
  if (training) set.options = {.trees = 40, .leaves = 8, .learning_rate = 0.2, .min_child_weight = 2};
  std::vector<std::string> labels;
  SourceCheck check("kernels", left_out);
  for (const auto& row : profiles.kernels) {
    if ((row.program == KernelProgram::training) != training) continue;
    const GpuSpec& gpu = gpu_named(row.gpu);
    const auto kernel = kernel_named(row.op);
    const Seconds reference = stream_time(row.bytes, gpu);
    if (!kernel) {
      ++left_out["kernel without a model here"];
    } else if (row.timed == TimedAs::framework && reference < kShortestFrameworkTime) {
      ++left_out["short operator timed through a framework"];
    } else if (check.believes(row.source, least_kernel_time(row.bytes, gpu) * kBelievableEfficiency,
                              row.time)) {
      const auto direction = row.backward ? Direction::backward : Direction::forward;
      const std::string name = configuration_name(*kernel, direction);
      add_row(set, kernel_features(*kernel, direction, row.bytes, gpu), reference, row.time, row.model, name,
              row.gpu);
      set.kernels.push_back({*kernel, row.bytes, &gpu, row.time, direction});
      set.large.back() = row.bytes >= Bytes(4 * kMebi);
      add_unique(set.card.gpus, row.gpu);
      add_unique(set.card.configurations, name);
      labels.push_back(row.gpu + " " + name);
    }
  }
  check.refuse_wrong_sources();
  if (has_too_few_rows(set)) return set;
  balance(set, labels, 1.0F);
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

// The times in Aceso's format are those of PyTorch's list forms, which copy every rank's part, and would
// teach a third less bandwidth than NCCL has.
bool is_taught(const MeasuredCollective& row, CollectiveKind kind) {
  return row.ranks > 1 && (!is_aceso_profile(row.source) || kind == CollectiveKind::all_reduce);
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
  SourceCheck check(network ? "collectives over nodes" : "collectives", left_out);
  for (const auto& row : profiles.collectives) {
    if ((row.ranks > row.ranks_per_node) != network) continue;
    const auto kind = collective_named(row.op);
    if (!kind) {
      ++left_out["collective without a model here"];
      continue;
    }
    const Collective op{.kind = *kind,
                        .bytes = row.bytes,
                        .ranks = row.ranks,
                        .ranks_per_node = row.ranks_per_node,
                        .gpu_link = row.gpu_link,
                        .network = row.network};
    if (!is_taught(row, *kind)) {
      ++left_out["a list form of PyTorch's, which copies"];
    } else if (check.believes(row.source + " " + row.system, wire_time(op), row.time)) {
      const std::string system = row.source + " " + row.system;
      add_row(set, network ? network_features(op) : collective_features(op), nccl_time(op), row.time,
              row.source, row.op, system);
      set.large.back() = row.bytes >= Bytes(kMebi);
      add_unique(set.card.gpus, system);
      add_unique(set.card.configurations, configuration_name(op));
      labels.push_back(system + configuration_name(op));
    }
  }
  check.refuse_wrong_sources();
  if (set.targets.empty()) return set;
  balance(set, labels, 1.0F);
  finish(set);
  return set;
}

TrainingSet transfer_set(const Profiles& profiles, Reasons& left_out) {
  TrainingSet set{.name = "transfers",
                  .card = {.kind = ModelKind::transfer},
                  .options = {.trees = 30, .leaves = 8, .learning_rate = 0.25},
                  .features = FeatureMatrix(transfer_feature_names().size())};
  SourceCheck check("transfers", left_out);
  for (const auto& row : profiles.collectives) {
    if (row.op != "send_recv") continue;
    const bool same_node = row.ranks_per_node >= row.ranks;
    LinkSpec path = same_node ? row.gpu_link : row.network;
    path.latency *= 2;  // of both ends, as in a plan
    const PointToPoint op{.bytes = row.bytes, .path = path, .same_node = same_node};
    if (!check.believes(row.source + " " + row.system, op.bytes / op.path.bandwidth, row.time)) continue;
    const std::string system = row.source + " " + row.system + (same_node ? " in a node" : " between nodes");
    add_row(set, transfer_features(op), transfer_time(op), row.time, row.source, row.op, system);
    set.large.back() = row.bytes >= Bytes(kMebi);
    add_unique(set.card.gpus, system);
  }
  check.refuse_wrong_sources();
  finish(set);
  return set;
}

}  // namespace

void relate_to_paces(TrainingSet& set, const KernelPaces& paces) {
  set.card.paces = paces;
  for (std::size_t i = 0; i < set.kernels.size(); ++i) {
    const KernelTime& row = set.kernels[i];
    const Seconds paced = paced_time(paces[pace_index(row.kernel, row.direction)], row.bytes, *row.gpu);
    set.targets[i] = static_cast<float>(std::log(paced / row.time));
  }
}

TrainingSets training_sets(const Profiles& profiles, const AttentionTable& table, std::uint64_t seed) {
  TrainingSets all;
  all.sets = gemm_sets(profiles, all.left_out);
  all.sets.push_back(attention_set(profiles, table, all.left_out));
  all.sets.push_back(kernel_set(profiles, ModelKind::kernel, all.left_out));
  all.sets.push_back(kernel_set(profiles, ModelKind::training_kernel, all.left_out));
  all.sets.push_back(collective_set(profiles, ModelKind::collective, all.left_out));
  all.sets.push_back(collective_set(profiles, ModelKind::network, all.left_out));
  all.sets.push_back(transfer_set(profiles, all.left_out));
  // A table of GEMMs alone fits the GEMM models; kinds with too few rows keep their built-in models.
  std::string few;
  for (const TrainingSet& set : all.sets) {
    if (!has_too_few_rows(set) || set.targets.empty()) continue;
    all.left_out["too few for " + set.name + ", which stay built in"] +=
        static_cast<std::int64_t>(set.targets.size());
    few += (few.empty() ? "" : ", ") + std::to_string(set.targets.size()) + " usable rows for " + set.name;
  }
  std::erase_if(all.sets, has_too_few_rows);
  if (all.sets.empty()) {
    throw InputError("profiles", few.empty() ? "no usable row" : few,
                     "at least " + std::to_string(kLeastRows) + " of one kind; add tables of it");
  }
  for (auto& set : all.sets) set.options.seed = seed;
  return all;
}

}  // namespace orrery
