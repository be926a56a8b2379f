#include "sim/commands/plan_file.hpp"

#include <algorithm>
#include <cstdio>

#include "costmodels/memory/card_memory.hpp"
#include "costmodels/stacks/stack_file.hpp"
#include "costmodels/trust/residuals.hpp"
#include "sim/bounds/feasibility.hpp"
#include "sim/bounds/memory_outlook.hpp"
#include "sim/commands/inputs.hpp"
#include "strategies/placement.hpp"

namespace orrery {
namespace {

void warn_if_full(const PriceBook& book, const ParallelStrategy& strategy, int stage,
                  const StageMemory& needed) {
  const NodeGroup& nodes = group_of_stage(book.cluster(), strategy, stage);
  const MemoryVerdict verdict = memory_verdict(needed, nodes);
  if (verdict == MemoryVerdict::fits) return;
  const double chance = out_of_memory_chance(fullness(needed, nodes));
  std::string outcome = "risky: " + chance_text(chance) + " of published runs as full ran out of memory";
  if (verdict == MemoryVerdict::too_big) outcome = "it would run out of memory";
  if (chance <= kSafeChance) outcome = "a search would not take it";  // by what is usable of the card
  std::fprintf(stderr, "orrery: stage %d needs %s of the %s usable on %s: %s\n", stage,
               to_text(needed.needed()).c_str(), to_text(usable_memory(nodes)).c_str(),
               nodes.gpu.name.c_str(), outcome.c_str());
}

// [kind * P + stage]. A profile's own memory is what the warning goes by, where it has it.
std::vector<StageMemory> stage_memories(const PriceBook& book, const ParallelStrategy& strategy,
                                        const PricedPlan& plan, const GroupProfiles& profiles, bool quiet) {
  const StageFitter fitter(book);
  std::vector<StageMemory> memory = fitter.memory_of(strategy, make_programs(plan));
  if (const auto trouble = fitter.host_too_full(strategy, memory); trouble && !quiet)
    std::fprintf(stderr, "orrery: %s\n", trouble->reason.c_str());
  for (int kind = 0; kind < strategy.kinds() && !quiet; ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    const auto profiled = profiled_memory(book, alike, profiles);
    for (int stage = 0; stage < strategy.pipeline; ++stage) {
      StageMemory needed = memory[static_cast<std::size_t>(kind * strategy.pipeline + stage)];
      if (const auto own = profiled[static_cast<std::size_t>(stage)]) needed = StageMemory{.context = *own};
      warn_if_full(book, alike, stage, needed);
    }
  }
  return memory;
}

void require_shape(const std::string& path, const ModelSpec& model, const ParallelStrategy& strategy,
                   const ClusterSpec& cluster) {
  if (const auto trouble = check_shape(model, strategy, cluster))
    throw InputError(path, trouble->reason, "a plan that fits its model and cluster");
}

int group_named(const ClusterSpec& cluster, const std::string& name) {
  std::vector<std::string> names;
  for (std::size_t group = 0; group < cluster.groups.size(); ++group) {
    if (cluster.groups[group].name == name) return static_cast<int>(group);
    names.push_back(cluster.groups[group].name);
  }
  throw InputError("--layer-profile", "group " + quote_for_message(name),
                   "a node group of the cluster: " + comma_list(names) + did_you_mean(name, names));
}

}  // namespace

void declare_layer_profiles(CommandLine& line) {
  line.values(
      "layer-profile", "[GROUP=]PATH",
      "measured times of layers as Metis, Sailor, Aceso or AMP write them, a file or a folder, for one node "
      "group or all; may be repeated");
}

GroupProfiles read_layer_profiles(const CommandLine& line, const ClusterSpec& cluster) {
  GroupProfiles profiles;
  for (const std::string& text : line.list("layer-profile")) {
    const std::size_t equals = text.find('=');
    const LayerProfile profile =
        read_layer_profile(equals == std::string::npos ? text : text.substr(equals + 1));
    if (equals != std::string::npos) {
      profiles[group_named(cluster, text.substr(0, equals))] = profile;
      continue;
    }
    for (int group = 0; group < static_cast<int>(cluster.groups.size()); ++group) {
      profiles.try_emplace(group, profile);
    }
  }
  return profiles;
}

void use_layer_profiles(const CommandLine& line, PriceBook& book) {
  for (const auto& [group, profile] : read_layer_profiles(line, book.cluster()))
    book.use_layers(group, profile);
}

PlayableFile load_plan(const CommandLine& line, const std::string& path, const CostModels& costs) {
  Plan plan = read_plan(path);
  const ModelSpec model = read_named(path, "model", [&] { return read_model(plan.model); });
  const ClusterSpec cluster =
      read_named(path, "cluster", [&] { return read_cluster_option(line, plan.cluster); });
  ParallelStrategy& strategy = plan.strategy;
  if (strategy.sequence == 0) strategy.sequence = model.default_sequence;
  require_shape(path, model, strategy, cluster);
  const GroupProfiles profiles = read_layer_profiles(line, cluster);
  const bool own = !plan.stack.empty() && !line.has("stack");
  const SoftwareStack stack = own ? read_named(path, "stack", [&] { return read_stack(plan.stack, "stack"); })
                                  : read_stack_option(line);
  auto book = std::make_unique<PriceBook>(
      model, cluster, JobPrecision{strategy.type, strategy.flash_attention, strategy.sequence, stack});
  if (const auto given = line.text("stack")) plan.stack = *given;
  for (const auto& [group, profile] : profiles) book->use_layers(group, profile);
  book->need(strategy);
  static_cast<void>(book->predict(costs));
  warn_of_silent_costs(line, costs, book->own_answers(), {&cluster});
  if (strategy.shares_open()) {
    strategy = book->with_chosen_shares(strategy);
    require_shape(path, model, strategy, cluster);
  }
  Topology topology(cluster, strategy.nodes);
  PricedPlan priced = book->price(strategy, topology);
  std::vector<StageMemory> memory = stage_memories(*book, strategy, priced, profiles, line.quiet());
  return {path, std::move(plan), std::move(book), std::move(memory), std::move(topology), std::move(priced)};
}

}  // namespace orrery
