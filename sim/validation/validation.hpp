// Predicted against published runs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/statistics.hpp"
#include "costmodels/memory/card_memory.hpp"
#include "costmodels/models/cost_models.hpp"
#include "costmodels/trust/intervals.hpp"
#include "sim/measured/measured_plan.hpp"
#include "sim/validation/computed_times.hpp"
#include "traces/layer_profile.hpp"

namespace orrery {

struct ValidationOptions {
  std::optional<SoftwareStack> stack;  // for every run, in place of its framework's own
  bool replay = false;                 // event by event, in place of the estimate
  int jobs = 1;
  // Measured times of layers in place of predicted ones, by group of runs; "" for all groups without one of
  // their own. Runs of shapes that were not measured are left out.
  std::map<std::string, LayerProfile> layers;
  // Changes a mapped plan before it is priced: what an ablation switches off.
  std::function<void(MeasuredPlan&)> change;
};

// A run that was expressed. Where several plans are possible, `predicted` is the geometric mean of the
// fastest and the slowest of them.
struct ValidatedRun {
  std::string id, group;
  // Its GPU, "experts" for a mixture of them, "fp4" or "new kernels" where none like them were measured, and
  // "ZeRO-3" of DeepSpeed.
  std::string kind;
  std::string gpu;        // in the catalog's words, of several kinds "A + B"
  std::int64_t gpus = 0;  // their number
  RunKind trust;
  ErrorBand band;  // by the table that comes with Orrery, or of the calibrated stack
  // Equal for runs of one group, program, GPU, model, number of GPUs, batch, sequence, type and
  // recomputation: their plans compete.
  std::string set;
  std::optional<double> measured;  // s of an iteration; absent where nothing was published, or it failed
  double predicted = 0, low = 0, high = 0;          // s
  std::optional<double> measured_memory;            // GiB, of the fullest GPU
  MemoryFigure memory_figure = MemoryFigure::card;  // which one its source reports
  double predicted_memory = 0;                      // GiB, of that figure
  StageMemory memory;                               // of the stage that has the most in that figure
  bool failed = false;                          // out of memory, or stopped for a reason nobody wrote down
  bool out_of_memory = false;                   // of those, the ones of which the source says so
  MemoryVerdict verdict = MemoryVerdict::fits;  // of the fullest stage
  double fullness = 0;                          // of its card
  std::vector<std::string> assumptions;
  std::vector<FilledCell> filled;
};

// At least as wide as what the facts that its row leaves open make of its time.
ErrorBand over_open_facts(ErrorBand, const ValidatedRun&);

struct SkippedRun {
  std::string id, group, reason;
};

struct Validation {
  std::vector<ValidatedRun> runs;  // in the order of the table
  std::vector<SkippedRun> skipped;
  std::vector<std::string> remarks;     // on the table that they are of
  std::vector<ComputedTimes> computed;  // groups that were not measured: intervals do without them
  std::vector<ClusterSpec> clusters;    // that were priced
  OwnAnswers own;                       // on all of them
};

Validation validate(const std::vector<MeasuredRun>&, const CostModels&, const ValidationOptions&);

struct GroupAccuracy {
  std::string name;
  std::size_t runs = 0, groups = 0;  // with a time
  ErrorSummary errors;
  double spearman = 0;     // NaN where there is nothing to rank
  double mean_regret = 0;  // of the plan predicted fastest, over the sets of competing plans
  std::size_t sets = 0;    // of two plans or more
};

struct MemoryAccuracy {
  std::size_t runs = 0;
  ErrorSummary errors;
  // Failed and predicted risky or too big; ran and predicted too big; out of memory by its source and
  // predicted to fit.
  std::size_t true_positive = 0, false_positive = 0, false_negative = 0;
  std::size_t unexplained = 0;  // failed, nobody wrote down why, and predicted to fit
  std::size_t risky = 0;        // ran, and predicted risky
};

using RunFilter = std::function<bool(const ValidatedRun&)>;
GroupAccuracy accuracy(const Validation&, const RunFilter&);  // without a name
MemoryAccuracy memory_accuracy(const Validation&, const RunFilter&);
// Of one group, or of all runs where `group` is empty; of one kind of runs, or of all where `kind` is empty.
GroupAccuracy accuracy(const Validation&, const std::string& group, const std::string& kind = {});
std::vector<std::string> kinds_of(const Validation&, const std::string& group);  // of runs with a time
MemoryAccuracy memory_accuracy(const Validation&, const std::string& group);
std::vector<std::string> groups_of(const Validation&);  // in the order of the table

// Cell that rows leave blank, and what it was taken for -> how many runs each of its sources filled so.
using FilledCounts = std::map<std::pair<std::string, std::string>, std::map<std::string, std::size_t>>;
FilledCounts filled_counts(const Validation&);

}  // namespace orrery
