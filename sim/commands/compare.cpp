#include <chrono>
#include <cstdio>
#include <iostream>

#include "costmodels/estimators/estimators.hpp"
#include "sim/bounds/plan_band.hpp"
#include "sim/commands/commands.hpp"
#include "sim/commands/inputs.hpp"
#include "sim/commands/plan_file.hpp"
#include "sim/commands/search_options.hpp"
#include "sim/measured/amp_log.hpp"
#include "sim/measured/amp_reproduction.hpp"
#include "sim/replay/children.hpp"
#include "sim/replay/progress.hpp"
#include "sim/search/compare_estimators.hpp"
#include "sim/search/compare_plans.hpp"
#include "sim/search/json_output.hpp"
#include "sim/search/mixed_gain.hpp"
#include "sim/search/sample_plans.hpp"
#include "traces/output_file.hpp"

namespace orrery {
namespace {

void print(const CommandLine& line, const std::string& text) {
  if (const auto path = line.text("output")) {
    write_file(*path, text);
  } else {
    std::cout << text;
  }
}

void print_errors(const CommandLine& line, const Comparison& comparison) {
  const std::vector<EstimatorErrors> rows = errors_of(comparison);
  print(line, line.json() ? comparison_json(comparison, rows)
                          : std::to_string(comparison.replay.size()) + " plans, estimated and replayed\n\n" +
                                to_text(rows));
}

Comparison compared(const CommandLine& line, std::size_t plans, const PlanSource& source) {
  Progress progress(line.quiet());
  return compare_estimators(plans, source, line.jobs(),
                            [&](std::size_t done) { progress.update("replaying plans", done, plans); });
}

int compare_sample(const CommandLine& line) {
  for (const char* option : {"top", "tokens", "budget", "deadline"}) {
    if (line.has(option)) {
      throw InputError(std::string("--") + option, "it beside --plans", "an option that changes the sample");
    }
  }
  const SearchJob job = read_search_job(line);
  std::vector<Rule> rules = read_search_rules(line);
  PriceBook book(job.model, job.cluster, {job.type, true, job.sequence, read_stack_option(line)});
  use_layer_profiles(line, book);
  const PlanSample sample{static_cast<std::size_t>(line.integer("plans", 2, 100'000, 200)), line.seed()};
  const CostModels costs = read_costs(line);
  const std::vector<ParallelStrategy> plans = sample_plans(job, rules, costs, book, sample);
  warn_of_silent_costs(line, costs, book.own_answers(), {&job.cluster});
  if (plans.empty()) {
    if (line.json()) print(line, comparison_json({}, {}));
    std::cerr << "No feasible plan in the space; `orrery search` says why.\n";
    return 1;
  }
  print_errors(line, compared(line, plans.size(), [&](std::size_t i) {
                 const Topology topology(job.cluster, plans[i].nodes);
                 return PlayablePlan{topology, book.price(plans[i], topology)};
               }));
  return 0;
}

int compare_mixed(const CommandLine& line) {
  const SearchJob job = read_search_job(line);
  if (job.cluster.groups.size() < 2)
    throw InputError("--mixed", "a cluster of one node group", "one with at least two kinds of GPUs");
  std::vector<Rule> rules = read_search_rules(line);
  const CostModels costs = read_costs(line);
  const auto rows = mixed_gain(job, rules, costs, read_stack_option(line), line.jobs());
  OwnAnswers own;
  for (const GainRow& row : rows) own += row.own;
  warn_of_silent_costs(line, costs, own, {&job.cluster});
  print(line, line.json() ? to_json(job, rows) : to_text(job, rows));
  return rows.front().plan ? 0 : 1;
}

std::vector<std::pair<std::string, double>> estimates_of(const PlayableFile& file) {
  const PlanPrograms programs = make_programs(file.priced);
  const TrafficFlows flows(file.priced, programs, file.topology, Folding::on);
  std::vector<std::pair<std::string, double>> estimates;
  for (const Estimator& estimator : estimators()) {
    estimates.emplace_back(estimator.name,
                           estimator.iteration({file.priced, programs, file.topology, flows}).value());
  }
  return estimates;
}

void print_side_by_side(const CommandLine& line, const std::vector<PlayableFile>& files,
                        const CostModels& costs) {
  std::vector<ChildTask> tasks;
  for (const PlayableFile& file : files) {
    tasks.push_back([&file] { return to_bytes(summarize(run_replay(file.priced, file.topology, {}), 0)); });
  }
  std::vector<std::vector<PlanFact>> facts;
  const std::vector<std::string> answers = run_in_children(tasks, line.jobs());
  for (std::size_t i = 0; i < files.size(); ++i) {
    const PlayableFile& file = files[i];
    const ReplaySummary replay = summary_from_bytes(answers[i]);
    facts.push_back(plan_facts({file.path, file.plan.model, file.plan.cluster, *file.book, file.strategy(),
                                file.memory, replay, estimates_of(file), line.count("tokens").value_or(0),
                                plan_band(*file.book, file.strategy(), costs)}));
  }
  const std::vector<FactPair> pairs = side_by_side(facts[0], facts[1]);
  const std::array<std::string, 2> paths{files[0].path, files[1].path};
  print(line, line.json() ? to_json(pairs, paths) : to_text(pairs, paths));
}

// How close our form of AMP's cost model comes to its printed predictions, and both to its trials.
int compare_amp_log(const CommandLine& line, const std::string& path) {
  const AmpLog log = read_amp_log(path);
  const ClusterSpec cluster = read_cluster_option(line, line.required("cluster"));
  std::vector<int> nodes;
  for (const NodeGroup& group : cluster.groups) nodes.push_back(group.count.maximum);
  const Topology topology(cluster, nodes);
  const std::vector<std::string> profiles = line.list("layer-profile");
  if (profiles.size() != 1)
    throw InputError("--amp-log", "no single --layer-profile", "AMP's layer times beside it");
  const std::vector<AmpRows> rows = read_amp_rows(profiles.front());
  AmpReproduction result;
  for (const AmpTrial& trial : log.trials) {
    result.add(trial, amp_iteration(amp_plan(log, trial, rows, topology), topology));
  }
  print(line, line.json() ? to_json(result) : to_text(result));
  return 0;
}

int compare_files(const CommandLine& line, const std::vector<std::string>& paths) {
  if (paths.size() == 1) {
    throw InputError("orrery compare", "one plan file",
                     "two to see them side by side, or more for the errors");
  }
  const CostModels costs = read_costs(line);
  std::vector<PlayableFile> files;
  for (const std::string& path : paths) files.push_back(load_plan(line, path, costs));
  if (files.size() == 2) {
    print_side_by_side(line, files, costs);
    return 0;
  }
  print_errors(line, compared(line, files.size(), [&](std::size_t i) {
                 return PlayablePlan{files[i].topology, files[i].priced};
               }));
  return 0;
}

}  // namespace

int run_compare(const Arguments& arguments) {
  CommandLine line(
      "compare",
      "Holds every analytical estimator (`orrery catalog estimators`) against the replay, over plans\n"
      "drawn from the space of a search or given as files; or shows two plans side by side.",
      "orrery compare --model llama2-70b --cluster demo-a100-h100 --sequence 4096 "
      "--global-batch 1024 --plans 200\n  orrery compare out/plan-01.yaml out/plan-02.yaml");
  declare_search_options(line);
  line.value("plans", "N", "how many plans to draw (200), by --seed")
      .flag("mixed",
            "the best plan for a cluster of unlike GPUs against those of simpler ways to plan, replayed")
      .value("amp-log", "FILE",
             "predictions that AMP logged: how close its cost model comes, with its layer times");
  line.positional("plan", "The arguments are plan files, as `orrery search` writes them.");
  if (!line.parse(arguments)) return 0;
  const std::vector<std::string> paths = line.list("plan");
  if (const auto log = line.text("amp-log"); log && paths.empty()) return compare_amp_log(line, *log);
  if (paths.empty() && line.has("mixed")) return compare_mixed(line);
  if (paths.empty()) return compare_sample(line);
  for (const char* option : {"model", "cluster", "sequence", "global-batch", "space", "rule", "rules", "mode",
                             "precision", "top", "budget", "deadline", "plans", "amp-log", "mixed"}) {
    if (line.has(option)) {
      throw InputError(std::string("--") + option, "it beside plan files", "either plan files or a space");
    }
  }
  return compare_files(line, paths);
}

}  // namespace orrery
