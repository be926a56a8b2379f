#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <limits>

#include "analysis/gantt.hpp"
#include "analysis/report.hpp"
#include "costmodels/memory/card_memory.hpp"
#include "costmodels/trust/residuals.hpp"
#include "platforms/yaml.hpp"
#include "sim/commands/commands.hpp"
#include "sim/commands/inputs.hpp"
#include "sim/commands/no_plan.hpp"
#include "sim/commands/plan_file.hpp"
#include "sim/commands/search_options.hpp"
#include "sim/replay/progress.hpp"
#include "sim/search/json_output.hpp"
#include "sim/search/place_plans.hpp"
#include "sim/search/search_replays.hpp"
#include "strategies/megatron.hpp"
#include "strategies/placement.hpp"
#include "strategies/plan.hpp"
#include "traces/output_file.hpp"

namespace orrery {
namespace {

constexpr int kReportedTraces = 3;  // in the page; each brings its timeline along

Seconds now() {
  return Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// Whether a plan that is shown has whole nodes without a stage on them.
bool pays_for_idle_nodes(const SearchReport& report) {
  return std::any_of(report.plans.begin(), report.plans.end(), [&](const ReportedPlan& row) {
    return nodes_in_use(row.plan.strategy, report.job->cluster) != row.plan.strategy.nodes;
  });
}

void declare_options(CommandLine& line) {
  line.file_of_options("job", "options from a YAML file; the command line goes before it")
      .value("model", "NAME|FILE", "a built-in model, a Hugging Face config.json, or a YAML list of blocks")
      .value("cluster", "NAME|FILE", "a built-in cluster or a YAML file")
      .value("sequence", "TOKENS", "tokens of a sequence (the model's own)")
      .value("global-batch", "N", "sequences of an iteration")
      .value("tokens", "COUNT", "tokens of the whole training, such as 300B or 1T (one iteration)")
      .value("mode", "MODE",
             "homogeneous: one GPU kind a plan; heterogeneous; cost: within --budget and --deadline")
      .value("budget", "MONEY", "most money for the whole job, such as \"2e6 USD\"")
      .value("deadline", "TIME", "latest end of the whole job, such as 30d")
      .value("precision", "TYPE",
             "fp32, tf32, fp16, bf16, fp8 or fp4 (bf16 where all GPUs have it, else fp16)")
      .value_or_map(
          "space", "FILE",
          "what to choose from, by Megatron-LM's argument names (YAML; strategies/SPACE.md has all)")
      .values("rule", "EXPRESSION", "drops candidates it is true for; may be repeated")
      .values("rules", "FILE", "a file of rules; may be repeated")
      .value("gpus", "N", "at most so many GPUs in all, whatever the counts of the groups")
      .flag(
          "explain",
          "looks at every candidate, so that what each rule, shape, memory and limit drops is counted;\n"
          "with a plan file after it: says why that plan ranks where it does, or what would make it feasible")
      .value("memory-risk", "SHARE",
             "leaves out plans that fill a card so far that more of the published runs ran out, such as 0.05")
      .value("top", "N", "how many of the fastest plans to replay and show (10)")
      .value("stack", "NAME|FILE", "the software stack that will run it (megatron-core)")
      .value("costs", "FOLDER", "fitted cost models (`orrery fit`) instead of those in the program")
      .value("placement", "HOW",
             "of the best plans, before their replay: default (rank order of the plan), orders (also\n"
             "Megatron-LM's tp-pp-dp), anneal (hosts numbered anew too, by --seed)")
      .value(
          "pricing", "KIND",
          "buys nodes at list price on_demand, spot or reserved_1y, whatever pricing the cluster file says")
      .flag("no-contention", "links give every flow their whole bandwidth: the closed-form world");
}

DataType default_precision(const ClusterSpec& cluster) {
  for (const NodeGroup& group : cluster.groups) {
    if (!group.gpu.bf16) return group.gpu.fp16 ? DataType::fp16 : DataType::fp32;
  }
  return DataType::bf16;
}

DataType read_precision(const CommandLine& line, const ClusterSpec& cluster) {
  const std::vector<std::string> names{"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"};
  const std::vector<DataType> types{DataType::fp32, DataType::tf32, DataType::fp16,
                                    DataType::bf16, DataType::fp8,  DataType::fp4};
  const auto chosen = line.choice("precision", names);
  if (!chosen) return default_precision(cluster);
  for (const NodeGroup& group : cluster.groups) {
    if (peak(group.gpu, types[*chosen])) continue;
    throw InputError(line.place("precision"), "'" + names[*chosen] + "'",
                     "a type that " + group.gpu.name + " of group '" + group.name + "' has a peak for");
  }
  return types[*chosen];
}

// Groups with a fixed count are paid for whether used or not, so they must have room.
std::int64_t read_most_gpus(const CommandLine& line, const ClusterSpec& cluster) {
  const std::int64_t most = line.integer("gpus", 1, 100'000'000, 1);
  std::int64_t fixed = 0;
  for (const NodeGroup& group : cluster.groups) {
    fixed += std::int64_t{group.count.minimum} * group.gpus_per_node;
  }
  if (fixed > most) {
    throw InputError(
        "--gpus", std::to_string(most),
        "at least " + std::to_string(fixed) + ", which the least counts of the cluster's groups make");
  }
  return most;
}

// Cards are filled no further than where such a share of published runs ran out.
void limit_memory(ClusterSpec& cluster, double risk) {
  const double fullest = built_in_residuals().out_of_memory.fullness_at(risk);
  for (NodeGroup& group : cluster.groups) group.memory_limit = card_left(group) * fullest;
}

SearchJob read_job(const CommandLine& line) {
  SearchJob job;
  job.model = read_model(line.required("model"));
  job.cluster = read_cluster_option(line, line.required("cluster"));
  if (const auto risk = line.number("memory-risk", 1e-6, 1 - 1e-6)) limit_memory(job.cluster, *risk);
  job.space = default_space(job.model);
  if (read_stack_option(line).fully_sharded) job.space.fully_sharded = {true, false};
  if (const auto map = line.map("space")) {
    job.space = parse_space(*map, job.space);
  } else if (const auto space = line.text("space")) {
    job.space = read_space(*space, job.space);
  }
  const std::vector<std::string> modes{"homogeneous", "heterogeneous", "cost"};
  const std::size_t otherwise = job.cluster.groups.size() > 1 ? 1 : 0;
  job.mode = static_cast<SearchMode>(line.choice("mode", modes).value_or(otherwise));
  job.sequence = line.integer("sequence", 1, 100'000'000, job.model.default_sequence);
  if (job.sequence == 0)
    throw InputError("orrery search", "no --sequence", "--sequence, which the model file does not say");
  static_cast<void>(line.required("global-batch"));
  job.global_batch = line.integer("global-batch", 1, 10'000'000, 1);
  job.total_tokens = line.count("tokens").value_or(job.tokens_per_iteration());
  job.type = read_precision(line, job.cluster);
  job.jobs = line.jobs();
  job.budget = line.quantity<Dollars>("budget");
  job.deadline = line.quantity<Seconds>("deadline");
  for (const char* limit : {"budget", "deadline"}) {
    if (line.has(limit) && !line.has("tokens")) {
      throw InputError(line.place(limit), "no --tokens", "--tokens beside it: it binds the whole training");
    }
  }
  if (job.mode == SearchMode::cost && !job.budget && !job.deadline) {
    throw InputError(line.place("mode"), "'cost' with neither --budget nor --deadline",
                     "one of them or both");
  }
  job.top = static_cast<int>(line.integer("top", 1, 1000, 10));
  const auto& overlaps = job.space.tensor_overlap;
  if (!user_buffers_take(job.type) && std::find(overlaps.begin(), overlaps.end(), true) != overlaps.end())
    throw InputError("the space", "tp_comm_overlap: true",
                     "false in " + std::string(to_text(job.type)) + ", which user buffers do not hold");
  if (line.has("gpus")) job.space.most_gpus = read_most_gpus(line, job.cluster);
  const std::vector<std::string> placements{"default", "orders", "anneal"};
  job.placement = static_cast<PlacementSearch>(line.choice("placement", placements).value_or(0));
  if (line.has("explain")) job.pruning = Pruning::never;
  return job;
}

std::vector<Rule> read_all_rules(const CommandLine& line) {
  std::vector<Rule> rules;
  for (const std::string& file : line.list("rules")) {
    for (Rule& rule : read_rules(file)) rules.push_back(std::move(rule));
  }
  for (const std::string& text : line.list("rule")) rules.emplace_back(text, line.place("rule"));
  return rules;
}

std::vector<int> pareto_ranks(const std::vector<ReportedPlan>& plans) {
  std::vector<ParetoPoint> points;
  for (const ReportedPlan& plan : plans) {
    const bool known = plan.replayed.cost && plan.replayed.total_time;
    points.push_back({known ? to_hours(*plan.replayed.total_time) : std::numeric_limits<double>::quiet_NaN(),
                      known ? plan.replayed.cost->total.value() : std::numeric_limits<double>::quiet_NaN()});
  }
  std::vector<int> ranks;
  for (const std::size_t index : pareto_front(points)) ranks.push_back(static_cast<int>(index) + 1);
  return ranks;
}

ReportInput report_input(const SearchReport& report) {
  ReportInput input;
  input.title = report.job->model.name + " on " + report.job->cluster.name;
  input.summary = counts_text(report.counts);
  std::vector<int> ranks;
  for (const ReportedPlan& plan : report.plans) ranks.push_back(plan.rank);
  input.plans = terminal_table(report, ranks);
  for (const ReportedPlan& plan : report.plans) {
    if (!plan.replayed.cost || !plan.replayed.total_time) continue;
    input.points.push_back({"plan " + std::to_string(plan.rank),
                            {to_hours(*plan.replayed.total_time), plan.replayed.cost->total.value()}});
  }
  for (const ReportedPlan& plan : report.plans) {
    if (static_cast<int>(input.traces.size()) == kReportedTraces) break;
    input.traces.push_back(
        {"Plan " + std::to_string(plan.rank) + ": " + stages_text(report.job->cluster, plan.plan.strategy),
         read_trace(plan.trace)});
  }
  return input;
}

std::vector<std::string> launch_paths(const std::string& folder, int rank) {
  std::vector<std::string> paths;
  for (const char* ending : {".args", ".sh", ".ranks"})
    paths.push_back(numbered(folder + "/launch", rank, ending));
  return paths;
}

constexpr const char *kTable = "/plans.csv", *kPage = "/report.html", *kDocument = "/plans.json";

// What an earlier search left in the folder and this one, which found so many plans, has not written again
// would pass for a result of this one.
void remove_older(const std::string& folder, int plans) {
  std::error_code ignored;
  for (int rank = plans + 1;; ++rank) {
    for (const std::string& path : launch_paths(folder, rank)) std::filesystem::remove(path, ignored);
    const bool plan = std::filesystem::remove(numbered(folder + "/plan", rank, ".yaml"), ignored);
    const bool trace = std::filesystem::remove(numbered(folder + "/trace", rank, ".h5"), ignored);
    if (!plan && !trace) return;
  }
}

// A search without a plan writes nothing, and what an earlier one found is not its to delete.
void say_older(const std::string& folder) {
  std::error_code ignored;
  for (const std::string& path :
       {folder + kTable, folder + kPage, folder + kDocument, numbered(folder + "/plan", 1, ".yaml"),
        numbered(folder + "/trace", 1, ".h5")}) {
    if (!std::filesystem::exists(path, ignored)) continue;
    std::cerr << "orrery: " << folder << " still holds the plans of an earlier search\n";
    return;
  }
}

// Launch files of the fastest plan that Megatron-LM runs, and what it cannot run of the fastest of all.
struct Launch {
  std::vector<std::string> paths, gaps;
};

// Those of an earlier search go.
Launch write_launch(const SearchReport& report, const std::string& folder) {
  Launch result;
  for (const ReportedPlan& plan : report.plans) {
    const std::vector<std::string> paths = launch_paths(folder, plan.rank);
    std::error_code ignored;
    for (const std::string& path : paths) std::filesystem::remove(path, ignored);
    if (!result.paths.empty()) continue;
    const auto launch = launch_files(report.job->model, plan.plan.strategy, report.job->cluster);
    if (const auto* files = std::get_if<LaunchFiles>(&launch)) {
      write_file(paths[0], files->arguments);
      write_file(paths[1], files->script);
      write_file(paths[2], files->rank_map);
      result.paths = paths;
    } else if (plan.rank == 1) {
      result.gaps = std::get<std::vector<std::string>>(launch);
    }
  }
  return result;
}

void write_plans(const SearchReport& report, const RunOrigin& origin, const std::string& folder) {
  for (const ReportedPlan& plan : report.plans) {
    const Plan file{origin.model, origin.cluster, plan.plan.strategy, origin.stack};
    write_file(numbered(folder + "/plan", plan.rank, ".yaml"), to_yaml(file));
  }
}

// The table, without the columns that its terminal has no room for.
std::string plans_text(const SearchReport& report, const std::vector<int>& ranks) {
  Table table = terminal_table(report, ranks);
  const auto width = terminal_columns();
  if (!width) return to_text(table);
  const std::vector<std::string> gone =
      narrow(table, static_cast<std::size_t>(*width),
             {"imbal. s", "$/Mtok", "kWh", "interval", "tokens/s", "memory", "OOM", "switches", "bubble",
              "layers", "mbs", "v", "C", "MFU", "hours"});
  std::string text = to_text(table);
  for (std::size_t i = 0; i < gone.size(); ++i) text += (i == 0 ? "no room here for " : ", ") + gone[i];
  return gone.empty() ? text : text + ": see plans.csv\n";
}

void print_report(const SearchReport& report, const std::string& folder, const Launch& launch) {
  std::vector<int> fastest;
  for (const ReportedPlan& plan : report.plans) {
    if (static_cast<int>(fastest.size()) < report.job->top) fastest.push_back(plan.rank);
  }
  char size[64];
  std::snprintf(size, sizeof size, "%.4g billion parameters",
                static_cast<double>(total_parameters(report.job->model)) / 1e9);
  std::cout << "The fastest plans for " << report.job->model.name << " (" << size
            << "), replayed event by event\n\n"
            << plans_text(report, fastest);
  if (!report.pareto.empty()) {
    std::cout << "\nThe Pareto front: no plan of the search is both faster and cheaper\n\n"
              << plans_text(report, report.pareto);
  }
  std::cout << "\n" << answers_text(report);
  std::cout << "\nT, C, D, v: tensor, context, data ways and virtual stages; mbs: microbatch;\n"
               "ep: expert ways; sp: sequence parallel; do: distributed optimizer (di2: in two instances);\n"
               "fs: fully sharded weights (FSDP); og, op: gradient reduction, parameter gather overlapped;\n"
               "re-: recompute (re-full:n: the first n layers of each part; re-selective:a+b: modules);\n"
               "et1: experts of each tensor rank's own; zb-, gpipe: schedule; pd, ho: tp-pp-dp rank order,\n"
               "hosts numbered anew; tc: tensor collectives overlapped; co: optimizer on the host (co:0.50: "
               "half of it);\n"
               "bp: blocking p2p of virtual stages; MFU: with full attention (mfu_causal in plans.csv: half "
               "of it);\n"
               "OOM: how many published runs with a card counted as full ran out of memory;\n"
               "imbal. s: what stages of equal times would save (below 0: they would take longer)\n";
  if (pays_for_idle_nodes(report))
    std::cout
        << "money and energy: of all nodes of a fixed count, also those that a plan leaves idle (count: 0..n "
           "pays for those in use)\n";
  const Trace best = read_trace(report.plans.front().trace);
  const ReplaySummary& replayed = report.plans.front().replay;
  const bool is_one = replayed.makespan_s < 1.001 * replayed.iteration_s;
  std::cout << "\nPlan 1, replica 0, " << (is_one ? "one iteration" : "a first iteration and a steady one")
            << "\n\n"
            << text_gantt_windows(best.timeline, picture_columns()) << "\n"
            << gantt_legend(GanttLetters::microbatch)
            << "\ninterval of plan 1: " << report.plans.front().band.basis
            << "\nof its memory:      " << report.plans.front().memory.band.basis << "\n";
  for (const std::string& reason : report.plans.front().extrapolated)
    std::cout << "extrapolated:       " << reason << "\n";
  std::cout << "\n"
            << counts_text(report.counts) << "\nreport   " << folder << kPage << "\nplans    " << folder
            << kTable << ", plans.json, plan-01.yaml ...\ntraces   " << report.plans.front().trace
            << " ...\n";
  for (const std::string& path : launch.paths) std::cout << "launch   " << path << "\n";
  for (const std::string& gap : launch.gaps) std::cout << "no launch file for plan 1: " << gap << "\n";
}

// All files but the document, which says how long that took.
Launch write_results(const SearchReport& report, const RunOrigin& origin, const std::string& folder) {
  write_file(folder + kTable, to_csv(csv_table(report)));
  write_report(folder + kPage, report_input(report));
  write_plans(report, origin, folder);
  Launch launch = write_launch(report, folder);
  remove_older(folder, static_cast<int>(report.plans.size()));
  return launch;
}

void say_times(const SearchReport& report) {
  const Seconds searched = report.elapsed.enumerate + report.elapsed.predict + report.elapsed.estimate;
  std::fprintf(stderr, "searched in %.2f s, replayed %zu plan%s in %.2f s, %.2f s in all\n", searched.value(),
               report.plans.size(), report.plans.size() == 1 ? "" : "s", report.replay_elapsed.value(),
               report.total_elapsed.value());
}

}  // namespace

void declare_search_options(CommandLine& line) {
  declare_options(line);
  declare_layer_profiles(line);
}

SearchJob read_search_job(const CommandLine& line) {
  return read_job(line);
}

std::vector<Rule> read_search_rules(const CommandLine& line) {
  return read_all_rules(line);
}

int run_search(const Arguments& arguments) {
  const Seconds start = now();
  CommandLine line(
      "search",
      "Finds the fastest and the cheapest plans for training a model on a cluster, and writes them with "
      "traces,\n"
      "report and launch files to -o (orrery-out).",
      "orrery search --model llama2-70b --cluster demo-a100-h100 --sequence 4096 --global-batch 1024 "
      "--tokens 1T -o out");
  declare_search_options(line);
  line.positional("plan", "A plan file, beside --explain.");
  if (!line.parse(arguments)) return 0;
  if (const std::vector<std::string> plans = line.list("plan"); !plans.empty()) {
    if (plans.size() > 1 || !line.has("explain"))
      throw InputError("orrery search", quote_for_message(plans.back()) + ", which belongs to no option",
                       "options only, or --explain and one plan file");
    return explain_plan(line, plans.front());
  }
  const SearchJob job = read_job(line);
  std::vector<Rule> rules = read_all_rules(line);
  const CostModels costs = read_costs(line);
  const std::string folder = line.text("output").value_or("orrery-out");
  make_output_folder(folder);
  const RunOrigin origin =
      origin_of(line, "search", arguments,
                {line.required("model"), line.required("cluster"), line.text("stack").value_or("")}, costs);
  PriceBook book(job.model, job.cluster, {job.type, true, job.sequence, read_stack_option(line)});
  use_layer_profiles(line, book);
  Progress progress(line.quiet());
  SearchResult result = search(with_plans_to_place(job), rules, costs, book,
                               [&](const std::string& phase, std::size_t done, std::size_t total) {
                                 progress.update(phase, done, total);
                               });
  warn_of_silent_costs(line, costs, book.own_answers(), {&job.cluster});
  SearchReport report;
  report.job = &job;
  report.book = &book;
  place_plans(result.plans, job, book, line.seed());
  report.counts = result.counts;
  report.elapsed = result.elapsed;
  report.cost_models = origin.cost_models;
  const Seconds before_replay = now();
  report.plans = replay_plans({job, book, costs, origin, folder, line.jobs()}, std::move(result.plans),
                              report.counts, progress);
  progress.clear();
  if (report.plans.empty()) {
    if (!line.quiet()) say_older(folder);
    report.total_elapsed = now() - start;
    if (line.json()) std::cout << search_json(report);
    (line.json() ? std::cerr : std::cout) << no_plan_text(report, result, rules, costs, line);
    return 1;
  }
  report.pareto = pareto_ranks(report.plans);
  report.replay_elapsed = now() - before_replay;
  const Launch launch = write_results(report, origin, folder);
  report.total_elapsed = now() - start;
  const std::string json = search_json(report);
  write_file(folder + kDocument, json);
  if (line.json()) {
    std::cout << json;
  } else {
    print_report(report, folder, launch);
  }
  if (!line.quiet()) say_times(report);
  return 0;
}

}  // namespace orrery
