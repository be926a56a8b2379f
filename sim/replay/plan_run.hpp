// One plan replayed: what comes out for people, for JSON and for the trace file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodels/memory/memory.hpp"
#include "costmodels/money/interruptions.hpp"
#include "costmodels/money/money.hpp"
#include "costmodels/plans/price_book.hpp"
#include "costmodels/trust/intervals.hpp"
#include "sim/bounds/memory_outlook.hpp"
#include "sim/replay/run_replay.hpp"
#include "strategies/strategy.hpp"
#include "traces/trace.hpp"

namespace orrery {

// Dense peak of all GPUs of the plan's stages, in its type; zero of those without one.
FlopsPerSecond peak_of(const ClusterSpec&, const ParallelStrategy&);

// What follows from the time of an iteration.
struct Totals {
  Seconds iteration;
  double tokens_per_s = 0;
  // Model FLOPs (SEMANTICS 5) over the dense peak of all GPUs of the plan's stages: with full attention, and
  // with half of a causal model's.
  double mfu = 0, mfu_causal = 0;
  double hfu = 0;  // the same of what the GPUs do: recomputation too, of attention what its kernel does
  std::optional<Seconds> total_time;  // of the whole job; absent when its tokens were not said
  Interruptions interruptions;        // which the time and the cost of the whole job include
  std::optional<RunCost> cost;        // absent where a price is not known
  double kwh_per_iteration = 0;
  std::optional<double> kwh_total;  // of the whole job
};
// `total_tokens` 0: only one iteration is looked at; cost then has no meaning for the whole job.
Totals totals(const PriceBook&, const ParallelStrategy&, Seconds iteration, double total_tokens);

// Where the true time lies in nine runs of ten of its kind (costmodels/trust/intervals.hpp), or under a
// calibrated stack (calibrated_band).
struct TimeRange {
  Seconds low, high;
};
TimeRange interval(const ErrorBand&, Seconds iteration);

// The part of a replay that goes from a child process to its parent.
struct ReplaySummary {
  double iteration_s = 0;
  double makespan_s = 0;  // of all iterations played
  double estimate_s = 0;
  double bubble_fraction = 0;
  double imbalance_s = 0;
  double elapsed_s = 0;  // of the replay itself; not part of files
  std::uint64_t activities = 0;
  std::vector<StageAccounting> stages;
  std::vector<double> runs;  // s, iteration times under noise; empty for a single run
};

// Mean, standard deviation and quantiles of runs, s.
struct Spread {
  double mean = 0, deviation = 0, p05 = 0, p50 = 0, p95 = 0;
};
Spread spread_of(const std::vector<double>& runs);
ReplaySummary summarize(const ReplayResult&, double elapsed_s);

// A file or folder that was read, or what the program has under a built-in name.
struct InputDigest {
  std::string name;  // as given
  std::string sha256;
};

// Attributes of /run that hold for every plan of one command.
struct RunOrigin {
  std::string command_line;
  std::uint64_t seed = 1;
  std::vector<InputDigest> inputs;
  std::string model;         // as given
  std::string cluster;       // as given
  std::string stack;         // likewise; empty: the default
  std::string model_digest;  // SHA-256 of the model as read
  std::string cost_models;   // digest
};

// What was replayed; `book` and `strategy` absent: explicit durations, whose MFU and money are null.
struct ReplayedPlan {
  const PriceBook* book = nullptr;
  const ParallelStrategy* strategy = nullptr;
  double total_tokens = 0;
  ErrorBand band = {};
  const std::vector<StageMemory>* memory = nullptr;  // [kind * P + stage]
  MemoryOutlook memory_outlook = {};
  std::vector<std::string> extrapolated = {};  // PriceBook
};

// The trace of a replayed plan. `replay` is moved from.
Trace make_trace(const ReplayedPlan&, ReplayResult& replay, const RunOrigin&);
// The trace of explicit durations: no memory, no money.
Trace make_trace(ReplayResult& replay, const RunOrigin&);

}  // namespace orrery
