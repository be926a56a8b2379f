#include <algorithm>
#include <iostream>
#include <iterator>

#include "costmodels/models/sha256.hpp"
#include "costmodels/stacks/stack_file.hpp"
#include "costmodels/trust/classics.hpp"
#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"
#include "sim/commands/command_line.hpp"
#include "sim/commands/commands.hpp"
#include "sim/commands/inputs.hpp"
#include "sim/validation/validation_report.hpp"
#include "traces/output_file.hpp"

namespace orrery {
namespace {

bool has_group(const std::vector<MeasuredRun>& runs, const std::string& group) {
  return std::any_of(runs.begin(), runs.end(), [&](const MeasuredRun& run) { return run.group() == group; });
}

// The classics know facts that a table of one's own may leave blank for the same run.
MeasuredTable runs_of(const CommandLine& line) {
  std::vector<MeasuredRun> classics = classic_runs();
  if (!line.has("measured")) {
    if (line.has("classics"))
      throw InputError("--classics", "no --measured",
                       "a table beside them, or neither for the classics alone");
    return {std::move(classics), {}};
  }
  MeasuredTable table = read_measured_option(line);
  for (MeasuredRun& run : table.runs) {
    for (const MeasuredRun& classic : classics) {
      if (classic.id() == run.id() && classic.group() == run.group()) run.complete_from(classic);
    }
  }
  if (!line.has("classics")) return table;
  const std::vector<MeasuredRun> own = table.runs;
  std::copy_if(classics.begin(), classics.end(), std::back_inserter(table.runs),
               [&](const MeasuredRun& classic) { return !has_group(own, classic.group()); });
  return table;
}

// The values of --group or --without, each a source_key of the runs.
std::vector<std::string> groups_named(const CommandLine& line, const char* option,
                                      const std::vector<MeasuredRun>& runs) {
  std::vector<std::string> known;
  for (const MeasuredRun& run : runs) known.push_back(run.group());
  for (const std::string& group : line.list(option)) {
    if (std::find(known.begin(), known.end(), group) == known.end())
      throw InputError(line.place(option), "no run of " + quote_for_message(group),
                       "a source_key of the table" + did_you_mean(group, known));
  }
  return line.list(option);
}

std::vector<MeasuredRun> only(const std::vector<std::string>& groups, std::vector<MeasuredRun> runs) {
  const auto is_other = [&](const MeasuredRun& run) {
    return std::find(groups.begin(), groups.end(), run.group()) == groups.end();
  };
  if (!groups.empty()) runs.erase(std::remove_if(runs.begin(), runs.end(), is_other), runs.end());
  return runs;
}

std::map<std::string, LayerProfile> read_layers(const std::vector<std::string>& options) {
  std::map<std::string, LayerProfile> layers;
  for (const std::string& text : options) {
    const std::size_t equals = text.find('=');
    const bool named = equals != std::string::npos;
    layers.insert_or_assign(named ? text.substr(0, equals) : "",
                            read_layer_profile(named ? text.substr(equals + 1) : text));
  }
  return layers;
}

struct Switch {
  const char* name;
  void (*off)(MeasuredPlan&);
};

void for_each_strategy(MeasuredPlan& plan, void (*change)(ParallelStrategy&)) {
  for (ParallelStrategy& strategy : plan.strategies) change(strategy);
}

// What each effect is worth, by taking it away.
const std::vector<Switch>& switches() {
  static const std::vector<Switch> all{
      {"no host cost", [](MeasuredPlan& plan) { plan.stack.host = {}; }},
      {"no recomputation",
       [](MeasuredPlan& plan) { for_each_strategy(plan, [](ParallelStrategy& s) { s.recompute = {}; }); }},
      {"flash attention for unfused, best for flash2",
       [](MeasuredPlan& plan) {
         if (!is_best_fused(plan.stack.attention)) plan.stack.attention = AttentionKernel::flash;
         for_each_strategy(plan, [](ParallelStrategy& s) { s.flash_attention = true; });
       }},
      {"attention of 2024 for that of 2026",
       [](MeasuredPlan& plan) {
         if (is_best_fused(plan.stack.attention)) plan.stack.attention = AttentionKernel::flash;
       }},
      {"fused elementwise kernels",
       [](MeasuredPlan& plan) {
         plan.stack.elementwise = Fusion::fused;
         plan.stack.kernels.norm.reset();
       }},
      {"fused loss for separate",
       [](MeasuredPlan& plan) {
         if (plan.stack.cross_entropy == CrossEntropyKernel::separate)
           plan.stack.cross_entropy = CrossEntropyKernel::fused;
       }},
      {"no dropout", [](MeasuredPlan& plan) { plan.stack.dropout = Dropout::off; }},
      {"no gradient accumulation", [](MeasuredPlan& plan) { plan.stack.accumulation = 0; }},
      {"no tensor overlap",
       [](MeasuredPlan& plan) {
         plan.stack.tensor_overlap = 0;
         plan.stack.async_tensor_gradients = false;
       }},
      {"no data overlap",
       [](MeasuredPlan& plan) {
         for_each_strategy(plan, [](ParallelStrategy& s) {
           s.overlap_grad_reduce = false;
           s.overlap_param_gather = false;
         });
       }},
      {"fp8 as bf16",
       [](MeasuredPlan& plan) {
         for_each_strategy(plan, [](ParallelStrategy& s) {
           if (s.type == DataType::fp8) s.type = DataType::bf16;
         });
       }},
      {"no slow-down beside collectives", [](MeasuredPlan& plan) { plan.stack.overlap_slowdown = 1; }},
      {"collectives over a shared card as over one's own",
       [](MeasuredPlan& plan) { plan.stack.network.collectives = 1; }},
      {"gradients in 16 bits",
       [](MeasuredPlan& plan) {
         if (!plan.stack.separate_accumulation) return;
         plan.stack.gradient = plan.stack.reduced_gradient = 2;
       }},
      {"no gaps between kernels", [](MeasuredPlan& plan) { plan.stack.kernel_gap = Seconds(0); }},
      {"no copies of sharded weights", [](MeasuredPlan& plan) { plan.stack.shard_copies = {}; }},
      {"full recomputation to the end", [](MeasuredPlan& plan) { plan.stack.stops_recomputation = false; }},
      {"no optimizer step",
       [](MeasuredPlan& plan) { plan.stack.optimizer = OptimizerCost{.bandwidth_share = 1}; }},
      {"no embedding, head and loss", [](MeasuredPlan& plan) { plan.model.vocabulary = 0; }},
      {"transfers beside compute",
       [](MeasuredPlan& plan) {
         for_each_strategy(plan, [](ParallelStrategy& s) { s.transfers = TransferMode::eager; });
       }},
      {"tokens to experts by NCCL",
       [](MeasuredPlan& plan) {
         plan.stack.experts.dispatch.reset();
         plan.stack.experts.deduplicated = false;
       }},
      {"no exchange with experts under compute", [](MeasuredPlan& plan) { plan.stack.experts.overlap = 0; }},
      {"no host cost of experts",
       [](MeasuredPlan& plan) { plan.stack.experts = at_pace(plan.stack.experts, 0); }},
      {"experts loaded evenly", [](MeasuredPlan& plan) { plan.stack.experts.load.cv = 0; }},
      {"scans of Mamba-2 as GEMMs", [](MeasuredPlan& plan) { plan.stack.scan_backward = 1; }},
      {"no fused kernels of experts", [](MeasuredPlan& plan) { plan.stack.experts.fused = false; }},
      {"no sustained-power factor",
       [](MeasuredPlan& plan) { plan.cluster.groups.front().gpu.sustained = 1.0; }},
  };
  return all;
}

std::vector<NamedValidation> ablation(const std::vector<MeasuredRun>& runs, const CostModels& costs,
                                      ValidationOptions options) {
  std::vector<NamedValidation> all;
  all.push_back({"as it is", validate(runs, costs, options)});
  for (const Switch& one : switches()) {
    options.change = one.off;
    all.push_back({one.name, validate(runs, costs, options)});
  }
  return all;
}

// Where the table of intervals comes from. No date: the same runs and models give the same bytes.
std::vector<std::string> interval_facts(const CommandLine& line, const Validation& validation,
                                        const CostModels& costs, const std::vector<std::string>& without) {
  const auto path = line.text("measured");
  const std::string beside = line.has("classics") ? ", beside it classics of this program" : "";
  std::string left_out;
  for (const std::string& name : without) left_out += " " + name;
  std::size_t timed = 0;
  for (const ValidatedRun& run : validation.runs) timed += run.measured.has_value();
  return {"Residuals of validation, ln(predicted / measured) by group: `orrery validate --write-intervals`.",
          "runs        SHA-256 " + sha256_hex(path ? read_text_file(*path) : std::string(classics_csv())) +
              beside,
          "timed runs  " + std::to_string(timed) + (left_out.empty() ? "" : "; not used, groups" + left_out),
          "cost models " + costs.digest()};
}

}  // namespace

int run_validate(const Arguments& arguments) {
  CommandLine line(
      "validate",
      "Predicts published runs and says how far off it is, by program, GPU and kind, or by group.",
      "orrery validate --measured runs.csv");
  line.value("measured", "FILE",
             "published runs (CSV, sim/MEASURED_RUNS.md); without it the classics in the program")
      .flag("classics", "beside FILE also the classics of source_keys that it does not have")
      .values("group", "NAME", "only runs of this source_key; may be repeated")
      .value("stack", "NAME|FILE", "one software stack for all runs, in place of their framework's own")
      .values(
          "layer-profile", "[GROUP=]PATH",
          "measured times of layers (as for `orrery replay`) in place of predicted ones, for the runs of one "
          "source_key or of all; may be repeated")
      .value("costs", "FOLDER", "fitted cost models (`orrery fit`) instead of those in the program")
      .flag("replay", "plays every plan event by event instead of estimating it")
      .flag("ablate", "the same with each effect switched off")
      .value("write-intervals", "FILE",
             "writes the table that intervals come from: costmodels/fitted/intervals.yaml")
      .values("without", "NAME", "a source_key that the intervals of time are made without; may be repeated")
      .flag("groups", "a row for each group even where they are many, and what was assumed of its runs")
      .flag("runs", "a row for each run too");
  if (!line.parse(arguments)) return 0;
  const MeasuredTable table = runs_of(line);
  const std::vector<MeasuredRun>& all_runs = table.runs;
  std::vector<std::string> without = groups_named(line, "without", all_runs);
  const std::vector<MeasuredRun> runs = only(groups_named(line, "group", all_runs), all_runs);
  ValidationOptions options;
  if (const auto stack = line.text("stack")) options.stack = read_stack(*stack);
  options.layers = read_layers(line.list("layer-profile"));
  options.replay = line.has("replay");
  options.jobs = line.jobs();
  const CostModels costs = read_costs(line);
  if (line.has("ablate")) {
    const auto all = ablation(runs, costs, options);
    std::cout << (line.json() ? ablation_json(all) : ablation_text(all));
    return 0;
  }
  Validation validation = validate(runs, costs, options);
  validation.remarks = table.remarks;
  std::vector<const ClusterSpec*> clusters;
  for (const ClusterSpec& cluster : validation.clusters) clusters.push_back(&cluster);
  warn_of_silent_costs(line, costs, validation.own, clusters);
  for (const ComputedTimes& group : validation.computed) without.push_back(group.group);
  if (const auto path = line.text("write-intervals")) {
    const Residuals residuals = residuals_of(validation, without);
    if (const std::size_t groups = residuals.time.size(); groups < 3)
      throw InputError("--write-intervals", std::to_string(groups) + " groups of runs", "3 or more");
    write_file(*path, to_yaml(residuals, interval_facts(line, validation, costs, without)));
  }
  const Coverages coverage{coverage_of(validation, Predicted::time, without, line.jobs()),
                           coverage_of(validation, Predicted::memory, {}, line.jobs()),
                           foreseen_chances(validation)};
  const Listed listed = line.has("runs")     ? Listed::runs
                        : line.has("groups") ? Listed::groups
                                             : Listed::digest;
  std::cout << (line.json() ? validation_json(validation, coverage)
                            : validation_text(validation, listed, coverage));
  if (const auto path = line.text("output")) write_file(*path, validation_json(validation, coverage));
  return validation.runs.empty() ? 1 : 0;
}

}  // namespace orrery
