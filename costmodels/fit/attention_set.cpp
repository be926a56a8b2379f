// What measured attention teaches: how far the published bars (fitted/attention.yaml) are off.
#include <algorithm>
#include <cmath>
#include <optional>

#include "costmodels/fit/training_rows.hpp"
#include "costmodels/models/features.hpp"
#include "costmodels/models/physical_bound.hpp"
#include "platforms/errors.hpp"

namespace orrery {

namespace {

struct Kernel {
  AttentionKernel attention;
  SoftmaxKernel softmax = SoftmaxKernel::fused;
};

std::optional<Kernel> kernel_named(const std::string& name) {
  if (name == "flash") return Kernel{AttentionKernel::flash};
  if (name == "flash2") return Kernel{AttentionKernel::flash2};
  if (name == "unfused") return Kernel{AttentionKernel::unfused};
  if (name == "eager") return Kernel{AttentionKernel::unfused, SoftmaxKernel::eager};
  return std::nullopt;
}

}  // namespace

TrainingSet attention_set(const Profiles& profiles, const AttentionTable& table, TaughtFiles& files) {
  TrainingSet set{.name = "attention",
                  .card = {.kind = ModelKind::attention},
                  .options = {.trees = 60, .leaves = 12, .learning_rate = 0.15, .min_child_weight = 2},
                  .features = FeatureMatrix(attention_feature_names().size())};
  SourceCheck check("attention kernels", files);
  for (const auto& row : profiles.attentions) {
    const auto kernel = kernel_named(row.kernel);
    const GpuSpec& gpu = gpu_named(profiles, row.gpu);
    if (!kernel || !peak(gpu, DataType::fp16)) {
      files.leave_out(row.at, "attention kernel without a model here");
      continue;
    }
    const Attention op = operator_of(row, kernel->attention, kernel->softmax);
    const Seconds bars = attention_time(table, op, gpu).time;
    if (!check.believes(row.source, row.at,
                        {.least = least_time(op, gpu), .expected = bars, .time = row.time}))
      continue;
    add_row(set, attention_features(op, gpu), bars, row.time, row.source,
            "head dimension " + std::to_string(row.head_dim), row.gpu);
    set.large.back() = row.query_tokens >= 2048;
    add_unique(set.card.gpus, row.gpu);
    add_unique(set.card.configurations, configuration_name(op));
  }
  check.refuse_wrong_sources();
  if (set.targets.empty()) return set;
  balance(set, set.gpus, 0.5F);
  // The best share of the bars that was measured; the physical bound holds beside it.
  set.card.efficiency_cap =
      std::exp(static_cast<double>(*std::max_element(set.targets.begin(), set.targets.end())));
  return set;
}

}  // namespace orrery
