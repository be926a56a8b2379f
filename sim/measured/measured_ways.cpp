#include "sim/measured/measured_ways.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "costmodels/operators/local_layer.hpp"
#include "sim/measured/cell_text.hpp"

namespace orrery {

bool shards_weights(const SoftwareStack& stack, const SaidWords& words) {
  if (!words.sharding) return stack.fully_sharded;
  return words.sharding == Sharding::weights || words.sharding == Sharding::weights_in_node;
}

namespace {

Degrees said_degrees(const MeasuredRun& run) {
  const auto ways = [&](const char* column) {
    return static_cast<int>(run.integer(column, 1 << 17).value_or(0));
  };
  return {ways("tp"), ways("pp"), ways("dp"), std::max(ways("cp"), 1), std::max(ways("ep"), 1)};
}

// What GPUs and the other ways leave.
void infer_missing(std::int64_t gpus, Degrees& d) {
  if (d.data == 0 && gpus > 1) return;
  const std::int64_t copies = std::int64_t{std::max(d.data, 1)} * d.context;
  if (gpus % copies != 0) return;
  const auto model = static_cast<int>(gpus / copies);
  if (model == 1) d.tensor = std::max(d.tensor, 1), d.pipeline = std::max(d.pipeline, 1);
  if (d.tensor == 0 && d.pipeline > 0 && model % d.pipeline == 0) d.tensor = model / d.pipeline;
  if (d.pipeline == 0 && d.tensor > 0 && model % d.tensor == 0) d.pipeline = model / d.tensor;
}

// Programs that split models whether their optimizer is sharded or not.
bool splits_models(const MeasuredRun& run) {
  return says_any(lower_case(run.text("framework")), {"megatron", "nemo"});
}

// What shards weights, or the optimizer over replicas, is taken to split nothing else unless it says so.
void shard_alone(bool weights, Degrees& d, std::vector<std::string>& assumptions) {
  const char* lacking = d.tensor > 0     ? "pipeline ways"
                        : d.pipeline > 0 ? "tensor ways"
                                         : "tensor and pipeline ways";
  assumptions.emplace_back(std::string(weights ? "sharded weights" : "replicas") + " in place of " + lacking);
  d.tensor = std::max(d.tensor, 1);
  d.pipeline = std::max(d.pipeline, 1);
}

bool is_open(const Degrees& d) {
  return d.tensor == 0 || d.pipeline == 0;
}

// The replicas that GPUs leave; none where the ways do not multiply to them.
std::optional<int> replicas(std::int64_t gpus, const Degrees& d) {
  const std::int64_t model = std::int64_t{d.tensor} * d.pipeline * d.context;
  if (gpus % model != 0 || gpus < model) return std::nullopt;
  const auto data = static_cast<int>(gpus / model);
  return d.data == 0 || d.data == data ? std::optional(data) : std::nullopt;
}

std::vector<int> possible_tensor(const Degrees& d, int gpus_per_node) {
  constexpr int kMost = 8;
  if (d.tensor > 0) return {d.tensor};
  std::vector<int> possible;
  for (int ways = 1; ways <= std::min(kMost, gpus_per_node); ways *= 2) possible.push_back(ways);
  return possible;
}

// Stages of as many layers each, or where embedding and loss count as one each; and powers of two, which GPUs
// come in (DeepSeek-V3's 61 layers stand on 16 stages).
std::vector<int> possible_pipeline(const Degrees& d, int layers) {
  if (d.pipeline > 0) return {d.pipeline};
  std::vector<int> possible;
  for (int ways = 1; ways <= layers; ++ways) {
    const bool is_power = std::has_single_bit(static_cast<unsigned>(ways));
    if (layers % ways == 0 || (layers + 2) % ways == 0 || is_power) possible.push_back(ways);
  }
  return possible;
}

// As said; of a mixture of experts of which nobody says none, those of a node or of eight nodes.
std::vector<int> possible_expert(const MeasuredRun& run, const MeasuredPlan& plan, const Degrees& d) {
  if (!plan.model.has_experts() || run.integer("ep")) return {d.expert};
  return {1, 8, 64};
}

std::vector<Degrees> possible_degrees(const MeasuredRun& run, const MeasuredPlan& plan, const Degrees& said,
                                      std::int64_t gpus) {
  const std::int64_t batch = run.integer("gbs").value_or(0);
  const std::vector<int> all_tensor = possible_tensor(said, plan.cluster.groups.front().gpus_per_node);
  const std::vector<int> all_expert = possible_expert(run, plan, said);
  std::vector<Degrees> possible;
  for (const int pipeline : possible_pipeline(said, plan.model.layer_count())) {
    for (const int tensor : all_tensor) {
      Degrees one = said;
      one.tensor = tensor, one.pipeline = pipeline;
      const auto data = replicas(gpus, one);
      if (!data || batch % *data != 0) continue;
      one.data = *data;
      for (const int expert : all_expert) {
        one.expert = expert;
        possible.push_back(one);
      }
    }
  }
  const auto shares = [](const Degrees& d) {
    return std::pair(std::int64_t{d.tensor} * d.pipeline * d.expert, d.tensor);
  };
  std::stable_sort(possible.begin(), possible.end(),
                   [&](const Degrees& a, const Degrees& b) { return shares(a) > shares(b); });
  return possible;
}

// Without expert ways not even weights and their gradients in 16 bits would have been on the card: as many as
// make these fit, up to one expert a GPU.
std::vector<int> expert_ways_that_fit(const MeasuredPlan& plan, const Degrees& d) {
  constexpr double kLeast = 4;  // bytes of a parameter
  const ModelSpec& model = plan.model;
  std::int64_t most = 1;
  double of_experts = 0;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    const LayerShape& shape = model.layer(layer);
    most = std::max(most, shape.experts);
    if (shape.experts > 1) of_experts += local_parameters(shape, local_layer(shape, {})).expert;
  }
  const double rest = static_cast<double>(total_parameters(model)) - of_experts;
  const double ways = static_cast<double>(d.tensor) * d.pipeline;
  const auto fits = [&](int expert) {
    return kLeast * (rest + of_experts / expert) / ways <= plan.cluster.groups.front().gpu.memory.value();
  };
  if (fits(1)) return {1};
  std::vector<int> possible;
  for (int expert = 2; expert <= std::min<std::int64_t>(most, d.data); expert *= 2)
    if (fits(expert) && most % expert == 0 && d.data % expert == 0) possible.push_back(expert);
  return possible.empty() ? std::vector{1} : possible;
}

std::string range_of(const std::vector<Degrees>& all, int Degrees::*ways) {
  const auto [least, most] = std::minmax_element(
      all.begin(), all.end(), [&](const Degrees& a, const Degrees& b) { return a.*ways < b.*ways; });
  return std::to_string((*least).*ways) + " to " + std::to_string((*most).*ways);
}

}  // namespace

std::variant<std::vector<Degrees>, Unmapped> degrees_of(const MeasuredRun& run, const SaidWords& words,
                                                        const MeasuredPlan& plan,
                                                        std::vector<std::string>& assumptions) {
  const std::int64_t gpus = *run.integer("n_gpus");
  Degrees said = said_degrees(run);
  infer_missing(gpus, said);
  const bool sharded = shards_weights(plan.stack, words);
  const bool over_replicas = words.sharding.value_or(Sharding::none) != Sharding::none && !splits_models(run);
  if ((sharded || over_replicas) && is_open(said)) shard_alone(sharded, said, assumptions);
  if (!is_open(said)) {
    const auto data = replicas(gpus, said);
    if (!data) return Unmapped{"its ways do not multiply to its GPUs"};
    said.data = *data;
    std::vector<Degrees> all{said};
    if (!plan.model.has_experts() || run.integer("ep") || run.has_failed() || sharded) return all;
    all.clear();
    for (const int expert : expert_ways_that_fit(plan, said)) {
      all.push_back(said);
      all.back().expert = expert;
    }
    if (all.front().expert > 1)
      assumptions.push_back("expert ways: " + range_of(all, &Degrees::expert) + kOfFastest);
    return all;
  }
  if (run.has_failed()) return Unmapped{"tensor or pipeline ways not given"};
  const std::vector<Degrees> all = possible_degrees(run, plan, said, gpus);
  if (all.empty()) return Unmapped{"no ways of its GPUs that its layers and batch divide by"};
  if (said.tensor == 0) assumptions.push_back("tensor ways: " + range_of(all, &Degrees::tensor) + kOfFastest);
  if (said.pipeline == 0)
    assumptions.push_back("pipeline ways: " + range_of(all, &Degrees::pipeline) + kOfFastest);
  if (all.front().expert != all.back().expert)
    assumptions.push_back("expert ways: " + range_of(all, &Degrees::expert) + kOfFastest);
  return all;
}

}  // namespace orrery
