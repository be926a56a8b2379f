// Launch files: the plan as Megatron-LM arguments and a torchrun script, or the reasons why it cannot be run
// so.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "platforms/errors.hpp"
#include "strategies/megatron_parts.hpp"
#include "strategies/placement.hpp"
#include "strategies/schedule.hpp"

namespace orrery {
namespace {

// How an argument is written on the command line where it is not "--name value" or, when true, "--name".
struct Spelling {
  std::string_view name;
  std::string_view when_true;  // empty: nothing is written
  std::string_view when_false;
};

constexpr std::array kSpellings{
    Spelling{"add_bias_linear", "", "--disable-bias-linear"},
    Spelling{"bias_gelu_fusion", "", "--no-bias-gelu-fusion"},
    Spelling{"gradient_accumulation_fusion", "", "--no-gradient-accumulation-fusion"},
    Spelling{"overlap_p2p_comm", "", "--no-overlap-p2p-communication"},
    Spelling{"use_flash_attn", "--use-flash-attn", "--attention-backend unfused"},
};

// Not on the command line: Megatron-LM derives them.
constexpr std::array<std::string_view, 4> kDerived{"world_size", "data_parallel_size", "padded_vocab_size",
                                                   "num_virtual_stages_per_pipeline_rank"};

const Argument& value_of(const ArgumentTable& table, std::string_view name) {
  const auto entry =
      std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.first == name; });
  ORRERY_ENSURE(entry != table.end());
  return entry->second;
}

bool is_true(const ArgumentTable& table, std::string_view name) {
  const bool* value = std::get_if<bool>(&value_of(table, name));
  return value != nullptr && *value;
}

bool is_none(const ArgumentTable& table, std::string_view name) {
  return std::holds_alternative<std::monostate>(value_of(table, name));
}

// Flags that would be wrong beside the others.
bool is_written(const ArgumentTable& table, std::string_view name) {
  if (std::find(kDerived.begin(), kDerived.end(), name) != kDerived.end()) return false;
  if (name == "num_query_groups") return is_true(table, "group_query_attention");
  if (name == "expert_tensor_parallel_size")
    return value_of(table, name) != value_of(table, "tensor_model_parallel_size");
  if (name == "overlap_p2p_comm") return !is_none(table, "num_virtual_stages_per_pipeline_rank");
  if (name == "add_qkv_bias") return !is_true(table, "add_bias_linear");
  // Megatron-LM turns it off, with a warning, where there is nothing to split.
  if (name == "sequence_parallel") return std::get<double>(value_of(table, "tensor_model_parallel_size")) > 1;
  return true;
}

std::string flag_of(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string boolean_flag(std::string_view name, bool value) {
  for (const Spelling& spelling : kSpellings)
    if (spelling.name == name) return std::string(value ? spelling.when_true : spelling.when_false);
  return value ? flag_of(name) : std::string();
}

// Layouts and lists hold characters that bash would read.
std::string quoted(const std::string& text) {
  const bool plain = text.find_first_of("|*()[], ") == std::string::npos;
  return plain ? text : "'" + text + "'";
}

std::string number_text(double value) {
  const bool whole = value == std::round(value);
  return whole ? std::to_string(std::llround(value)) : shortest_text(value);
}

std::string command_line_flag(std::string_view name, const Argument& argument) {
  if (const bool* value = std::get_if<bool>(&argument)) return boolean_flag(name, *value);
  if (const double* value = std::get_if<double>(&argument)) return flag_of(name) + " " + number_text(*value);
  // Several words, each a value.
  if (name == "recompute_modules" && std::holds_alternative<std::string>(argument))
    return flag_of(name) + " " + std::get<std::string>(argument);
  if (const std::string* value = std::get_if<std::string>(&argument))
    return flag_of(name) + " " + quoted(*value);
  return {};
}

std::string command_line(const ArgumentTable& table) {
  std::string lines;
  for (const auto& [name, argument] : table) {
    if (!is_written(table, name)) continue;
    const std::string flag = command_line_flag(name, argument);
    if (!flag.empty()) lines += flag + "\n";
  }
  return lines;
}

// Ranks first_rank .. first_rank + ranks - 1 in one node.
struct LaunchNode {
  int group = 0;
  std::int64_t of_group = 0;  // number of the node in its group, in rank order
  std::int64_t first_rank = 0;
  std::int64_t ranks = 0;
  int first_stage = 0;
  int last_stage = 0;
};

// Runs of neighbouring ranks in one node, as place() lays them; replicas are alike.
std::vector<LaunchNode> launch_nodes(const ParallelStrategy& strategy, const ClusterSpec& cluster) {
  std::vector<LaunchNode> nodes;
  std::vector<std::int64_t> taken(cluster.groups.size(), 0);  // GPUs of each group
  std::int64_t rank = 0;
  for (const TensorGroup& at : tensor_groups(strategy)) {
    const int group = strategy.stages[static_cast<std::size_t>(at.stage)].group;
    const int capacity = cluster.groups[static_cast<std::size_t>(group)].gpus_per_node;
    for (int lane = 0; lane < strategy.tensor(at.stage); ++lane, ++rank) {
      const std::int64_t of_group = taken[static_cast<std::size_t>(group)]++ / capacity;
      if (nodes.empty() || nodes.back().group != group || nodes.back().of_group != of_group)
        nodes.push_back({group, of_group, rank, 0, at.stage, at.stage});
      LaunchNode& node = nodes.back();
      ++node.ranks;
      node.first_stage = std::min(node.first_stage, at.stage);
      node.last_stage = std::max(node.last_stage, at.stage);
    }
  }
  return nodes;
}

// The node of the cluster that stands for one of the launch: ", on a100.node3".
std::string host_text(const LaunchNode& node, const ParallelStrategy& strategy, const ClusterSpec& cluster) {
  if (strategy.hosts.empty()) return {};
  std::int64_t first = 0;  // node of the group
  for (int group = 0; group < node.group; ++group) first += strategy.nodes[static_cast<std::size_t>(group)];
  const int host = strategy.hosts[static_cast<std::size_t>(first + node.of_group)];
  return ", on " + cluster.groups[static_cast<std::size_t>(node.group)].name + ".node" +
         std::to_string(host - first);
}

std::string range(std::int64_t first, std::int64_t last) {
  return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
}

std::string rank_map_text(const std::vector<LaunchNode>& nodes, const ParallelStrategy& strategy,
                          const ClusterSpec& cluster) {
  std::string text;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const LaunchNode& node = nodes[i];
    const NodeGroup& group = cluster.groups[static_cast<std::size_t>(node.group)];
    text += "node " + std::to_string(i) + ": group " + group.name + " (" + group.gpu.name + "), ranks " +
            range(node.first_rank, node.first_rank + node.ranks - 1) + ", stages " +
            range(node.first_stage, node.last_stage) + host_text(node, strategy, cluster) + "\n";
  }
  return text;
}

std::string prefixed_lines(std::string_view text, std::string_view prefix) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    result += std::string(prefix) + std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

// GPUs of each node, as a bash list.
std::string processes_list(const std::vector<LaunchNode>& nodes) {
  std::string list;
  for (const LaunchNode& node : nodes) list += (list.empty() ? "" : " ") + std::to_string(node.ranks);
  return list;
}

struct Program {
  std::string_view file;  // of Megatron-LM
  RankOrder order;
  bool fully_sharded;
};

std::string script_text(const std::vector<LaunchNode>& nodes, const LaunchFiles& files,
                        const Program& program) {
  const std::string count = std::to_string(nodes.size());
  return "#!/usr/bin/env bash\n"
         "# Run on each of the " +
         count + " nodes, which must be numbered as below (rank order " +
         std::string(to_text(program.order)) +
         "):\n"
         "#   NODE_RANK=0 MASTER_ADDR=<host of node 0> MEGATRON_LM=<its folder> bash launch.sh <more "
         "arguments>\n"
         "# More arguments say what is not part of the plan: data, tokenizer, learning rate, --train-iters.\n"
         "#\n" +
         prefixed_lines(files.rank_map, "# ") +
         "set -euo pipefail\n"
         ": \"${MASTER_ADDR:?set it to the host name of node 0}\"\n"
         ": \"${NODE_RANK:?set it to the number of this node, 0 to " +
         std::to_string(nodes.size() - 1) +
         "}\"\n"
         ": \"${MEGATRON_LM:?set it to the folder of Megatron-LM}\"\n"
         "processes=(" +
         processes_list(nodes) +
         ")\n"
         "arguments=(\n" +
         prefixed_lines(files.arguments, "  ") +
         ")\n"
         // Megatron-LM refuses 1 beside FSDP (training/arguments.py).
         + (program.fully_sharded
                ? "unset CUDA_DEVICE_MAX_CONNECTIONS\n"
                : "export CUDA_DEVICE_MAX_CONNECTIONS=\"${CUDA_DEVICE_MAX_CONNECTIONS:-1}\"\n") +
         "exec torchrun --nnodes " + count +
         " --node-rank \"$NODE_RANK\" \\\n"
         "  --nproc-per-node \"${processes[$NODE_RANK]}\" \\\n"
         "  --master-addr \"$MASTER_ADDR\" --master-port \"${MASTER_PORT:-29500}\" \\\n"
         "  \"$MEGATRON_LM/" +
         std::string(program.file) + "\" \"${arguments[@]}\" \"$@\"\n";
}

// A window is a band of half its tokens (huggingface_windows.cpp): one of the sequence or more is none.
ModelSpec without_idle_windows(ModelSpec model, std::int64_t sequence) {
  for (LayerShape& shape : model.shapes)
    if (shape.attention_window >= 2 * sequence) shape.attention_window = 0;
  return model;
}

Gaps tensor_gaps(const ParallelStrategy& strategy) {
  for (int stage = 1; stage < strategy.pipeline; ++stage)
    if (strategy.tensor(stage) != strategy.tensor(0))
      return {"stage 0 has " + std::to_string(strategy.tensor(0)) + " tensor-parallel ways and stage " +
              std::to_string(stage) + " has " + std::to_string(strategy.tensor(stage)) +
              "; Megatron-LM has one --tensor-model-parallel-size for all stages"};
  return {};
}

// torchrun numbers ranks node by node, so a node cannot hold ranks from two places in the pipeline's order.
Gaps placement_gaps(const ParallelStrategy& strategy, const ClusterSpec& cluster) {
  std::set<std::pair<int, std::int64_t>> seen;
  std::set<int> broken;  // groups
  for (const LaunchNode& node : launch_nodes(strategy, cluster)) {
    if (!seen.emplace(node.group, node.of_group).second) broken.insert(node.group);
  }
  Gaps gaps;
  for (const int group : broken)
    gaps.push_back("the stages of group " + cluster.groups[static_cast<std::size_t>(group)].name +
                   " share nodes although stages of another " +
                   "group stand between them; torchrun numbers the ranks of a node in one run");
  return gaps;
}

// Megatron-LM training/initialize.py gives initialize_model_parallel one of two orders. With ranks of the
// pipeline before those of the data, core/parallel_state.py wants as many replicas of experts as of the rest.
Gaps order_gaps(const ParallelStrategy& strategy) {
  if (strategy.order == RankOrder::cp_dp_pp) return {};
  if (strategy.order != RankOrder::cp_pp_dp)
    return {"the rank order is " + std::string(to_text(strategy.order)) +
            "; Megatron-LM's arguments have tp-cp-ep-dp-pp and, with --use-tp-pp-dp-mapping, tp-cp-ep-pp-dp"};
  if (strategy.expert > 1 && strategy.pipeline > 1)
    return {
        "experts are spread over replicas in the rank order tp-cp-ep-pp-dp; Megatron-LM has that in "
        "tp-cp-ep-dp-pp"};
  return {};
}

// Megatron-LM core/num_microbatches_calculator.py: global batch / (micro batch x data-parallel size) for all.
Gaps replica_gaps(const ParallelStrategy& strategy, const ClusterSpec& cluster) {
  if (strategy.replicas.empty()) return placement_gaps(strategy, cluster);
  for (const ReplicaKind& kind : strategy.replicas)
    if (kind.microbatches != strategy.replicas.front().microbatches || strategy.shares_open())
      return {
          "replicas have unequal numbers of microbatches, and the mean of their gradients must be weighted "
          "by them; Megatron-LM gives every replica the same number"};
  return {
      "replicas run on different groups of nodes; the ranks of one stage then lie on nodes that torchrun "
      "cannot number in one run"};
}

Gaps strategy_gaps(const ModelSpec& model, const ParallelStrategy& strategy) {
  Gaps gaps;
  if (strategy.schedule == ScheduleKind::gpipe && strategy.pipeline > 1)
    gaps.emplace_back("the schedule is gpipe; Megatron-LM has 1f1b and interleaved");
  if (splits_backward(strategy.schedule)) {
    gaps.push_back(
        "the schedule is " + std::string(to_text(strategy.schedule)) +
        ", which runs weight gradients apart from the backward; Megatron-LM has 1f1b and interleaved");
  }
  if (strategy.schedule == ScheduleKind::zb_v)
    gaps.emplace_back(
        "zb-v has the first and the last layers on pipeline rank 0; Megatron-LM has them on the "
        "first and the last rank");
  if (validates_later(strategy.schedule))
    gaps.emplace_back(
        "zb-h2 and zb-v take the optimizer step before the gradient norm of all ranks is known; "
        "Megatron-LM waits for it");
  if (strategy.reduce_each_microbatch)
    gaps.emplace_back("gradients are reduced after every microbatch; Megatron-LM reduces them once a step");
  if (strategy.fully_sharded && strategy.pipeline > 1)
    gaps.emplace_back(
        "fully sharded weights are gathered once a step in this pipeline, as torchtitan does; Megatron-FSDP "
        "gathers them in every pass");
  // core/pipeline_parallel/schedules.py: 1F1B waits for each message; virtual stages may have them beside
  // compute.
  const bool waits = strategy.chunks == 1 && !splits_backward(strategy.schedule);
  if (strategy.pipeline > 1 && (strategy.transfers == TransferMode::eager ||
                                (waits && strategy.transfers == TransferMode::overlapped)))
    gaps.push_back("messages between stages are " + std::string(to_text(strategy.transfers)) +
                   "; Megatron-LM has them " + (waits ? "blocking" : "overlapped, or blocking"));
  // training/arguments.py: two ranks would send each other several messages at once.
  if (strategy.chunks > 1 && strategy.transfers == TransferMode::blocking && strategy.pipeline == 2)
    gaps.emplace_back("virtual stages on two ranks wait for messages; Megatron-LM has that from three on");
  if (strategy.type == DataType::tf32)
    gaps.emplace_back("the data type is tf32; Megatron-LM trains in fp32, fp16, bf16, fp8 or fp4");
  const bool uneven = std::any_of(strategy.parts.begin(), strategy.parts.end(), [&](const LayerRange& part) {
    return part.count != strategy.parts.front().count;
  });
  if (model.is_hybrid() && (uneven || strategy.chunks > 1))
    gaps.emplace_back(
        "a hybrid model in unequal parts or with virtual stages; Megatron-LM splits it evenly, one part a "
        "rank");
  if (model.has_experts() && strategy.tensor(0) > 1 && !strategy.sequence_parallel)
    gaps.emplace_back("experts with tensor parallelism need sequence parallelism in Megatron-LM");
  return gaps;
}

// --moe-grouped-gemm asserts compute capability 8 (training/arguments.py).
Gaps kernel_gaps(const ModelSpec& model, const ParallelStrategy& strategy, const ClusterSpec& cluster) {
  constexpr std::array<std::string_view, 3> kOlder{"Pascal", "Volta", "Turing"};
  if (!model.has_experts()) return {};
  for (const StageDevices& stage : strategy.stages) {
    const GpuSpec& gpu = cluster.groups[static_cast<std::size_t>(stage.group)].gpu;
    if (std::find(kOlder.begin(), kOlder.end(), gpu.architecture) != kOlder.end())
      return {
          "matrices of experts run in groups, which Megatron-LM has for compute capability 8 and later; " +
          gpu.name + " is older"};
  }
  return {};
}

}  // namespace

std::vector<std::string> megatron_gaps(const ModelSpec& model, const ParallelStrategy& strategy,
                                       const ClusterSpec& cluster) {
  Gaps gaps = megatron_model_gaps(without_idle_windows(model, strategy.sequence));
  for (const Gaps& more : {strategy_gaps(model, strategy), tensor_gaps(strategy), order_gaps(strategy),
                           replica_gaps(strategy, cluster), kernel_gaps(model, strategy, cluster)})
    gaps.insert(gaps.end(), more.begin(), more.end());
  return gaps;
}

std::variant<LaunchFiles, std::vector<std::string>> launch_files(const ModelSpec& model,
                                                                 const ParallelStrategy& strategy,
                                                                 const ClusterSpec& cluster) {
  Gaps gaps = megatron_gaps(model, strategy, cluster);
  if (!gaps.empty()) return gaps;
  const auto nodes = launch_nodes(strategy, cluster);
  LaunchFiles files;
  files.arguments = command_line(megatron_arguments(model, strategy));
  files.rank_map = rank_map_text(nodes, strategy, cluster);
  const bool hybrid = model.is_hybrid();
  if (hybrid) files.arguments += "--spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec\n";
  files.script =
      script_text(nodes, files,
                  {hybrid ? "pretrain_mamba.py" : "pretrain_gpt.py", strategy.order, strategy.fully_sharded});
  return files;
}

}  // namespace orrery
