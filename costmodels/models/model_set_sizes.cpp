// Operators whose time depends on their bytes alone, once the GPU or the links are known.
#include <algorithm>
#include <cmath>
#include <utility>

#include "costmodels/models/features.hpp"
#include "costmodels/models/model_set.hpp"
#include "costmodels/models/taught_links.hpp"
#include "costmodels/operators/node_links.hpp"
#include "platforms/errors.hpp"

namespace orrery {

namespace {

// Position of `value` in `known`, where it is added when new.
template <class Value>
std::size_t index_of(std::vector<Value>& known, const Value& value) {
  const auto found = std::find(known.begin(), known.end(), value);
  if (found != known.end()) return static_cast<std::size_t>(found - known.begin());
  known.push_back(value);
  return known.size() - 1;
}

// How a memory-bound operator is priced: as the kernel that was measured, and by how much slower than it.
struct KernelRule {
  MemoryKernel kernel;
  ModelKind model;
  double factor;
  Direction direction = Direction::forward;
};

// norm and activation were measured as training runs them (Megatron's kernels in Aceso's profiles); of rope,
// residual and embedding only vidur's inference kernels are known. What was not measured streams as the
// residual addition does (0.85-0.97 of the bandwidth), at a stated share of that: fused kernels 0.8 of the
// bandwidth (FIDELITY B 9.3), the optimizer with its many small tensors 0.7 (B 9.3; A 3 has 0.8).
constexpr double kFusedFactor = 1 / 0.87, kOptimizerFactor = 1 / 0.8;

// A kernel or gradient that `alone` or, for norm and activation, `training` has measured under its own name
// needs no rule.
KernelRule rule_of(const MemoryBound& op, const ModelCard& alone, const ModelCard& training) {
  const bool of_training = op.kernel == MemoryKernel::norm || op.kernel == MemoryKernel::activation;
  const ModelCard& own = of_training ? training : alone;
  if (op.fusion == Fusion::separate) {
    for (const auto direction : {op.direction, Direction::forward}) {
      if (own.has_configuration(configuration_name(op.kernel, direction)))
        return {op.kernel, own.kind, 1, direction};
    }
  }
  constexpr KernelRule kStreaming{MemoryKernel::residual, ModelKind::kernel, kFusedFactor};
  if (op.fusion == Fusion::fused && op.kernel != MemoryKernel::optimizer) return kStreaming;
  switch (op.kernel) {
    case MemoryKernel::norm:
    case MemoryKernel::activation:
      return {op.kernel, ModelKind::training_kernel, 1};
    case MemoryKernel::rope:
    case MemoryKernel::residual:
    case MemoryKernel::embedding:
      return {op.kernel, ModelKind::kernel, 1};
    case MemoryKernel::cross_entropy:
    case MemoryKernel::copy:
      return kStreaming;
    case MemoryKernel::optimizer:
      return {MemoryKernel::residual, ModelKind::kernel, kOptimizerFactor};
  }
  throw Defect("a memory kernel without a rule");
}

using VariantPoints = PointsBetween<std::size_t>;

// `variant_on` numbers the variant on a link.
template <class VariantOn>
VariantPoints numbered(const LinkPoints& links, const VariantOn& variant_on) {
  VariantPoints points{{}, links.shortest};
  for (const LinkPoint& one : links.all)
    points.all.push_back({variant_on(one.slower), variant_on(one.faster), one.share, one.bytes});
  return points;
}

Seconds time_at(const VariantPoints& points, const std::vector<SizeCurve>& curves, Bytes bytes) {
  std::vector<Seconds> times;
  for (const auto& point : points.all) {
    const Seconds slow = curves[point.slower].at(bytes * point.bytes);
    const Seconds fast = curves[point.faster].at(bytes * point.bytes);
    times.push_back(slow * std::pow(fast / slow, point.share));
  }
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  return points.shortest ? *least : *most;
}

template <class Op>
Op sized(Op op, Bytes size) {
  op.bytes = size;
  return op;
}

// What is asked for all sizes at once. A reduce-scatter has as many steps and bytes as an all-gather, and no
// feature tells them apart.
Collective variant_of(const Collective& op) {
  Collective variant = sized(op, Bytes(0));
  if (op.kind == CollectiveKind::reduce_scatter) variant.kind = CollectiveKind::all_gather;
  return variant;
}

constexpr double kSameMemory = 0.1;  // log of bandwidths; A100's forms with 80 GB differ by 0.05

// Rows of those that taught (Llama 2 70B's queries and keys): vLLM's threads idle in narrower ones, which
// take up to a third longer for a byte, and kernels of training have other blocks.
constexpr Bytes kRopeRow = Bytes(36 * kKibi);

LoneKernel lone_kernel(MemoryKernel kernel, Direction direction, Bytes bytes) {
  return {kernel, direction, bytes, kernel == MemoryKernel::rope ? kRopeRow : Bytes(0)};
}

// Whether the chip taught the model, and with memory as fast: H200's is not H100's.
GpuKnown known_to(const ModelCard& card, const GpuSpec& gpu) {
  const auto& catalog = gpu_catalog();
  const bool known =
      card.measured(gpu.name) || std::any_of(catalog.begin(), catalog.end(), [&](const auto& other) {
        return card.measured(other.name) && other.architecture == gpu.architecture &&
               other.multiprocessors == gpu.multiprocessors &&
               std::abs(std::log(gpu.memory_bandwidth / other.memory_bandwidth)) < kSameMemory;
      });
  return known ? GpuKnown::yes : GpuKnown::no;
}

struct KernelVariant {
  int gpu = 0;
  MemoryKernel kernel = MemoryKernel::copy;
  Direction direction = Direction::forward;
  bool operator==(const KernelVariant&) const = default;
};

}  // namespace

template <class Variant, class Features, class Reference>
std::vector<SizeCurve> ModelSet::curves(const Fitted& fitted, const std::vector<Variant>& variants,
                                        const Features& features, const Reference& reference) const {
  FeatureMatrix rows(fitted.model.features());
  for (const auto& variant : variants) {
    for (const Bytes size : curve_sizes()) rows.add(features(variant, size));
  }
  const auto answers = fitted.model.predict(rows);
  std::vector<SizeCurve> result;
  std::size_t row = 0;
  for (const auto& variant : variants) {
    std::vector<Seconds> times;
    for (const Bytes size : curve_sizes()) {
      const double efficiency = std::exp(static_cast<double>(answers[row++]));
      times.push_back(reference(variant, size) * (1 / std::min(efficiency, fitted.card.efficiency_cap)));
    }
    result.emplace_back(std::move(times));
  }
  return result;
}

void ModelSet::predict_kernels(std::span<const GpuSpec> gpus, std::span<const OperatorQuery> queries,
                               std::vector<Prediction>& answers) const {
  struct Asked {
    std::size_t query, variant;
    Bytes bytes;
    double factor;
  };
  const auto gpu_of = [&](const KernelVariant& one) -> const GpuSpec& {
    return gpus[static_cast<std::size_t>(one.gpu)];
  };
  std::vector<std::vector<KernelVariant>> variants(models_.size());
  std::vector<std::vector<Asked>> asked(models_.size());
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto* op = std::get_if<MemoryBound>(&queries[i].op);
    if (op == nullptr) continue;
    const GpuSpec& gpu = gpus[static_cast<std::size_t>(queries[i].gpu)];
    const std::size_t streaming = best_for(ModelKind::kernel, gpu);
    const std::size_t training = best_for(ModelKind::training_kernel, gpu);
    const KernelRule rule = rule_of(*op, models_[streaming].card, models_[training].card);
    const std::size_t model = rule.model == ModelKind::kernel ? streaming : training;
    const KernelVariant variant{queries[i].gpu, rule.kernel, rule.direction};
    asked[model].push_back({i, index_of(variants[model], variant), op->bytes, rule.factor});
  }
  for (std::size_t model = 0; model < models_.size(); ++model) {
    if (asked[model].empty()) continue;
    const Fitted& fitted = models_[model];
    const bool alone = fitted.card.kind == ModelKind::kernel;
    std::vector<GpuKnown> known(gpus.size(), GpuKnown::no);
    for (const auto& one : variants[model])
      known[static_cast<std::size_t>(one.gpu)] = known_to(fitted.card, gpu_of(one));
    const auto curve = curves(
        fitted, variants[model],
        [&](const KernelVariant& one, Bytes size) {
          return alone ? lone_kernel_features(fitted.card.law, lone_kernel(one.kernel, one.direction, size),
                                              gpu_of(one), known[static_cast<std::size_t>(one.gpu)])
                       : kernel_features(one.kernel, one.direction, size, gpu_of(one));
        },
        [&](const KernelVariant& one, Bytes size) {
          return alone ? law_time(fitted.card.law, lone_kernel(one.kernel, one.direction, size), gpu_of(one))
                       : paced_time(fitted.card.paces[pace_index(one.kernel, one.direction)], size,
                                    gpu_of(one));
        });
    for (const auto& one : asked[model]) {
      const GpuSpec& gpu = gpu_of(variants[model][one.variant]);
      answers[one.query] = {
          std::max(curve[one.variant].at(one.bytes) * one.factor, least_kernel_time(one.bytes, gpu)),
          !measured_chip(fitted.card, gpu), is_own(model) && measured_chip(fitted.card, gpu)};
    }
  }
}

void ModelSet::predict_collectives(std::span<const GpuSpec> gpus, std::span<const OperatorQuery> queries,
                                   std::vector<Prediction>& answers) const {
  struct Asked {
    std::size_t query;
    Collective op;
    VariantPoints points;
    double times;  // one after the other
  };
  std::vector<std::vector<Collective>> variants(models_.size());
  std::vector<std::vector<Asked>> asked(models_.size());
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto* op = std::get_if<Collective>(&queries[i].op);
    if (op == nullptr || op->ranks < 2) continue;  // one rank has nothing to exchange: no time
    if (op->stated) {
      answers[i] = {stated_time(*op, *op->stated), false};
      continue;
    }
    const GpuSpec& gpu = gpus[static_cast<std::size_t>(queries[i].gpu)];
    const bool one_node = op->ranks <= op->ranks_per_node;
    const ModelKind kind = one_node ? ModelKind::collective : ModelKind::network;
    const double over_part = one_node ? whole_over_part(gpu, op->gpu_link, op->ranks) : 1.0;
    Collective variant = variant_of(*op);
    variant.gpu_link.bandwidth = variant.gpu_link.bandwidth * over_part;
    const LinkSpec whole = variant.gpu_link;
    // NVIDIA's switches taught the built-in models.
    const bool in_two = one_node && op->kind == CollectiveKind::all_reduce &&
                        sums_in_two_steps(gpu, op->ranks) && !is_own(best_for(kind, variant));
    if (in_two) variant.kind = CollectiveKind::all_gather;
    const std::size_t model = best_for(kind, variant);
    // One's own models measured the part of a mesh that is asked for. The others measured meshes whole, of
    // which a part takes for a byte what the whole takes for as many as it is faster.
    Collective real = *op;
    if (is_own(model)) real.gpu_link = whole;
    LinkSpec& crossed = one_node ? variant.gpu_link : variant.network;
    const auto over = [&](BytesPerSecond bandwidth) {
      crossed.bandwidth = bandwidth;
      return index_of(variants[model], variant);
    };
    const LinkPoints links = !models_[model].card.links.empty()
                                 ? points_on(crossed.bandwidth, is_own(model) ? 1.0 : over_part)
                             : !one_node      ? points_between_nodes(op->network.bandwidth)
                             : over_part != 1 ? points_in_mesh(whole.bandwidth, over_part)
                                              : points_in_node(whole.bandwidth, gpu);
    asked[model].push_back({i, real, numbered(links, over), in_two ? 2.0 : 1.0});
  }
  for (std::size_t model = 0; model < models_.size(); ++model) {
    if (asked[model].empty()) continue;
    const Fitted& fitted = models_[model];
    const auto features = [&](const Collective& op, Bytes size) {
      return fitted.card.kind == ModelKind::collective ? collective_features(sized(op, size))
                                                       : network_features(sized(op, size));
    };
    const auto curve = curves(fitted, variants[model], features,
                              [&](const Collective& op, Bytes size) { return nccl_time(sized(op, size)); });
    for (const Asked& one : asked[model]) {
      const Collective& op = one.op;
      answers[one.query] = {std::max(time_at(one.points, curve, op.bytes) * one.times, wire_time(op)),
                            !fitted.card.has_configuration(configuration_name(op)),
                            is_own(model) && fitted.card.has_configuration(configuration_name(op)) &&
                                fitted.card.speaks_of(links_of(op))};
    }
  }
}

// Between two GPUs of a mesh one's own models measured the part of their links that there is.
PointToPoint ModelSet::as_measured(const PointToPoint& op, const GpuSpec& gpu) const {
  PointToPoint whole = op;
  if (op.same_node) whole.path.bandwidth = whole.path.bandwidth * whole_over_part(gpu, op.path, 2);
  return is_own(best_for(whole)) ? whole : op;
}

void ModelSet::predict_transfers(std::span<const GpuSpec> gpus, std::span<const OperatorQuery> queries,
                                 std::vector<Prediction>& answers) const {
  struct Asked {
    std::size_t query;
    PointToPoint op;
    VariantPoints points;
  };
  std::vector<std::vector<PointToPoint>> variants(models_.size());
  std::vector<std::vector<Asked>> asked(models_.size());
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto* op = std::get_if<PointToPoint>(&queries[i].op);
    if (op == nullptr) continue;
    const PointToPoint real = as_measured(*op, gpus[static_cast<std::size_t>(queries[i].gpu)]);
    PointToPoint variant = sized(real, Bytes(0));
    const std::size_t model = best_for(variant);
    const auto over = [&](BytesPerSecond bandwidth) {
      variant.path.bandwidth = bandwidth;
      return index_of(variants[model], variant);
    };
    const LinkPoints links =
        models_[model].card.links.empty() ? points_of(real) : points_on(real.path.bandwidth);
    asked[model].push_back({i, real, numbered(links, over)});
  }
  for (std::size_t model = 0; model < models_.size(); ++model) {
    if (asked[model].empty()) continue;
    const auto curve = curves(
        models_[model], variants[model],
        [&](const PointToPoint& op, Bytes size) { return transfer_features(sized(op, size)); },
        [&](const PointToPoint& op, Bytes size) { return transfer_time(sized(op, size)); });
    for (const auto& [query, op, points] : asked[model]) {
      answers[query] = {std::max(time_at(points, curve, op.bytes), op.bytes / op.path.bandwidth), false,
                        is_own(model) && models_[model].card.speaks_of(links_of(op))};
    }
  }
}

}  // namespace orrery
