// Which cells of a row its program, its model and its machine filled, and with what.
#include <algorithm>
#include <cstdio>

#include "sim/measured/bridge_recipes.hpp"
#include "sim/measured/measured_plan.hpp"
#include "sim/measured/said_kernels.hpp"

namespace orrery {
namespace {

constexpr const char* kNoneSaid = "none said";

class Filled {
 public:
  explicit Filled(const MeasuredRun& run) : run_(run) {}
  [[nodiscard]] bool is_blank(const char* column) const { return run_.text(column).empty(); }
  void add(const char* column, const std::string& value, const std::string& from) {
    if (is_blank(column)) cells_.push_back({column, value, from});
  }
  [[nodiscard]] std::vector<FilledCell> cells() && { return std::move(cells_); }

 private:
  const MeasuredRun& run_;
  std::vector<FilledCell> cells_;
};

const char* yes_or_no(bool on) {
  return on ? "yes" : "no";
}

std::string short_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

std::string sharding_text(const ParallelStrategy& strategy, const SoftwareStack& stack) {
  if (strategy.fully_sharded) return stack.whole_weights ? "ZeRO-2" : "ZeRO-3";
  return strategy.distributed_optimizer ? "ZeRO-1" : "no";
}

bool is_uneven(const std::vector<LayerRange>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const LayerRange& part) { return part.count != parts.front().count; });
}

void add_ways(const MeasuredRun& run, const MeasuredPlan& plan, const std::string& stack, Filled& filled) {
  const ParallelStrategy& strategy = plan.strategies.front();
  const bool recipe = is_bridge(run);
  filled.add("cp", "1", kNoneSaid);
  const bool no_expert_ways = std::all_of(plan.strategies.begin(), plan.strategies.end(),
                                          [](const ParallelStrategy& one) { return one.expert == 1; });
  if (plan.model.has_experts() && no_expert_ways) filled.add("ep", "1", kNoneSaid);
  if (strategy.expert > 1 && strategy.tensor(0) > 1)
    filled.add("etp", std::to_string(strategy.expert_tensor.value_or(strategy.tensor(0))),
               recipe ? "its recipe" : "Megatron-LM's default");
  if (strategy.data * strategy.context > 1)
    filled.add("optimizer_sharding", sharding_text(strategy, plan.stack),
               bridge_shards_weights(run) ? "its recipe" : stack);
  if (strategy.tensor(0) > 1) filled.add("sequence_parallel", yes_or_no(strategy.sequence_parallel), stack);
  if (strategy.pipeline == 1) return;
  const bool virtual_stages =
      std::any_of(plan.strategies.begin(), plan.strategies.end(),
                  [](const ParallelStrategy& one) { return one.schedule == ScheduleKind::interleaved; });
  filled.add("schedule", virtual_stages ? "1F1B, interleaved over virtual stages" : "1F1B", kNoneSaid);
  const std::string cuts = bridge_cuts(run, plan.model, strategy.part_count());
  if (!cuts.empty())
    filled.add("layer_partition", cuts, "its recipe");
  else if (is_uneven(strategy.parts))
    filled.add("layer_partition", "as even as layers divide", stack);
}

}  // namespace

std::vector<FilledCell> filled_cells(const MeasuredRun& run, const MeasuredPlan& plan,
                                     const std::optional<SoftwareStack>& stack_override) {
  Filled filled(run);
  const std::string stack = "stack " + plan.stack.name;
  if (!stack_override) filled.add("stack", plan.stack.name, run.text("framework"));
  filled.add("seq", std::to_string(plan.model.default_sequence), "model " + plan.model.name);
  if (plan.model.has_experts())
    filled.add("expert_load_cv", short_text(plan.stack.experts.load.cv),
               said_load(run, plan.model) ? "its words" : stack);
  const NodeGroup& group = plan.cluster.groups.front();
  if (filled.is_blank("cluster"))
    filled.add("gpus_per_node", std::to_string(group.gpus_per_node),
               comes_in_racks(group.gpu) ? "racks of " + group.gpu.name : "usual nodes");
  filled.add("flash_attn", yes_or_no(plan.strategies.front().flash_attention), stack);
  add_ways(run, plan, stack, filled);
  if (!filled.is_blank("peak_mem_gb"))
    filled.add("peak_mem_figure", std::string(to_text(measured_figure(run, plan.stack))), stack);
  return std::move(filled).cells();
}

}  // namespace orrery
