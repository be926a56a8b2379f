#include "sim/measured/measured_plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

#include "costmodels/memory/memory.hpp"
#include "platforms/errors.hpp"
#include "sim/measured/bridge_recipes.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/measured_dates.hpp"
#include "sim/measured/measured_parts.hpp"
#include "sim/measured/measured_stack.hpp"
#include "sim/measured/measured_stages.hpp"
#include "sim/measured/measured_trainers.hpp"
#include "sim/measured/measured_ways.hpp"
#include "sim/measured/measured_words.hpp"
#include "sim/measured/said_kernels.hpp"
#include "sim/measured/sixteen_bit_layers.hpp"
#include "strategies/placement.hpp"
#include "strategies/plan.hpp"
#include "strategies/schedule.hpp"

namespace orrery {
namespace {

std::variant<DataType, Unmapped> data_type(const MeasuredRun& run, const GpuSpec& gpu,
                                           std::vector<std::string>& assumptions) {
  const std::string text = run.text("precision");
  if (const auto said = said_type(text)) return *said;
  if (!text.empty())
    return Unmapped{"precision " + quote_for_message(text) + ", not fp32, tf32, fp16, bf16, fp8 or fp4"};
  const bool bf16 = gpu.bf16 && gpu.architecture != "Ampere";
  assumptions.emplace_back(bf16 ? "bf16" : "fp16");
  return bf16 ? DataType::bf16 : DataType::fp16;
}

Recompute recompute_of(const MeasuredRun& run, const SaidWords& words, int pipeline,
                       std::vector<std::string>& assumptions) {
  if (words.recompute && words.recompute->layers && pipeline > 1)
    assumptions.push_back("recomputes " + run.text("recompute") + ": the first of each part");
  Recompute recompute;
  if (words.recompute) return words.recompute->recompute;
  const auto modules = bridge_recomputes(run);
  if (modules) {
    recompute.granularity = RecomputeGranularity::selective;
    recompute.modules = *modules;
    assumptions.push_back("recomputes " + to_text(*modules) + ", as its recipe");
  } else if (run.text("framework").starts_with("torchtitan")) {
    // SelectiveAC of its smaller models (pytorch/torchtitan b5bcd76c6,
    // torchtitan/models/llama3/config_registry.py and qwen3's); read after errors of torchtitan-gb200 had
    // been seen.
    recompute.granularity = RecomputeGranularity::selective;
    assumptions.emplace_back("recomputes selectively, as its configurations");
  } else {
    assumptions.emplace_back("no recomputation");
  }
  return recompute;
}

// By the start of its name, in lower case without spaces and hyphens. PipeDream-Flush (arXiv 2006.09503) and
// DAPPLE (arXiv 2007.01045) are other names of 1F1B.
struct NamedSchedule {
  std::string_view start;
  ScheduleKind kind;
};
constexpr std::array kSchedules{
    NamedSchedule{"1f1bi", ScheduleKind::interleaved},
    NamedSchedule{"interleaved", ScheduleKind::interleaved},
    NamedSchedule{"1f1b", ScheduleKind::one_f_one_b},
    NamedSchedule{"pipedreamflush", ScheduleKind::one_f_one_b},
    NamedSchedule{"dapple", ScheduleKind::one_f_one_b},
    NamedSchedule{"gpipe", ScheduleKind::gpipe},
    NamedSchedule{"zbh1", ScheduleKind::zb_h1},
    NamedSchedule{"zbh2", ScheduleKind::zb_h2},
    NamedSchedule{"zbv", ScheduleKind::zb_v},
    NamedSchedule{"dualpipev", ScheduleKind::zb_v},
    NamedSchedule{"zb1p", ScheduleKind::zb_h1},
    NamedSchedule{"zb2p", ScheduleKind::zb_h2},
};

// Absent where the row does not say, or without a pipeline.
std::variant<std::optional<ScheduleKind>, Unmapped> said_schedule(const MeasuredRun& run, int pipeline,
                                                                  std::vector<std::string>& assumptions) {
  const std::string text = pipeline > 1 ? run.text("schedule") : "";
  const std::string name = letters_and_digits(text);
  if (name.empty()) return std::nullopt;
  const NamedSchedule* found = row_starting(kSchedules, name);
  if (found == nullptr) return Unmapped{"schedule " + text};
  if (found->kind == ScheduleKind::interleaved && run.integer("vpp") == 1)
    return Unmapped{"schedule " + quote_for_message(text) + " with vpp 1: of how many virtual stages?"};
  // arXiv 2401.10241, sections 2 and 3.
  if (found->start == "zb1p" || found->start == "zb2p")
    assumptions.push_back(text + ", made for measured times, as the schedule by hand of as much memory");
  // V-shaped too, of as many chunks (deepseek-ai/DualPipe, README); its pairs of passes are not overlapped.
  if (found->start == "dualpipev") assumptions.push_back(text + " as zb-v");
  return found->kind;
}

// What a row leaves open takes values that it can have had: the least, the most and, at least doubled each
// time, those between.
std::vector<int> possible_chunks(const MeasuredRun& run, const MeasuredPlan& plan, int pipeline,
                                 std::optional<ScheduleKind> schedule,
                                 std::vector<std::string>& assumptions) {
  const int layers = plan.model.layer_count();
  if (pipeline == 1) return {1};
  if (schedule == ScheduleKind::zb_v) return {2};
  if (const auto given = run.integer("vpp", layers)) return {static_cast<int>(*given)};
  const bool said = schedule == ScheduleKind::interleaved;
  if (!plan.stack.may_interleave && !said) {
    assumptions.emplace_back("no virtual stages, the default of " + plan.stack.name);
    return {1};
  }
  if (schedule && !said) return {1};
  if (const std::string partition = run.text("layer_partition"); !partition.empty())
    return {std::max(1, said_parts(partition).value_or(1) / pipeline)};
  const int most = std::max(1, (layers + 2) / pipeline);
  const int least = said && most > 1 ? 2 : 1;
  std::vector<int> possible{least};
  for (int chunks = least + 1; chunks <= most; ++chunks) {
    const bool divides = layers % (pipeline * chunks) == 0 || (layers + 2) % (pipeline * chunks) == 0;
    if (!divides) continue;
    if (possible.size() > 1 && possible.back() < 2 * *std::prev(possible.end(), 2)) possible.pop_back();
    possible.push_back(chunks);
  }
  if (possible.size() > 1)
    assumptions.push_back("virtual stages: " + std::to_string(least) + " to " +
                          std::to_string(possible.back()) + kOfFastest);
  else if (!said)
    assumptions.emplace_back("no virtual stages, of which more do not divide the layers");
  return possible;
}

std::vector<std::int64_t> possible_micro_batches(const MeasuredRun& run, std::int64_t of_replica,
                                                 std::vector<std::string>& assumptions) {
  if (const auto given = run.integer("mbs")) return {*given};
  constexpr std::int64_t kMost = 8;
  std::vector<std::int64_t> sizes{1};
  while (2 * sizes.back() <= kMost && of_replica % (2 * sizes.back()) == 0) sizes.push_back(2 * sizes.back());
  assumptions.push_back("microbatch: 1 to " + std::to_string(sizes.back()) + kOfFastest);
  return sizes;
}

// As given; 1 in all recipes of Megatron-Bridge (expert_tensor_parallel_size); else those of the stage,
// Megatron-LM's default, unless expert ways then cannot be spread over context ranks and replicas.
std::optional<int> tensor_of_experts(const MeasuredRun& run, const ParallelStrategy& strategy,
                                     std::vector<std::string>& assumptions) {
  const int tensor = strategy.tensor(0), expert = strategy.expert;
  if (const auto given = run.integer("etp", 1 << 17)) return static_cast<int>(*given);
  if (expert == 1 || !strategy.sequence_parallel) return std::nullopt;
  if (is_bridge(run)) return 1;
  const auto spread = [&](int sharing) {
    return experts_spread_evenly(sharing, strategy.context, strategy.data);
  };
  if (spread(expert) || expert % tensor != 0 || !spread(expert / tensor)) return std::nullopt;
  assumptions.emplace_back("experts not split over tensor ranks, their ways could not be spread otherwise");
  return 1;
}

// As given; of HYBRID_SHARD one a node, PyTorch's default.
int optimizer_instances(const MeasuredRun& run, const SaidWords& words, const ParallelStrategy& strategy,
                        int gpus_per_node, std::vector<std::string>& assumptions) {
  if (const auto given = run.integer("optimizer_instances", 1 << 17)) return static_cast<int>(*given);
  if (words.sharding != Sharding::weights_in_node) return 1;
  const int of_node = std::max(1, gpus_per_node / strategy.tensor(0));
  const int copies = strategy.data * strategy.context;
  if (copies <= of_node) return 1;
  assumptions.emplace_back("weights sharded within each node");
  return copies / of_node;
}

// Megatron-Core has fused attention with sinks since its commit dbc4129d18 of 8 September 2025. Looked for
// after seeing a run of NeMo that ran out of memory.
bool is_before_fused_sinks(const MeasuredRun& run, const ModelSpec& model) {
  constexpr double kFusedSinks = 2025.69;
  const double date = date_of_program(run);
  const bool has_sinks = std::any_of(model.shapes.begin(), model.shapes.end(),
                                     [](const LayerShape& shape) { return shape.attention_sinks; });
  const bool of_nvidia = says_any(lower_case(run.text("framework")), {"megatron", "nemo"});
  return has_sinks && of_nvidia && date > 0 && date < kFusedSinks;
}

void set_switches(const MeasuredRun& run, const SoftwareStack& stack, const SaidWords& words,
                  const ModelSpec& model, ParallelStrategy& strategy) {
  strategy.sequence_parallel =
      strategy.tensor(0) > 1 && words.sequence_parallel.value_or(stack.sequence_parallel);
  const bool kept = words.sharding == Sharding::none || words.sharding == Sharding::optimizer;
  const bool sharded =
      !kept && (shards_weights(stack, words) || stack.whole_weights || bridge_shards_weights(run));
  strategy.fully_sharded = sharded;
  strategy.distributed_optimizer =
      sharded || (words.sharding ? *words.sharding != Sharding::none : stack.distributed_optimizer);
  strategy.optimizer_offload = words.optimizer_offload;
  strategy.overlap_grad_reduce = stack.overlap_grad_reduce && !sharded;
  // DistributedDataParallel without its no_sync.
  strategy.reduce_each_microbatch = strategy.pipeline == 1 && !strategy.distributed_optimizer &&
                                    said(framework_and_note(run), {"nosync"}) == Said::no;
  strategy.overlap_param_gather =
      stack.overlap_param_gather && strategy.overlap_grad_reduce && strategy.distributed_optimizer;
  const bool fuses = stack.flash_attention && !is_before_fused_sinks(run, model);
  strategy.flash_attention = words.flash_attention.value_or(fuses);
}

ParallelStrategy strategy_of(const MeasuredPlan& plan, const Degrees& ways, DataType type) {
  ParallelStrategy strategy;
  strategy.pipeline = ways.pipeline;
  strategy.data = ways.data;
  strategy.context = ways.context;
  strategy.expert = ways.expert;
  strategy.type = type;
  strategy.sequence = plan.model.default_sequence;
  strategy.stages.assign(static_cast<std::size_t>(ways.pipeline), {.group = 0, .tensor = ways.tensor});
  for (const NodeGroup& group : plan.cluster.groups) strategy.nodes.push_back(group.count.maximum);
  return strategy;
}

// What keeps a strategy whose layers are still to be dealt from running; else it has its layers.
std::optional<Unmapped> deal_layers(const MeasuredRun& run, const SaidWords& words, const MeasuredPlan& plan,
                                    ParallelStrategy& strategy) {
  const int layers = plan.model.layer_count();
  std::string cuts = strategy.part_count() > 1 ? run.text("layer_partition") : "";
  if (starts_with_any(lower_case(cuts), {"even", "uniform", "equal", "balanced"})) cuts.clear();
  if (cuts.empty()) cuts = bridge_cuts(run, plan.model, strategy.part_count());
  auto parts = said_partition(cuts, layers);
  if (!parts && plan.model.main_layers() < layers) {
    // What predicts more tokens stands after the last.
    parts = said_partition(cuts, plan.model.main_layers());
    if (parts) parts->back().count += layers - plan.model.main_layers();
  }
  if (!cuts.empty() && !parts)
    return Unmapped{
        "layer_partition " + quote_for_message(cuts) +
        ", not the layers of each part ('20,12'), nor those before each and all ('0;20;32'), nor a "
        "layout as Megatron-LM's ('Et*20|t*12L')"};
  strategy.parts = parts ? *parts : usual_parts(layers, strategy.part_count(), plan.stack);
  if (words.recompute && words.recompute->layers) {
    const auto some = recompute_of_parts(strategy.recompute, *words.recompute->layers, strategy.parts);
    if (!some)
      return Unmapped{"recompute " + quote_for_message(run.text("recompute")) + ": of which layers?"};
    strategy.recompute = *some;
  }
  if (const auto obstacle = check_shape(plan.model, strategy, plan.cluster))
    return Unmapped{obstacle->reason};
  constexpr std::int64_t kMostSteps = 20'000'000;  // of a schedule: a second and a gigabyte
  if (strategy.microbatches() * strategy.part_count() > kMostSteps)
    return Unmapped{"a schedule of too many steps"};
  return std::nullopt;
}

// The strategy with every microbatch and number of virtual stages that the row leaves open.
std::variant<std::vector<ParallelStrategy>, Unmapped> possible_strategies(
    const MeasuredRun& run, const SaidWords& words, MeasuredPlan& plan, const ParallelStrategy& strategy,
    std::optional<ScheduleKind> schedule) {
  std::vector<ParallelStrategy> possible;
  Unmapped trouble;
  const std::int64_t of_replica = std::max<std::int64_t>(1, strategy.global_batch / strategy.data);
  const auto micro_batches = possible_micro_batches(run, of_replica, plan.assumptions);
  const auto all_chunks = possible_chunks(run, plan, strategy.pipeline, schedule, plan.assumptions);
  for (const std::int64_t micro_batch : micro_batches) {
    for (const int chunks : all_chunks) {
      ParallelStrategy one = strategy;
      one.micro_batch = micro_batch;
      one.chunks = chunks;
      for (ReplicaKind& kind : one.replicas) kind.microbatches = of_replica / micro_batch;
      one.schedule = chunks > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
      if (schedule && (splits_backward(*schedule) || *schedule == ScheduleKind::gpipe))
        one.schedule = *schedule;
      one.transfers = default_transfers(one.schedule);
      if (const auto obstacle = deal_layers(run, words, plan, one))
        trouble = *obstacle;
      else
        possible.push_back(std::move(one));
    }
  }
  if (possible.empty()) return trouble;
  return possible;
}

std::optional<Unmapped> status_obstacle(const MeasuredRun& run) {
  const auto status = run.status();
  if (!status)
    return Unmapped{"status " + quote_for_message(run.text("status")) +
                    ", neither ok, OOM, failed nor inconsistent"};
  if (status == RunStatus::doubted) return Unmapped{"status: " + run.text("status")};
  // Transfers over PCIe and Adam on the processor, of which the model knows nothing.
  if (says(run.text("source_location"), "Full Offload")) return Unmapped{kOffloaded};
  if (says(run.text("model"), "SFT") || says(run.text("model"), "LoRA")) return Unmapped{"fine-tuning"};
  return std::nullopt;
}

// Its program, model and cluster; its strategies are still to come.
std::variant<MeasuredPlan, Unmapped> surroundings_of(const MeasuredRun& run,
                                                     const std::optional<SoftwareStack>& stack_override) {
  MeasuredPlan plan;
  const auto stack = stack_override ? stack_override : stack_of_run(run, plan.assumptions);
  if (!stack) return Unmapped{"no framework"};
  plan.stack = *stack;
  use_said_optimizer(run, plan.stack, plan.assumptions);
  auto model = model_of_run(run, plan.assumptions);
  if (const auto* trouble = std::get_if<Unmapped>(&model)) return *trouble;
  plan.model = std::get<ModelSpec>(std::move(model));
  use_said_loads(run, plan.model, plan.stack.experts.load);
  keep_sixteen_bits(run, plan.model);
  if (const auto sequence = run.integer("seq")) plan.model.default_sequence = *sequence;
  auto cluster = cluster_of_run(run, plan.assumptions);
  if (const auto* trouble = std::get_if<Unmapped>(&cluster)) return *trouble;
  plan.cluster = std::get<MeasuredCluster>(cluster).cluster;
  plan.networks = std::get<MeasuredCluster>(cluster).networks;
  plan.stack.network.collectives *= node_collectives(run, plan.cluster, plan.assumptions);
  return plan;
}

// Of a row that says its microbatch and has no pipeline to fill: one microbatch a replica. A rate or a peak
// hardly tell one from many; a time would.
std::optional<std::int64_t> global_batch(const MeasuredRun& run, const Degrees& degrees,
                                         std::vector<std::string>& assumptions) {
  if (const auto said = run.integer("gbs")) return said;
  const auto micro_batch = run.integer("mbs");
  if (!micro_batch || degrees.pipeline != 1 || run.number("iter_time_s")) return std::nullopt;
  assumptions.emplace_back("one microbatch a replica, as no global batch is said");
  return *micro_batch * degrees.data;
}

// What the row says, but for the microbatch, the schedule and where stages and layers are.
std::variant<ParallelStrategy, Unmapped> said_strategy(const MeasuredRun& run, const SaidWords& words,
                                                       const Degrees& degrees, MeasuredPlan& plan) {
  // DeepSpeed's engine for pipelines refuses ZeRO-2 (deepspeed/runtime/pipe/engine.py).
  if (words.sharding == Sharding::gradients && degrees.pipeline == 1) keep_weights_whole(plan.stack);
  const NodeGroup& nodes = plan.cluster.groups.front();
  const auto type = data_type(run, nodes.gpu, plan.assumptions);
  if (const auto* trouble = std::get_if<Unmapped>(&type)) return *trouble;
  const auto batch = global_batch(run, degrees, plan.assumptions);
  if (!batch) return Unmapped{"no global batch"};
  ParallelStrategy strategy = strategy_of(plan, degrees, std::get<DataType>(type));
  strategy.global_batch = *batch;
  strategy.recompute = recompute_of(run, words, degrees.pipeline, plan.assumptions);
  set_switches(run, plan.stack, words, plan.model, strategy);
  strategy.optimizer_instances =
      optimizer_instances(run, words, strategy, nodes.gpus_per_node, plan.assumptions);
  strategy.expert_tensor = tensor_of_experts(run, strategy, plan.assumptions);
  return strategy;
}

// All that a row allows of its plan in these ways.
std::variant<std::vector<ParallelStrategy>, Unmapped> strategies_in(const Degrees& degrees,
                                                                    const MeasuredRun& run,
                                                                    const SaidWords& words,
                                                                    MeasuredPlan& plan) {
  auto said = said_strategy(run, words, degrees, plan);
  if (const auto* trouble = std::get_if<Unmapped>(&said)) return *trouble;
  auto& strategy = std::get<ParallelStrategy>(said);
  if (const auto chunks = run.integer("vpp"); strategy.pipeline == 1 && chunks.value_or(1) > 1)
    return Unmapped{"vpp " + run.text("vpp") + " without a pipeline (pp 1)"};
  const auto schedule = said_schedule(run, strategy.pipeline, plan.assumptions);
  if (const auto* trouble = std::get_if<Unmapped>(&schedule)) return *trouble;
  if (const std::string cell = run.text("stage_groups"); !cell.empty()) {
    if (const auto trouble = place_stages(cell, plan.cluster, strategy)) return Unmapped{*trouble};
    strategy.nodes = nodes_in_use(strategy, plan.cluster);
  }
  return possible_strategies(run, words, plan, strategy, std::get<std::optional<ScheduleKind>>(schedule));
}

// In all ways that it allows. What is assumed is said of the first that can be.
std::variant<std::vector<ParallelStrategy>, Unmapped> all_strategies(const MeasuredRun& run,
                                                                     const SaidWords& words,
                                                                     MeasuredPlan& plan) {
  const auto ways = degrees_of(run, words, plan, plan.assumptions);
  if (const auto* trouble = std::get_if<Unmapped>(&ways)) return *trouble;
  const std::vector<std::string> before = plan.assumptions;
  std::vector<std::string> assumed;
  std::vector<ParallelStrategy> all;
  Unmapped first_trouble;
  for (const Degrees& degrees : std::get<std::vector<Degrees>>(ways)) {
    plan.assumptions = before;
    auto some = strategies_in(degrees, run, words, plan);
    if (const auto* trouble = std::get_if<Unmapped>(&some)) {
      if (first_trouble.reason.empty()) first_trouble = *trouble;
      continue;
    }
    if (all.empty()) assumed = plan.assumptions;
    auto& strategies = std::get<std::vector<ParallelStrategy>>(some);
    std::move(strategies.begin(), strategies.end(), std::back_inserter(all));
  }
  if (all.empty()) return first_trouble;
  plan.assumptions = std::move(assumed);
  return all;
}

// Whether weights, gradients and states of some plan leave anything of the fullest card.
bool states_fit(const MeasuredPlan& plan, const SoftwareStack& stack) {
  return std::any_of(plan.strategies.begin(), plan.strategies.end(), [&](const ParallelStrategy& strategy) {
    const std::vector<int> none_alive(static_cast<std::size_t>(strategy.chunks), 0);
    for (int stage = 0; stage < strategy.pipeline; ++stage) {
      const StageMemory kept = stage_memory(plan.model, strategy, stage, none_alive, stack);
      const auto group = static_cast<std::size_t>(strategy.stages[static_cast<std::size_t>(stage)].group);
      if (kept.weights + kept.gradients + kept.optimizer > plan.cluster.groups[group].gpu.memory)
        return false;
    }
    return true;
  });
}

// A run that ran had room for its states: of programs that train in fp32 or in 16 bits, in these.
void keep_what_fits(const MeasuredRun& run, MeasuredPlan& plan) {
  if (run.has_failed() || !may_be_in_16_bits(run, plan.stack) || states_fit(plan, plan.stack)) return;
  SoftwareStack smaller = in_16_bits(run, plan.stack);
  if (!states_fit(plan, smaller)) return;
  plan.stack = std::move(smaller);
  plan.assumptions.emplace_back("weights, gradients and moments in bf16: in fp32 they would not fit");
}

std::variant<MeasuredPlan, Unmapped> expressed(const MeasuredRun& run,
                                               const std::optional<SoftwareStack>& stack_override) {
  if (const auto obstacle = status_obstacle(run)) return *obstacle;
  auto surroundings = surroundings_of(run, stack_override);
  if (const auto* trouble = std::get_if<Unmapped>(&surroundings)) return *trouble;
  auto plan = std::get<MeasuredPlan>(std::move(surroundings));
  const auto words = said_words(run);
  if (const auto* unread = std::get_if<std::string>(&words)) return Unmapped{*unread};
  auto strategies = all_strategies(run, std::get<SaidWords>(words), plan);
  if (const auto* trouble = std::get_if<Unmapped>(&strategies)) return *trouble;
  plan.strategies = std::get<std::vector<ParallelStrategy>>(std::move(strategies));
  if (!stack_override && run.text("stack").empty()) keep_what_fits(run, plan);
  if (const auto trouble = beyond_data_sheet(run, plan)) return Unmapped{*trouble};
  if (const auto trouble = far_below_data_sheet(run, plan)) return Unmapped{*trouble};
  if (measured_gibibytes(run, plan) != run.number("peak_mem_gb"))
    plan.assumptions.push_back("a peak of " + run.text("peak_mem_gb") + " GB of 1e9 bytes, on a card of " +
                               to_text(plan.cluster.groups.front().gpu.memory));
  if (auto assumed = assumed_convention(run)) plan.assumptions.push_back(*std::move(assumed));
  plan.filled = filled_cells(run, plan, stack_override);
  return plan;
}

// What is printed of a run, which is asked for when its plan is known.
void require_numbers(const MeasuredRun& run) {
  for (const char* column : {"iter_time_s", "tflops_per_gpu", "mfu_pct", "hfu_pct", "tokens_per_s_per_gpu",
                             "samples_per_s", "peak_mem_gb"})
    static_cast<void>(run.number(column));
}

}  // namespace

std::variant<MeasuredPlan, Unmapped> map_run(const MeasuredRun& run,
                                             const std::optional<SoftwareStack>& stack_override) {
  try {
    require_numbers(run);
    auto mapped = expressed(run, stack_override);
    if (const auto* plan = std::get_if<MeasuredPlan>(&mapped))
      static_cast<void>(measured_figure(run, plan->stack));
    return mapped;
  } catch (const InputError& error) {
    const std::string of_run = "run " + run.id() + ", ";
    const bool of_cell = error.place.starts_with(of_run);
    return Unmapped{(of_cell ? error.place.substr(of_run.size()) : error.place) + ": found " + error.found +
                    ", expected " + error.expected};
  }
}

}  // namespace orrery
