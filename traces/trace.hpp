// One run, whole: what was run, what happened, where the time went, what it held and what it cost
// (DESIGN 2.7).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "platforms/units.hpp"
#include "traces/accounting.hpp"
#include "traces/timeline.hpp"

namespace orrery {

inline constexpr const char* kTraceFormatVersion = "1";

// Says what was run: "tool_version", "command_line", "seeds", "plan", ... Names are unique, order is kept.
// The format version is not among them: the writer adds it and the reader checks it.
struct RunAttribute {
  std::string name;
  std::string value;
  bool operator==(const RunAttribute&) const = default;
};

// Bytes one GPU of a stage holds (SEMANTICS 8).
struct MemoryRow {
  int stage = 0;
  Bytes weights;
  Bytes gradients;
  Bytes optimizer;
  Bytes activations_peak;
  Bytes logits;
  Bytes communication;
  Bytes reserve;
  std::optional<Bytes> capacity = {};  // of the card; absent where the GPU is not known
  int kind = 0;                        // of replica: replicas on unlike GPUs have rows of their own
  std::string gpu = {};                // name; empty where it is not known, as below
  std::string verdict = {};            // "fits", "risky" or "too big"

  [[nodiscard]] Bytes total() const {
    return weights + gradients + optimizer + activations_peak + logits + communication + reserve;
  }
  bool operator==(const MemoryRow&) const = default;
};

// From `time` until the next row of the stage, its live activations take `bytes`. Sorted by stage, then time.
struct MemoryCurve {
  std::vector<std::int16_t> stage;
  std::vector<double> time;   // s
  std::vector<double> bytes;  // on one GPU

  [[nodiscard]] std::size_t size() const { return stage.size(); }
  bool operator==(const MemoryCurve&) const = default;
};

// Activations of a microbatch live from the start of its forward to the end of its backward:
// `bytes[stage][chunk]`. Where its weight gradient is a span of its own, `for_weights[stage][chunk]` are left
// until that ends. The first rank of each stage stands for its replicas. At one instant what ends is freed
// before what starts is allocated.
MemoryCurve activation_curve(const Timeline&, const std::vector<std::vector<Bytes>>& bytes,
                             const std::vector<std::vector<Bytes>>& for_weights);

struct TraceCost {
  std::optional<double> gpu_hours = {};  // of one iteration; absent where the GPUs are not known
  std::optional<DollarsPerHour> price =
      {};  // of all nodes together; absent where a price is not known, as all below
  std::optional<Dollars> per_iteration = {};
  std::optional<Dollars> per_million_tokens = {};
  std::optional<Dollars> whole_run = {};
  bool operator==(const TraceCost&) const = default;
};

struct Trace {
  std::vector<RunAttribute> run;
  Seconds iteration;  // one, in the steady state; the timeline and its accounting are of all that were played
  // Model FLOPs, and those of the spans, of an iteration over the peak of the GPUs; absent where it is
  // unknown.
  std::optional<double> mfu, hfu;
  Timeline timeline;
  RunAccounting accounting;
  std::vector<MemoryRow> memory;
  MemoryCurve activations;
  TraceCost cost;
  bool operator==(const Trace&) const = default;
};

// The value of a run attribute; empty when there is none of that name.
std::string run_attribute(const Trace&, std::string_view name);

// HDF5, format version 1. The file appears under its name complete or not at all. Throws InputError naming
// the path when it cannot be written.
void write_trace(const std::string& path, const Trace&);

// Throws InputError naming the path, and the column where one is to blame, for a file that is missing,
// damaged, of another kind or of another format version.
Trace read_trace(const std::string& path);

}  // namespace orrery
