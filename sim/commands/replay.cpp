#include <chrono>
#include <cstdio>
#include <iostream>

#include "analysis/gantt.hpp"
#include "analysis/statistics.hpp"
#include "analysis/table.hpp"
#include "costmodels/estimate/estimate.hpp"
#include "sim/bounds/plan_band.hpp"
#include "sim/commands/commands.hpp"
#include "sim/commands/inputs.hpp"
#include "sim/commands/plan_file.hpp"
#include "sim/commands/replay_collective.hpp"
#include "sim/commands/what_if.hpp"
#include "sim/replay/children.hpp"
#include "sim/replay/durations.hpp"
#include "sim/replay/progress.hpp"
#include "sim/replay/replay.hpp"
#include "sim/search/json_output.hpp"
#include "sim/search/search_report.hpp"

namespace orrery {
namespace {

constexpr int kLinkBins = 200;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string milliseconds_text(Seconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", time.value() * 1e3);
  return text;
}

std::string spread_text(const std::vector<double>& runs) {
  if (runs.empty()) return {};
  const Spread spread = spread_of(runs);
  char text[256];
  std::snprintf(
      text, sizeof text, "%zu runs    mean %s ms, deviation %s ms, 5 %% %s, 50 %% %s, 95 %% %s ms\n",
      runs.size(), milliseconds_text(Seconds(spread.mean)).c_str(),
      milliseconds_text(Seconds(spread.deviation)).c_str(), milliseconds_text(Seconds(spread.p05)).c_str(),
      milliseconds_text(Seconds(spread.p50)).c_str(), milliseconds_text(Seconds(spread.p95)).c_str());
  return text;
}

std::string facts_text(const ReplaySummary& summary, std::size_t ranks) {
  char text[512];
  std::snprintf(
      text, sizeof text,
      "iteration   %s ms\nestimate    %s ms\nbubble      %.2f %% of all ranks' time\nimbalance   %s ms%s\n",
      milliseconds_text(Seconds(summary.iteration_s)).c_str(),
      milliseconds_text(Seconds(summary.estimate_s)).c_str(), 100 * summary.bubble_fraction,
      milliseconds_text(Seconds(summary.imbalance_s)).c_str(),
      summary.imbalance_s <= -1e-7 ? ": equal stages would take longer" : "");
  return text + spread_text(summary.runs) + "activities  " + std::to_string(summary.activities) + " on " +
         std::to_string(ranks) + " ranks\n";
}

Table stages_table(const std::vector<StageAccounting>& stages) {
  Table table;
  for (const char* title :
       {"stage", "compute", "tensor", "p2p", "data", "optimizer", "warm-up", "steady", "drain"}) {
    table.columns.push_back({title, Align::right});
  }
  for (const StageAccounting& stage : stages) {
    const Accounting& mean = stage.mean;
    std::vector<std::string> row{std::to_string(stage.stage)};
    for (const Seconds time : {mean.compute, mean.exposed_tp, mean.exposed_p2p, mean.exposed_dp,
                               mean.optimizer, mean.bubble_warmup, mean.bubble_steady, mean.bubble_drain}) {
      row.push_back(milliseconds_text(time));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string if_several_iterations(const ReplaySummary& summary) {
  if (summary.makespan_s < 1.001 * summary.iteration_s) return {};
  return " in a steady iteration (" + milliseconds_text(Seconds(summary.makespan_s)) + " ms were played)";
}

std::string replay_text(const Timeline& timeline, const ReplaySummary& summary) {
  return facts_text(summary, timeline.ranks.size()) + "\nMilliseconds of a rank" +
         if_several_iterations(summary) +
         ", mean over the replicas; tensor, p2p, data: exposed communication;\n"
         "warm-up, steady, drain: bubble\n\n" +
         to_text(stages_table(summary.stages)) + "\n" + text_gantt_windows(timeline, picture_columns()) +
         "\n" + gantt_legend(GanttLetters::microbatch);
}

ReplayChoices choices(const CommandLine& line) {
  return {line.has("output") ? kLinkBins : 0, line.has("no-fold") ? Folding::off : Folding::on};
}

// Iteration times of --runs replays, each with noise of its own; empty for a single run.
std::vector<double> noisy_runs(const CommandLine& line, const PricedPlan& plan, const Topology& topology) {
  const auto count = static_cast<std::size_t>(line.integer("runs", 1, 100'000, 1));
  if (count < 2) return {};
  if (plan.jitter == 0)
    throw InputError("--runs", "no --jitter", "--jitter too: without noise all runs are the same");
  std::vector<ChildTask> tasks;
  for (std::size_t run = 0; run < count; ++run) {
    tasks.push_back([&, run] {
      PricedPlan noisy = plan;
      noisy.seed += run * 0x9E3779B97F4A7C15U;  // far away: no run is that of a neighbouring --seed
      const PlanPrograms programs = make_programs(noisy);
      const TrafficFlows flows(noisy, programs, topology, choices(line).folding);
      const Seconds time = steady_iteration(replay(noisy, programs, topology, flows, {}).iteration_ends);
      char text[32];
      std::snprintf(text, sizeof text, "%.17g", time.value());
      return std::string(text);
    });
  }
  Progress progress(line.quiet());
  std::vector<double> times;
  for (const std::string& answer : run_in_children(
           tasks, line.jobs(), [&](std::size_t done) { progress.update("replaying", done, count); })) {
    times.push_back(std::stod(answer));
  }
  return times;
}

// The trace is written first: nothing is said of a run that then fails.
void finish(const CommandLine& line, ReplayResult& replay, double elapsed_s, const std::vector<double>& runs,
            const ReplayedPlan& plan, const std::function<Trace(ReplayResult&)>& trace) {
  ReplaySummary summary = summarize(replay, elapsed_s);
  summary.runs = runs;
  std::string text = line.json() ? replay_json(summary, plan) : replay_text(replay.timeline, summary);
  if (!line.json() && plan.book != nullptr) {
    const TimeRange where = interval(plan.band, Seconds(summary.iteration_s));
    std::string trust = "interval    " + milliseconds_text(where.low) + " to " +
                        milliseconds_text(where.high) + " ms (" + plan.band.basis + ")\n";
    for (const std::string& reason : plan.extrapolated) trust += "extrapolated: " + reason + "\n";
    text = trust + "memory      " + outlook_text(plan.memory_outlook) + "\n" + text;
  }
  if (!line.json() && plan.book != nullptr && !plan.strategy->replicas.empty())
    text = "replicas    " + stages_text(plan.book->cluster(), *plan.strategy) + "\n" + text;
  if (const auto path = line.text("output")) {
    write_trace(*path, trace(replay));
    if (!line.json()) text += "\ntrace   " + *path + "\n";
  }
  std::cout << text;
}

int replay_durations(const CommandLine& line, const Arguments& arguments) {
  for (const char* option : {"tokens", "costs", "stack", "layer-profile", "pricing"}) {
    if (line.has(option))
      throw InputError(std::string("--") + option, "beside --durations", "it only with --plan");
  }
  DurationsPlan given =
      read_durations(line.required("durations"),
                     line.has("schedule-file") ? WeightGradients::apart : WeightGradients::as_schedule);
  if (line.has("no-contention")) {
    ClusterSpec cluster = given.topology.cluster();
    cluster.contention = Contention::ideal;
    given.topology = Topology(cluster, given.topology.nodes());
  }
  apply_what_ifs(line, given.plan);
  const std::vector<double> runs = noisy_runs(line, given.plan, given.topology);
  const double start = now_s();
  ReplayResult replay = run_replay(given.plan, given.topology, choices(line));
  const double elapsed = now_s() - start;
  finish(line, replay, elapsed, runs, {},
         [&](ReplayResult& played) { return make_trace(played, origin_of(line, "replay", arguments)); });
  return 0;
}

int replay_plan(const CommandLine& line, const Arguments& arguments) {
  const CostModels costs = read_costs(line);
  PlayableFile file = load_plan(line, line.required("plan"), costs);
  apply_what_ifs(line, file.priced);
  const std::vector<double> runs = noisy_runs(line, file.priced, file.topology);
  const double start = now_s();
  ReplayResult replay = run_replay(file.priced, file.topology, choices(line));
  const double elapsed = now_s() - start;
  const ReplayedPlan plan{file.book.get(),
                          &file.strategy(),
                          line.count("tokens").value_or(0),
                          plan_band(*file.book, file.strategy(), costs),
                          &file.memory,
                          memory_outlook(*file.book, file.strategy(), file.memory),
                          file.book->extrapolations(file.strategy())};
  finish(line, replay, elapsed, runs, plan, [&](ReplayResult& played) {
    return make_trace(
        plan, played,
        origin_of(line, "replay", arguments, {file.plan.model, file.plan.cluster, file.plan.stack}, costs));
  });
  return 0;
}

}  // namespace

int run_replay_command(const Arguments& arguments) {
  CommandLine line("replay", "Plays one iteration event by event on SimGrid and says where the time went.",
                   "orrery replay --plan out/plan-01.yaml -o trace.h5");
  line.value("plan", "FILE", "a plan, as `orrery search` writes it (YAML)")
      .value("durations", "FILE", "durations of stages given by hand (YAML)")
      .value("tokens", "COUNT", "tokens of the whole training, for its money and hours")
      .value("stack", "NAME|FILE", "another software stack than the plan's")
      .value("costs", "FOLDER", "fitted cost models (`orrery fit`) instead of those in the program")
      .flag("no-fold", "plays every replica and tensor rank, also those that provably do the same")
      .value(
          "pricing", "KIND",
          "buys nodes at list price on_demand, spot or reserved_1y, whatever pricing the cluster file says")
      .flag("no-contention", "links give every flow their whole bandwidth: the closed-form world");
  declare_layer_profiles(line);
  declare_what_ifs(line);
  declare_collective(line);
  if (!line.parse(arguments)) return 0;
  if (line.has("collective") && !line.has("plan") && !line.has("durations")) return replay_collective(line);
  if (line.has("collective") || line.has("plan") == line.has("durations")) {
    throw InputError("orrery replay",
                     line.has("collective") ? "--collective beside a plan"
                     : line.has("plan")     ? "both --plan and --durations"
                                            : "neither --plan nor --durations",
                     "one of --plan, --durations and --collective");
  }
  refuse_collective_options(line);
  if (const auto path = line.text("output")) require_writable(*path);
  return line.has("plan") ? replay_plan(line, arguments) : replay_durations(line, arguments);
}

}  // namespace orrery
