#include "costmodels/fit/training_set.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "costmodels/fit/fit.hpp"
#include "costmodels/fit/training_rows.hpp"
#include "costmodels/models/features.hpp"
#include "platforms/errors.hpp"

namespace orrery {

namespace {

std::optional<MemoryKernel> kernel_named(std::string_view name) {
  for (const auto kernel :
       {MemoryKernel::norm, MemoryKernel::rope, MemoryKernel::activation, MemoryKernel::residual,
        MemoryKernel::embedding, MemoryKernel::cross_entropy, MemoryKernel::optimizer, MemoryKernel::copy}) {
    if (to_text(kernel) == name) return kernel;
  }
  return std::nullopt;
}

TrainingSet kernel_set(const Profiles& profiles, ModelKind model, TaughtFiles& files) {
  const bool training = model == ModelKind::training_kernel;
  const auto& names = training ? kernel_feature_names() : lone_kernel_feature_names();
  TrainingSet set{.name = training ? "training-kernels" : "kernels",
                  .card = {.kind = model},
                  .options = {.trees = 100, .leaves = 12, .learning_rate = 0.14},
                  .features = FeatureMatrix(names.size())};
  if (training) set.options = {.trees = 40, .leaves = 8, .learning_rate = 0.2, .min_child_weight = 2};
  std::vector<std::string> labels;
  SourceCheck check("kernels", files);
  for (const auto& row : profiles.kernels) {
    if ((row.program == KernelProgram::training) != training) continue;
    const GpuSpec& gpu = gpu_named(profiles, row.gpu);
    const auto kernel = kernel_named(row.op);
    const Seconds reference = stream_time(row.bytes, gpu);
    if (!kernel) {
      files.leave_out(row.at, "kernel without a model here");
    } else if (row.timed == TimedAs::framework && reference < kShortestFrameworkTime) {
      files.leave_out(row.at, "short operator timed through a framework");
    } else if (check.believes(
                   row.source, row.at,
                   {.least = least_kernel_time(row.bytes, gpu), .expected = reference, .time = row.time})) {
      const auto direction = row.backward ? Direction::backward : Direction::forward;
      const std::string name = configuration_name(*kernel, direction);
      // Features and targets: relate_to_own.
      add_row(set, std::vector<float>(names.size()), reference, row.time, row.model, name, row.gpu);
      set.kernels.push_back({*kernel, row.bytes, &gpu, row.time, direction, row.row});
      set.large.back() = row.bytes >= Bytes(4 * kMebi);
      add_unique(set.card.gpus, row.gpu);
      add_unique(set.card.configurations, name);
      labels.push_back(row.gpu + " " + name);
    }
  }
  check.refuse_wrong_sources();
  if (has_too_few_rows(set)) return set;
  balance(set, labels, 1.0F);
  relate_to_own(set);
  finish(set);
  return set;
}

// What links do is less sure than what a GPU does: a table may give half of it, of one direction or port.
constexpr double kFasterLinks = 2;

constexpr std::string_view kSendReceive = "send_recv";

std::optional<CollectiveKind> collective_named(std::string_view name) {
  for (const auto kind : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                          CollectiveKind::all_gather, CollectiveKind::all_to_all}) {
    if (to_text(kind) == name) return kind;
  }
  return std::nullopt;
}

void add_links(ModelCard& card, MeasuredLinks links) {
  if (std::find(card.links.begin(), card.links.end(), links) == card.links.end())
    card.links.push_back(std::move(links));
}

// The times in Aceso's format are those of PyTorch's list forms, which copy every rank's part, and would
// teach a third less bandwidth than NCCL has.
bool is_taught(const MeasuredCollective& row, CollectiveKind kind) {
  return !is_aceso_profile(row.source) || kind == CollectiveKind::all_reduce;
}

TrainingSet collective_set(const Profiles& profiles, ModelKind model, TaughtFiles& files) {
  const bool network = model == ModelKind::network;
  const auto& names = network ? network_feature_names() : collective_feature_names();
  TrainingSet set{.name = network ? "network" : "collectives",
                  .card = {.kind = model},
                  .options = {.trees = 100, .leaves = 16, .learning_rate = 0.2, .min_child_weight = 2},
                  .features = FeatureMatrix(names.size())};
  if (network) set.options = {.trees = 40, .leaves = 8, .learning_rate = 0.2, .min_child_weight = 2};
  std::vector<std::string> labels;
  SourceCheck check(network ? "collectives over nodes" : "collectives", files);
  for (const auto& row : profiles.collectives) {
    if ((row.ranks > row.ranks_per_node) != network || row.op == kSendReceive) continue;
    const auto kind = collective_named(row.op);
    if (!kind) {
      files.leave_out(row.at, "collective without a model here");
      continue;
    }
    const Collective op{.kind = *kind,
                        .bytes = row.bytes,
                        .ranks = row.ranks,
                        .ranks_per_node = row.ranks_per_node,
                        .gpu_link = row.gpu_link,
                        .network = row.network};
    if (!is_taught(row, *kind)) {
      files.leave_out(row.at, "a list form of PyTorch's, which copies");
    } else if (check.believes(
                   row.source + " " + row.system, row.at,
                   {.least = wire_time(op) / kFasterLinks, .expected = nccl_time(op), .time = row.time})) {
      const std::string system = row.source + " " + row.system;
      add_row(set, network ? network_features(op) : collective_features(op), nccl_time(op), row.time,
              row.source, row.op, system);
      set.large.back() = row.bytes >= Bytes(kMebi);
      add_unique(set.card.gpus, system);
      add_unique(set.card.configurations, configuration_name(op));
      add_links(set.card, links_of(op));
      labels.push_back(system + configuration_name(op));
    }
  }
  check.refuse_wrong_sources();
  check.doubt_fast_links();
  if (set.targets.empty()) return set;
  balance(set, labels, 1.0F);
  finish(set);
  return set;
}

TrainingSet transfer_set(const Profiles& profiles, TaughtFiles& files) {
  TrainingSet set{.name = "transfers",
                  .card = {.kind = ModelKind::transfer},
                  .options = {.trees = 30, .leaves = 8, .learning_rate = 0.25},
                  .features = FeatureMatrix(transfer_feature_names().size())};
  SourceCheck check("transfers", files);
  for (const auto& row : profiles.collectives) {
    if (row.op != kSendReceive) continue;
    const bool same_node = row.ranks_per_node >= row.ranks;
    LinkSpec path = same_node ? row.gpu_link : row.network;
    path.latency *= 2;  // of both ends, as in a plan
    const PointToPoint op{.bytes = row.bytes, .path = path, .same_node = same_node};
    const Seconds wire = op.bytes / op.path.bandwidth;
    if (!check.believes(row.source + " " + row.system, row.at,
                        {.least = wire / kFasterLinks, .expected = transfer_time(op), .time = row.time}))
      continue;
    const std::string system = row.source + " " + row.system + (same_node ? " in a node" : " between nodes");
    add_row(set, transfer_features(op), transfer_time(op), row.time, row.source, row.op, system);
    set.large.back() = row.bytes >= Bytes(kMebi);
    add_unique(set.card.gpus, system);
    add_links(set.card, links_of(op));
  }
  check.refuse_wrong_sources();
  check.doubt_fast_links();
  finish(set);
  return set;
}

}  // namespace

void relate_to_own(TrainingSet& set) {
  if (set.card.kind == ModelKind::kernel)
    set.card.law = fit_law(set.kernels);
  else
    set.card.paces = fit_paces(set.kernels);
  set.card.gpus.clear();
  for (const auto& row : set.kernels) add_unique(set.card.gpus, row.gpu->name);
  relate_to(set, set.card);
}

XgboostModel train(const TrainingSet& set) {
  if (set.card.kind != ModelKind::kernel)
    return XgboostModel::train(set.features, set.targets, set.weights, set.options);
  // Each row once more as of a GPU that did not teach (lone_kernel_features).
  FeatureMatrix features = set.features;
  std::vector<float> targets = set.targets, weights = set.weights;
  for (std::size_t i = 0; i < set.targets.size(); ++i) {
    const auto row = set.features.row(i);
    std::vector<float> unknown(row.begin(), row.end());
    unknown.back() = 0;
    features.add(unknown);
  }
  targets.insert(targets.end(), set.targets.begin(), set.targets.end());
  weights.insert(weights.end(), set.weights.begin(), set.weights.end());
  return XgboostModel::train(features, targets, weights, set.options);
}

void relate_to(TrainingSet& set, const ModelCard& taught) {
  const bool alone = set.card.kind == ModelKind::kernel;
  FeatureMatrix features(set.features.columns());
  features.reserve(set.kernels.size());
  for (std::size_t i = 0; i < set.kernels.size(); ++i) {
    const KernelTime& row = set.kernels[i];
    const LoneKernel op{row.kernel, row.direction, row.bytes, row.row};
    const KernelPace& pace = taught.paces[pace_index(row.kernel, row.direction)];
    const Seconds expected =
        alone ? law_time(taught.law, op, *row.gpu) : paced_time(pace, row.bytes, *row.gpu);
    features.add(alone ? lone_kernel_features(taught.law, op, *row.gpu,
                                              taught.measured(row.gpu->name) ? GpuKnown::yes : GpuKnown::no)
                       : kernel_features(row.kernel, row.direction, row.bytes, *row.gpu));
    set.targets[i] = static_cast<float>(std::log(expected / row.time));
  }
  set.features = std::move(features);
}

TrainingSets training_sets(const Profiles& profiles, const AttentionTable& table, std::uint64_t seed) {
  TrainingSets all;
  TaughtFiles files(profiles.files);
  all.sets = gemm_sets(profiles, files);
  all.sets.push_back(attention_set(profiles, table, files));
  all.sets.push_back(kernel_set(profiles, ModelKind::kernel, files));
  all.sets.push_back(kernel_set(profiles, ModelKind::training_kernel, files));
  all.sets.push_back(collective_set(profiles, ModelKind::collective, files));
  all.sets.push_back(collective_set(profiles, ModelKind::network, files));
  all.sets.push_back(transfer_set(profiles, files));
  all.files = files.all();
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
