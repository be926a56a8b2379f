#include "strategies/search_space.hpp"

#include <algorithm>
#include <array>

namespace orrery {
namespace {

constexpr std::int64_t kMostWays = 65'536;

// A list without repeats, or a single value.
template <class T, class Read>
void read_list(const YamlValue& root, const std::string& key, std::vector<T>& list, Read read) {
  const auto value = root.find(key);
  if (!value) return;
  const std::vector<YamlValue> items =
      value->kind() == YamlValue::Kind::list ? value->items() : std::vector<YamlValue>{*value};
  if (items.empty()) value->fail("at least one choice");
  list.clear();
  for (const YamlValue& item : items) {
    const T choice = read(item);
    if (std::find(list.begin(), list.end(), choice) != list.end()) item.fail("each choice once");
    list.push_back(choice);
  }
}

ScheduleKind read_schedule(const YamlValue& item) {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zb_h1,
                                  ScheduleKind::zb_h2, ScheduleKind::zb_v}) {
    if (item.text() == to_text(kind)) return kind;
  }
  item.fail(
      "gpipe, 1f1b, zb-h1, zb-h2 or zb-v (interleaved comes with num_virtual_stages_per_pipeline_rank)");
}

Recompute read_recompute(const YamlValue& item) {
  for (const RecomputeGranularity granularity :
       {RecomputeGranularity::none, RecomputeGranularity::selective, RecomputeGranularity::full}) {
    if (item.text() == to_text(granularity)) return {granularity, RecomputeMethod::uniform, 1};
  }
  item.fail("none, selective or full");
}

}  // namespace

SearchSpace parse_space(const YamlValue& root) {
  root.allow_keys({"tensor_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
                   "num_virtual_stages_per_pipeline_rank", "micro_batch_size", "pipeline_model_parallel_size",
                   "schedule", "recompute_granularity", "sequence_parallel", "use_distributed_optimizer",
                   "overlap_grad_reduce", "overlap_param_gather", "use_tp_pp_dp_mapping"});
  const auto ways = [](const YamlValue& item) { return static_cast<int>(item.integer(1, kMostWays)); };
  const auto yes_or_no = [](const YamlValue& item) { return item.boolean(); };
  SearchSpace space;
  read_list(root, "tensor_model_parallel_size", space.tensor, ways);
  read_list(root, "context_parallel_size", space.context, ways);
  read_list(root, "expert_model_parallel_size", space.expert, ways);
  read_list(root, "num_virtual_stages_per_pipeline_rank", space.chunks, ways);
  read_list(root, "micro_batch_size", space.micro_batch,
            [](const YamlValue& item) { return item.integer(1, kMostWays); });
  if (const auto most = root.find("pipeline_model_parallel_size")) {
    space.most_stages = static_cast<int>(most->integer(1, 1024));
  }
  read_list(root, "schedule", space.schedules, read_schedule);
  read_list(root, "recompute_granularity", space.recompute, read_recompute);
  read_list(root, "sequence_parallel", space.sequence_parallel, yes_or_no);
  read_list(root, "use_distributed_optimizer", space.distributed_optimizer, yes_or_no);
  read_list(root, "overlap_grad_reduce", space.overlap_grad_reduce, yes_or_no);
  read_list(root, "overlap_param_gather", space.overlap_param_gather, yes_or_no);
  read_list(root, "use_tp_pp_dp_mapping", space.orders,
            [](const YamlValue& item) { return item.boolean() ? RankOrder::cp_pp_dp : RankOrder::cp_dp_pp; });
  return space;
}

SearchSpace parse_space(std::string_view yaml, const std::string& file) {
  return parse_space(YamlValue::parse(yaml, file));
}

SearchSpace read_space(const std::string& path) {
  return parse_space(YamlValue::read_file(path));
}

}  // namespace orrery
