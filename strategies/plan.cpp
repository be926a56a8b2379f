#include "strategies/plan.hpp"

#include <array>
#include <vector>

#include "platforms/yaml.hpp"
#include "strategies/schedule.hpp"

namespace orrery {
namespace {

// Far above any cluster, and small enough that products of degrees stay within 64 bits.
constexpr std::int64_t kMostWays = 1 << 16;
constexpr std::int64_t kMostHosts = 1 << 24;
constexpr std::int64_t kMostSequences = std::int64_t{1} << 32;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 32;

constexpr std::string_view kAuto = "auto";  // microbatches of a replica

constexpr std::array kTypes{DataType::fp32, DataType::tf32, DataType::fp16,
                            DataType::bf16, DataType::fp8,  DataType::fp4};
constexpr std::array kSchedules{ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                ScheduleKind::zb_h1, ScheduleKind::zb_h2,       ScheduleKind::zb_v};
constexpr std::array kTransfers{TransferMode::eager, TransferMode::blocking, TransferMode::overlapped};
constexpr std::array kGranularities{RecomputeGranularity::none, RecomputeGranularity::selective,
                                    RecomputeGranularity::full};
constexpr std::array kOrders{RankOrder::cp_dp_pp, RankOrder::cp_pp_dp, RankOrder::dp_cp_pp,
                             RankOrder::dp_pp_cp, RankOrder::pp_cp_dp, RankOrder::pp_dp_cp};
constexpr std::array kMethods{RecomputeMethod::uniform, RecomputeMethod::block};

const std::vector<std::string> kKeys{"model",
                                     "cluster",
                                     "stack",
                                     "data",
                                     "context",
                                     "expert",
                                     "expert_tensor",
                                     "chunks",
                                     "micro_batch",
                                     "sequence",
                                     "global_batch",
                                     "type",
                                     "schedule",
                                     "transfers",
                                     "nodes",
                                     "order",
                                     "hosts",
                                     "sequence_parallel",
                                     "distributed_optimizer",
                                     "optimizer_instances",
                                     "overlap_grad_reduce",
                                     "reduce_each_microbatch",
                                     "overlap_param_gather",
                                     "recompute",
                                     "flash_attention",
                                     "tensor_overlap",
                                     "optimizer_offload",
                                     "fully_sharded",
                                     "stages",
                                     "replicas",
                                     "parts"};

// Reads into `value` where the key is present; the strategy's own default stands otherwise.
template <class Integer>
void read_integer(const YamlValue& map, const std::string& key, std::int64_t high, Integer& value) {
  if (const auto entry = map.find(key)) value = static_cast<Integer>(entry->integer(1, high));
}

void read_boolean(const YamlValue& map, const std::string& key, bool& value) {
  if (const auto entry = map.find(key)) value = entry->boolean();
}

template <class Enum, std::size_t Count>
void read_choice(const YamlValue& map, const std::string& key, const std::array<Enum, Count>& choices,
                 Enum& value) {
  if (const auto entry = map.find(key)) value = entry->one_of_values(choices);
}

// Megatron-LM's default needs no word.
std::string modules_to_yaml(const Recompute& recompute) {
  if (recompute.modules == RecomputeModules()) return "";
  std::string list;
  for (const RecomputeModule module : kRecomputeModules) {
    if (!recompute.modules.has(module)) continue;
    list += (list.empty() ? "" : ", ") + std::string(to_text(module));
  }
  return ", modules: [" + list + "]";
}

Recompute read_recompute(const YamlValue& map) {
  map.allow_keys({"granularity", "method", "layers", "modules"});
  Recompute recompute;
  read_choice(map, "granularity", kGranularities, recompute.granularity);
  read_choice(map, "method", kMethods, recompute.method);
  read_integer(map, "layers", kMostWays, recompute.layers);
  if (const auto modules = map.find("modules")) recompute.modules = read_recompute_modules(*modules);
  return recompute;
}

StageDevices read_stage(const YamlValue& map) {
  map.allow_keys({"group", "tensor"});
  StageDevices stage;
  if (const auto group = map.find("group")) stage.group = static_cast<int>(group->integer(0, kMostWays));
  read_integer(map, "tensor", kMostWays, stage.tensor);
  return stage;
}

// microbatches: a number, or `auto` until the plan is priced.
ReplicaKind read_replica_kind(const YamlValue& map, std::size_t stages) {
  map.allow_keys({"count", "groups", "microbatches"});
  ReplicaKind kind;
  read_integer(map, "count", kMostWays, kind.count);
  for (const YamlValue& group : map.at("groups").items())
    kind.groups.push_back(static_cast<int>(group.integer(0, kMostWays)));
  if (kind.groups.size() != stages)
    map.at("groups").fail(std::to_string(stages) + " node groups, one for each stage");
  const YamlValue microbatches = map.at("microbatches");
  if (microbatches.text() != kAuto) kind.microbatches = microbatches.integer(1, kMostSequences);
  return kind;
}

// The stages name no group of their own then: they are those of the first replicas.
void read_replicas(const YamlValue& top, ParallelStrategy& strategy) {
  const auto list = top.find("replicas");
  if (!list) return;
  std::int64_t count = 0;
  for (const YamlValue& item : list->items()) {
    strategy.replicas.push_back(read_replica_kind(item, strategy.stages.size()));
    count += strategy.replicas.back().count;
  }
  if (count != strategy.data)
    list->fail("counts that add up to the " + std::to_string(strategy.data) + " replicas of `data`");
  for (const YamlValue& stage : top.at("stages").items()) {
    if (const auto group = stage.find("group")) group->fail("no group here: `replicas` names them");
  }
  for (std::size_t stage = 0; stage < strategy.stages.size(); ++stage)
    strategy.stages[stage].group = strategy.replicas.front().groups[stage];
}

LayerRange read_part(const YamlValue& value) {
  const auto items = value.items();
  if (items.size() != 2) value.fail("[first layer, number of layers]");
  return {static_cast<int>(items[0].integer(0, kMostWays)), static_cast<int>(items[1].integer(0, kMostWays))};
}

void read_lists(const YamlValue& top, ParallelStrategy& strategy) {
  for (const YamlValue& item : top.at("stages").items()) strategy.stages.push_back(read_stage(item));
  if (strategy.stages.empty()) top.at("stages").fail("at least one stage");
  strategy.pipeline = static_cast<int>(strategy.stages.size());
  read_replicas(top, strategy);
  for (const YamlValue& item : top.at("parts").items()) strategy.parts.push_back(read_part(item));
  mark_ends(strategy.parts);
  const std::int64_t parts = std::int64_t{strategy.pipeline} * strategy.chunks;
  if (parts != static_cast<std::int64_t>(strategy.parts.size()))
    top.at("parts").fail(std::to_string(parts) + " parts, one for each of the " +
                         std::to_string(strategy.chunks) + " chunks of " + std::to_string(strategy.pipeline) +
                         " stages");
  for (const YamlValue& item : top.at("nodes").items())
    strategy.nodes.push_back(static_cast<int>(item.integer(0, kMostWays)));
  if (const auto hosts = top.find("hosts")) {
    for (const YamlValue& item : hosts->items())
      strategy.hosts.push_back(static_cast<int>(item.integer(0, kMostHosts)));
  }
}

std::string line(const std::string& key, std::int64_t value) {
  return key + ": " + std::to_string(value) + "\n";
}
std::string line(const std::string& key, std::string_view value) {
  return key + ": " + std::string(value) + "\n";
}
std::string yes_or_no(const std::string& key, bool value) {
  return line(key, std::string_view(value ? "true" : "false"));
}

std::string replicas_to_yaml(const ParallelStrategy& strategy) {
  if (strategy.replicas.empty()) return {};
  std::string text =
      "replicas:  # how many, the node group of each stage, the microbatches of each of them\n";
  for (const ReplicaKind& kind : strategy.replicas) {
    std::string groups;
    for (const int group : kind.groups) groups += (groups.empty() ? "" : ", ") + std::to_string(group);
    text += "  - {count: " + std::to_string(kind.count) + ", groups: [" + groups + "], microbatches: " +
            (kind.microbatches == 0 ? std::string(kAuto) : std::to_string(kind.microbatches)) + "}\n";
  }
  return text;
}

std::string hosts_to_yaml(const ParallelStrategy& strategy) {
  if (strategy.hosts.empty()) return {};
  std::string text;
  for (const int host : strategy.hosts) text += (text.empty() ? "" : ", ") + std::to_string(host);
  return "hosts: [" + text + "]  # the node that stands for each node in rank order\n";
}

std::string lists_to_yaml(const ParallelStrategy& strategy) {
  std::string text = "nodes: [";
  for (std::size_t i = 0; i < strategy.nodes.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(strategy.nodes[i]);
  text += "]  # of each node group of the cluster\n" + hosts_to_yaml(strategy) +
          "stages:  # one a pipeline rank\n";
  for (const StageDevices& stage : strategy.stages) {
    const std::string group =
        strategy.replicas.empty() ? "group: " + std::to_string(stage.group) + ", " : std::string();
    text += "  - {" + group + "tensor: " + std::to_string(stage.tensor) + "}\n";
  }
  text += replicas_to_yaml(strategy);
  text +=
      "parts:  # [first layer, number of layers], in model order; part c * stages + s is chunk c of stage "
      "s\n";
  for (const LayerRange& part : strategy.parts)
    text += "  - [" + std::to_string(part.first) + ", " + std::to_string(part.count) + "]\n";
  return text;
}

}  // namespace

Plan read_plan(const std::string& path) {
  return parse_plan(read_text_file(path), path);
}

Plan parse_plan(std::string_view yaml, const std::string& file) {
  const YamlValue top = YamlValue::parse(yaml, file);
  top.allow_keys(kKeys);
  Plan plan;
  plan.model = top.at("model").text();
  plan.cluster = top.at("cluster").text();
  if (const auto stack = top.find("stack")) plan.stack = stack->text();
  ParallelStrategy& strategy = plan.strategy;
  read_integer(top, "data", kMostWays, strategy.data);
  read_integer(top, "context", kMostWays, strategy.context);
  read_integer(top, "expert", kMostWays, strategy.expert);
  read_integer(top, "chunks", kMostWays, strategy.chunks);
  read_integer(top, "micro_batch", kMostSequences, strategy.micro_batch);
  strategy.global_batch = top.at("global_batch").integer(1, kMostSequences);
  strategy.sequence = top.at("sequence").integer(1, kMostTokens);
  if (const auto ways = top.find("expert_tensor"))
    strategy.expert_tensor = static_cast<int>(ways->integer(1, kMostWays));
  read_choice(top, "type", kTypes, strategy.type);
  read_choice(top, "schedule", kSchedules, strategy.schedule);
  strategy.transfers = default_transfers(strategy.schedule);
  read_choice(top, "transfers", kTransfers, strategy.transfers);
  read_choice(top, "order", kOrders, strategy.order);
  read_boolean(top, "sequence_parallel", strategy.sequence_parallel);
  read_boolean(top, "distributed_optimizer", strategy.distributed_optimizer);
  read_integer(top, "optimizer_instances", kMostWays, strategy.optimizer_instances);
  read_boolean(top, "overlap_grad_reduce", strategy.overlap_grad_reduce);
  read_boolean(top, "reduce_each_microbatch", strategy.reduce_each_microbatch);
  read_boolean(top, "overlap_param_gather", strategy.overlap_param_gather);
  read_boolean(top, "flash_attention", strategy.flash_attention);
  if (const auto overlap = top.find("tensor_overlap")) strategy.tensor_overlap = overlap->boolean();
  if (const auto share = top.find("optimizer_offload")) strategy.optimizer_offload = share->number(0.0, 1.0);
  read_boolean(top, "fully_sharded", strategy.fully_sharded);
  if (const auto recompute = top.find("recompute")) strategy.recompute = read_recompute(*recompute);
  read_lists(top, strategy);
  return plan;
}

std::string to_yaml(const Plan& plan) {
  const ParallelStrategy& strategy = plan.strategy;
  const Recompute& recompute = strategy.recompute;
  return line("model", yaml_quoted(plan.model)) + line("cluster", yaml_quoted(plan.cluster)) +
         (plan.stack.empty() ? std::string() : line("stack", yaml_quoted(plan.stack))) +
         line("data", strategy.data) + line("context", strategy.context) + line("expert", strategy.expert) +
         (strategy.expert_tensor ? line("expert_tensor", *strategy.expert_tensor) : std::string()) +
         line("chunks", strategy.chunks) + line("micro_batch", strategy.micro_batch) +
         line("global_batch", strategy.global_batch) + line("sequence", strategy.sequence) +
         line("type", to_text(strategy.type)) + line("schedule", to_text(strategy.schedule)) +
         line("transfers", to_text(strategy.transfers)) + line("order", to_text(strategy.order)) +
         yes_or_no("sequence_parallel", strategy.sequence_parallel) +
         yes_or_no("distributed_optimizer", strategy.distributed_optimizer) +
         (strategy.optimizer_instances > 1 ? line("optimizer_instances", strategy.optimizer_instances)
                                           : std::string()) +
         yes_or_no("overlap_grad_reduce", strategy.overlap_grad_reduce) +
         (strategy.reduce_each_microbatch ? yes_or_no("reduce_each_microbatch", true) : std::string()) +
         yes_or_no("overlap_param_gather", strategy.overlap_param_gather) +
         yes_or_no("flash_attention", strategy.flash_attention) +
         (strategy.tensor_overlap ? yes_or_no("tensor_overlap", *strategy.tensor_overlap) : std::string()) +
         (strategy.optimizer_offload > 0
              ? line("optimizer_offload", shortest_text(strategy.optimizer_offload))
              : std::string()) +
         yes_or_no("fully_sharded", strategy.fully_sharded) +
         "recompute: {granularity: " + std::string(to_text(recompute.granularity)) +
         ", method: " + std::string(to_text(recompute.method)) +
         ", layers: " + std::to_string(recompute.layers) + modules_to_yaml(recompute) + "}\n" +
         lists_to_yaml(strategy);
}

}  // namespace orrery
