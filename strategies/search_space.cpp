#include "strategies/search_space.hpp"

#include <algorithm>
#include <array>

namespace orrery {
namespace {

constexpr std::int64_t kMostWays = 65'536;
constexpr std::int64_t kMostLayerCount = 1024;

// A list without repeats, or a single value.
template <class T, class Read>
void read_items(const YamlValue& value, std::vector<T>& list, Read read) {
  const std::vector<YamlValue> items =
      value.kind() == YamlValue::Kind::list ? value.items() : std::vector<YamlValue>{value};
  if (items.empty()) throw InputError(value.place(), "an empty list", "at least one choice");
  list.clear();
  for (const YamlValue& item : items) {
    const T choice = read(item);
    if (std::find(list.begin(), list.end(), choice) != list.end()) item.fail("each choice once");
    list.push_back(choice);
  }
}

template <class T, class Read>
void read_list(const YamlValue& root, const std::string& key, std::vector<T>& list, Read read) {
  if (const auto value = root.find(key)) read_items(*value, list, read);
}

ScheduleKind read_schedule(const YamlValue& item) {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zb_h1,
                                  ScheduleKind::zb_h2, ScheduleKind::zb_v}) {
    if (item.text() == to_text(kind)) return kind;
  }
  item.fail(
      "gpipe, 1f1b, zb-h1, zb-h2 or zb-v (interleaved comes with num_virtual_stages_per_pipeline_rank)");
}

RecomputeGranularity read_granularity(const YamlValue& item) {
  for (const RecomputeGranularity granularity :
       {RecomputeGranularity::none, RecomputeGranularity::selective, RecomputeGranularity::full}) {
    if (item.text() == to_text(granularity)) return granularity;
  }
  item.fail("none, selective or full");
}

RecomputeMethod read_method(const YamlValue& item) {
  for (const RecomputeMethod method : {RecomputeMethod::uniform, RecomputeMethod::block}) {
    if (item.text() == to_text(method)) return method;
  }
  item.fail("uniform or block");
}

std::vector<int> read_range(const YamlValue& value, const std::string& text) {
  const std::size_t dots = text.find("..");
  const auto number = [&](const std::string& digits) {
    const bool plain =
        !digits.empty() && digits.size() <= 4 && digits.find_first_not_of("0123456789") == std::string::npos;
    const int count = plain ? std::stoi(digits) : 0;
    if (count < 1 || count > kMostLayerCount)
      value.fail("auto, or layers from 1 to 1024: a number, a list, or a range such as 1..8");
    return count;
  };
  const int least = number(text.substr(0, dots)), most = number(text.substr(dots + 2));
  if (least > most) value.fail("a range whose first number is not above its second");
  std::vector<int> counts;
  for (int count = least; count <= most; ++count) counts.push_back(count);
  return counts;
}

// A list of counts, one, a range of them such as 1..8, or auto: 0.
std::vector<int> read_layer_counts(const YamlValue& value) {
  if (value.kind() != YamlValue::Kind::list) {
    const std::string text = value.text();
    if (text == "auto") return {0};
    if (text.find("..") != std::string::npos) return read_range(value, text);
  }
  std::vector<int> counts;
  read_items(value, counts,
             [](const YamlValue& item) { return static_cast<int>(item.integer(1, kMostLayerCount)); });
  return counts;
}

// Every granularity; `selective` of every set of modules, `full` by every method with every number of layers.
// `uniform` recomputes all layers whatever their number, so that none of it is left to choose: groups of one.
std::vector<Recompute> recomputes(const std::vector<RecomputeGranularity>& granularities,
                                  const std::vector<RecomputeModules>& modules,
                                  const std::vector<RecomputeMethod>& methods,
                                  const std::vector<int>& layers) {
  std::vector<Recompute> all;
  for (const RecomputeGranularity granularity : granularities) {
    if (granularity == RecomputeGranularity::none) all.push_back({});
    if (granularity == RecomputeGranularity::selective) {
      for (const RecomputeModules& set : modules)
        all.push_back({granularity, RecomputeMethod::uniform, 1, set});
    }
    if (granularity != RecomputeGranularity::full) continue;
    for (const RecomputeMethod method : methods) {
      for (const int count : layers)
        all.push_back({granularity, method, method == RecomputeMethod::uniform ? std::max(1, count) : count});
    }
  }
  return all;
}

void read_recompute(const YamlValue& root, std::vector<Recompute>& list) {
  const auto given = root.find("recompute_granularity");
  const auto method = root.find("recompute_method");
  const auto layers = root.find("recompute_num_layers");
  const auto modules = root.find("recompute_modules");
  if (!given && !method && !layers && !modules) return;
  std::vector<RecomputeGranularity> granularities{RecomputeGranularity::none, RecomputeGranularity::full};
  if (given) read_items(*given, granularities, read_granularity);
  const bool full = std::count(granularities.begin(), granularities.end(), RecomputeGranularity::full) > 0;
  for (const auto& key : {method, layers}) {
    if (key && !full) key->fail("recompute_granularity with `full` beside it");
  }
  const bool selective =
      std::count(granularities.begin(), granularities.end(), RecomputeGranularity::selective) > 0;
  if (modules && !selective) modules->fail("recompute_granularity with `selective` beside it");
  std::vector<RecomputeModules> sets{RecomputeModules()};
  if (modules) read_items(*modules, sets, read_recompute_modules);
  const std::vector<int> counts = layers ? read_layer_counts(*layers) : std::vector<int>{1};
  // Only `block` has anything for auto to choose.
  std::vector<RecomputeMethod> methods{counts.front() == 0 ? RecomputeMethod::block
                                                           : RecomputeMethod::uniform};
  if (method) read_items(*method, methods, read_method);
  list = recomputes(granularities, sets, methods, counts);
}

// The most stages, or a list of numbers of them.
void read_stages(const YamlValue& root, SearchSpace& space) {
  constexpr std::int64_t kMostStages = 1024;
  const auto value = root.find("pipeline_model_parallel_size");
  if (!value) return;
  space.stages.clear();
  if (value->kind() != YamlValue::Kind::list) {
    space.most_stages = static_cast<int>(value->integer(1, kMostStages));
    return;
  }
  read_items(*value, space.stages,
             [](const YamlValue& item) { return static_cast<int>(item.integer(1, kMostStages)); });
  std::sort(space.stages.begin(), space.stages.end());
  space.most_stages = space.stages.back();
}

// `auto`, or a list of true and false.
void read_overlap(const YamlValue& root, const std::string& key, std::vector<std::optional<bool>>& list) {
  const auto value = root.find(key);
  if (!value) return;
  if (value->kind() != YamlValue::Kind::list && value->text() == "auto") {
    list = {std::nullopt};
    return;
  }
  read_items(*value, list, [](const YamlValue& item) { return std::optional<bool>(item.boolean()); });
}

// What is offloaded is so in each of the shares; by default, as in Megatron-LM, as a whole.
void read_offload(const YamlValue& root, std::vector<double>& list) {
  const auto offloads = root.find("optimizer_cpu_offload");
  const auto fractions = root.find("optimizer_offload_fraction");
  std::vector<bool> choices;
  if (offloads) read_items(*offloads, choices, [](const YamlValue& item) { return item.boolean(); });
  const bool any = std::count(choices.begin(), choices.end(), true) > 0;
  if (fractions && !any) fractions->fail("optimizer_cpu_offload with `true` beside it");
  if (!offloads) return;
  std::vector<double> shares{1.0};
  if (fractions) {
    read_items(*fractions, shares, [](const YamlValue& item) {
      const double share = item.number(0.0, 1.0);
      if (share == 0.0) item.fail("a share above 0, up to 1; optimizer_cpu_offload: [false] is none");
      return share;
    });
  }
  list.clear();
  for (const bool offload : choices) {
    if (offload)
      list.insert(list.end(), shares.begin(), shares.end());
    else
      list.push_back(0.0);
  }
}

}  // namespace

SearchSpace parse_space(const YamlValue& root, SearchSpace space) {
  root.allow_keys({"tensor_model_parallel_size",
                   "context_parallel_size",
                   "expert_model_parallel_size",
                   "expert_tensor_parallel_size",
                   "num_virtual_stages_per_pipeline_rank",
                   "micro_batch_size",
                   "pipeline_model_parallel_size",
                   "schedule",
                   "recompute_granularity",
                   "recompute_modules",
                   "recompute_method",
                   "recompute_num_layers",
                   "sequence_parallel",
                   "use_distributed_optimizer",
                   "num_distributed_optimizer_instances",
                   "use_megatron_fsdp",
                   "overlap_grad_reduce",
                   "overlap_param_gather",
                   "use_flash_attn",
                   "use_tp_pp_dp_mapping",
                   "tp_comm_overlap",
                   "overlap_p2p_comm",
                   "optimizer_cpu_offload",
                   "optimizer_offload_fraction",
                   "tensor_by_group",
                   "mix_replicas"});
  const auto ways = [](const YamlValue& item) { return static_cast<int>(item.integer(1, kMostWays)); };
  const auto yes_or_no = [](const YamlValue& item) { return item.boolean(); };
  read_list(root, "tensor_model_parallel_size", space.tensor, ways);
  if (const auto by_group = root.find("tensor_by_group")) space.tensor_by_group = by_group->boolean();
  if (const auto mix = root.find("mix_replicas")) space.mix_replicas = mix->boolean();
  read_list(root, "context_parallel_size", space.context, ways);
  read_list(root, "expert_model_parallel_size", space.expert, ways);
  read_list(root, "expert_tensor_parallel_size", space.expert_tensor,
            [&](const YamlValue& item) { return std::optional<int>(ways(item)); });
  read_list(root, "num_virtual_stages_per_pipeline_rank", space.chunks, ways);
  read_list(root, "micro_batch_size", space.micro_batch,
            [](const YamlValue& item) { return item.integer(1, kMostWays); });
  read_stages(root, space);
  read_list(root, "schedule", space.schedules, read_schedule);
  read_recompute(root, space.recompute);
  read_list(root, "sequence_parallel", space.sequence_parallel, yes_or_no);
  read_list(root, "use_distributed_optimizer", space.distributed_optimizer, yes_or_no);
  read_list(root, "num_distributed_optimizer_instances", space.optimizer_instances, ways);
  read_list(root, "use_megatron_fsdp", space.fully_sharded, yes_or_no);
  read_overlap(root, "overlap_grad_reduce", space.overlap_grad_reduce);
  read_overlap(root, "overlap_param_gather", space.overlap_param_gather);
  read_list(root, "use_tp_pp_dp_mapping", space.orders,
            [](const YamlValue& item) { return item.boolean() ? RankOrder::cp_pp_dp : RankOrder::cp_dp_pp; });
  read_list(root, "use_flash_attn", space.flash_attention, yes_or_no);
  read_list(root, "tp_comm_overlap", space.tensor_overlap,
            [](const YamlValue& item) { return std::optional<bool>(item.boolean()); });
  read_list(root, "overlap_p2p_comm", space.overlap_p2p, yes_or_no);
  read_offload(root, space.optimizer_offload);
  return space;
}

SearchSpace parse_space(std::string_view yaml, const std::string& file, const SearchSpace& space) {
  return parse_space(YamlValue::parse(yaml, file), space);
}

SearchSpace read_space(const std::string& path, const SearchSpace& space) {
  return parse_space(YamlValue::read_file(path), space);
}

SearchSpace default_space(const ModelSpec& model) {
  constexpr int kMostExpertWays = 64;
  SearchSpace space;
  if (!model.has_experts()) return space;
  for (int ways = 2; ways <= kMostExpertWays; ways *= 2) {
    const bool divides = std::all_of(model.shapes.begin(), model.shapes.end(), [&](const LayerShape& shape) {
      return shape.experts == 1 || shape.experts % ways == 0;
    });
    if (divides) space.expert.push_back(ways);
  }
  return space;
}

}  // namespace orrery
