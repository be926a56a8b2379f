#include <cstdio>
#include <iostream>

#include "costmodels/memory/card_memory.hpp"
#include "platforms/errors.hpp"
#include "sim/bounds/feasibility.hpp"
#include "sim/commands/command_line.hpp"
#include "sim/commands/commands.hpp"
#include "sim/commands/inputs.hpp"
#include "sim/commands/plan_file.hpp"
#include "sim/measured/measured_plan.hpp"
#include "sim/validation/calibration.hpp"
#include "strategies/placement.hpp"
#include "traces/output_file.hpp"

namespace orrery {
namespace {

OwnRun own_run(std::string name, const ModelSpec& model, const ClusterSpec& cluster,
               const JobPrecision& precision, const ParallelStrategy& strategy, const CostModels& costs) {
  OwnRun run{std::move(name), PriceBook(model, cluster, precision), strategy};
  run.book.need(strategy);
  static_cast<void>(run.book.predict(costs));
  return run;
}

struct OwnRuns {
  std::vector<OwnRun> taken;
  std::vector<LeftOutRun> left_out;

  void leave_out(const std::string& name, const std::string& reason) {
    std::fprintf(stderr, "orrery: %s left out: %s\n", name.c_str(), reason.c_str());
    left_out.push_back({name, reason});
  }
};

void require_one_stack(const std::vector<OwnRun>& runs, const std::string& place) {
  const std::string &first = runs.front().book.stack().name, &last = runs.back().book.stack().name;
  if (last != first)
    throw InputError(place, "runs of " + first + " and of " + last, "runs of one stack, or --stack");
}

// Of runs that no level of compute, host, network or memory explains.
template <std::size_t N>
void warn_of_misfits(const FactorFit<N>& fit, const char* unit) {
  constexpr double kExplained = 1.2;  // times too much or too little
  for (std::size_t i = 0; i < fit.names.size(); ++i) {
    const double ratio = fit.predicted_after[i] / fit.measured[i];
    if (ratio < kExplained && ratio > 1 / kExplained) continue;
    std::fprintf(
        stderr,
        "orrery: %s: measured %.4g %s, and %.4g %s predicted even with the factors found; are its plan and "
        "its unit right?\n",
        fit.names[i].c_str(), fit.measured[i], unit, fit.predicted_after[i], unit);
  }
}

// What keeps a row from telling how fast its plan is; empty: nothing.
std::string unfit_to_calibrate(const MeasuredRun& row, const MeasuredPlan& plan, bool has_time) {
  if (row.has_failed()) return "it failed";
  if (!has_time) return "no time";
  if (plan.strategies.size() != 1) return "its ways, microbatch or virtual stages are open";
  if (plan.networks.size() != 1) return "its network is open (interconnect)";
  return {};
}

void require_on_card(const OwnRun& run, const std::string& place) {
  Bytes largest;
  for (int stage = 0; stage < run.strategy.pipeline; ++stage)
    largest = std::max(largest, group_of_stage(run.book.cluster(), run.strategy, stage).gpu.memory);
  if (run.peak->gib > to_gibibytes(largest))
    throw InputError(place, to_text(gibibytes(run.peak->gib)) + " in " + run.name,
                     "a peak of one GPU, of at most the " + to_text(largest) + " of its card");
}

OwnRuns runs_of_table(const CommandLine& line, const CostModels& costs) {
  OwnRuns runs;
  std::optional<SoftwareStack> given;
  if (line.has("stack")) given = read_stack_option(line);
  SeenRuns seen;
  const MeasuredTable table = read_measured_option(line);
  for (const MeasuredRun& row : table.runs) {
    if (seen.is_again(row)) {
      runs.leave_out(row.id(), kSecondRow);
      continue;
    }
    const auto mapped = map_run(row, given);
    if (const auto* trouble = std::get_if<Unmapped>(&mapped)) {
      runs.leave_out(row.id(), trouble->reason);
      continue;
    }
    const auto& plan = std::get<MeasuredPlan>(mapped);
    const auto seconds = measured_seconds(row, plan);
    if (const auto why = unfit_to_calibrate(row, plan, seconds.has_value()); !why.empty()) {
      runs.leave_out(row.id(), why);
      continue;
    }
    const ParallelStrategy& s = plan.strategies.front();
    runs.taken.push_back(own_run(row.id(), plan.model, plan.cluster,
                                 {s.type, s.flash_attention, s.sequence, plan.stack}, s, costs));
    StageFitter fitter(runs.taken.back().book);
    if (fitter.worst_verdict(s, fitter.memory_of(s)) == MemoryVerdict::too_big) {
      runs.leave_out(row.id(),
                     "its plan is far too big for its card as it stands: what did it recompute or shard?");
      runs.taken.pop_back();
      continue;
    }
    runs.taken.back().measured = *seconds;
    if (const auto peak = measured_gibibytes(row, plan))
      runs.taken.back().peak = OwnPeak{*peak, measured_figure(row, plan.stack)};
    require_one_stack(runs.taken, line.place("measured"));
  }
  OwnAnswers own;
  std::vector<const ClusterSpec*> clusters;
  for (const OwnRun& run : runs.taken) {
    own += run.book.own_answers();
    clusters.push_back(&run.book.cluster());
  }
  warn_of_silent_costs(line, costs, own, clusters);
  return runs;
}

// The values of an option, one for each plan.
std::vector<std::string> of_each_plan(const CommandLine& line, const char* option, const char* what,
                                      std::size_t plans) {
  std::vector<std::string> values = line.list(option);
  if (values.size() != plans)
    throw InputError(line.place(option), std::to_string(values.size()) + " " + what,
                     "one for each of " + std::to_string(plans) + " --plan");
  return values;
}

template <class Quantity>
Quantity above_zero(const std::string& text, const char* place, const char* what) {
  const Quantity value = parse_quantity<Quantity>(text, place);
  if (!(value > Quantity(0))) throw InputError(place, text, std::string(what) + " above zero");
  return value;
}

MemoryFigure figure_given(const CommandLine& line, const SoftwareStack& stack) {
  const auto said = line.text("memory-figure");
  return said ? parse_memory_figure(*said, line.place("memory-figure")) : stack.memory_figure;
}

std::vector<OwnRun> runs_of_plans(const CommandLine& line, const CostModels& costs) {
  const auto plans = line.list("plan");
  const auto times = of_each_plan(line, "measured-time", "times", plans.size());
  std::vector<std::string> peaks;
  if (line.has("measured-memory")) peaks = of_each_plan(line, "measured-memory", "peaks", plans.size());
  std::vector<OwnRun> runs;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const auto seconds = above_zero<Seconds>(times[i], "--measured-time", "a time");
    PlayableFile file = load_plan(line, plans[i], costs);
    runs.push_back({plans[i], std::move(*file.book), file.strategy(), seconds.value(), {}});
    require_one_stack(runs, plans[i]);
    const PriceBook& book = runs.back().book;
    if (const auto why =
            beyond_data_sheet(book.model(), book.cluster(), runs.back().strategy, seconds.value()))
      throw InputError("--measured-time", times[i] + " of " + plans[i] + ": " + *why,
                       "the time of a whole iteration of this plan");
    if (peaks.empty()) continue;
    const auto bytes = above_zero<Bytes>(peaks[i], "--measured-memory", "a size");
    runs.back().peak = OwnPeak{to_gibibytes(bytes), figure_given(line, runs.back().book.stack())};
    require_on_card(runs.back(), "--measured-memory");
  }
  return runs;
}

}  // namespace

int run_calibrate(const Arguments& arguments) {
  CommandLine line(
      "calibrate",
      "Fits the level of compute, host, network and memory to runs of your own, says which of them the "
      "runs\ndetermine, and writes a software stack for --stack whose intervals are narrower (-o).",
      "orrery calibrate --plan plan.yaml --measured-time 3.2s --measured-memory 61.3GiB -o mine.yaml\n"
      "  orrery search --stack mine.yaml ...");
  line.value("measured", "FILE", "runs of your own (CSV, sim/MEASURED_RUNS.md)")
      .values("plan", "FILE", "a plan that ran; may be repeated")
      .values("measured-time", "TIME", "its time of an iteration, such as 3.2s; one for each --plan")
      .values("measured-memory", "SIZE",
              "the peak of its fullest GPU, such as 61.3GiB; one for each --plan, or none")
      .value("memory-figure", "NAME",
             "which memory that is: allocated or reserved by PyTorch, or all on the card as nvidia-smi says "
             "(what its program reports)")
      .value("stack", "NAME", "the preset to start from, in place of the runs' own")
      .value("costs", "FOLDER", "fitted cost models (`orrery fit`) instead of those in the program")
      .flag("no-contention", "links give every flow their whole bandwidth: the closed-form world");
  declare_layer_profiles(line);
  if (!line.parse(arguments)) return 0;
  if (line.has("measured") == line.has("plan"))
    throw InputError("orrery calibrate", line.has("plan") ? "both --measured and --plan" : "no run",
                     "--measured FILE, or --plan FILE with --measured-time");
  if (line.has("memory-figure") && !line.has("measured-memory"))
    throw InputError(line.place("memory-figure"), "no --measured-memory", "both, or neither");
  const CostModels costs = read_costs(line);
  const OwnRuns runs =
      line.has("measured") ? runs_of_table(line, costs) : OwnRuns{runs_of_plans(line, costs), {}};
  const Calibration result = calibrate(runs.taken, costs);
  if (!line.quiet()) warn_of_misfits(result.time, "s");
  if (!line.quiet() && result.memory) warn_of_misfits(*result.memory, "GiB");
  std::string text = line.json() ? calibration_json(result, runs.left_out) : calibration_text(result);
  if (const auto path = line.text("output")) {
    write_file(*path, calibrated_yaml(result, runs.taken.front().book.stack().preset));
    if (!line.json()) text += "\nstack   " + *path + "\n";
  }
  std::cout << text;
  return 0;
}

}  // namespace orrery
