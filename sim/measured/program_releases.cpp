#include "sim/measured/program_releases.hpp"

#include "sim/measured/measured_dates.hpp"
#include "sim/measured/measured_names.hpp"

namespace orrery {
namespace {

constexpr double kUntilPaper = 0.4;  // years between code and paper (assumption)

// Whether the program of a run is from a date on or later, as far as it says any.
bool is_since(double change, const MeasuredRun& run) {
  return date_of_program(run) >= change + (names_its_date(run) ? 0 : kUntilPaper);
}

// Before a date, where it says any.
bool is_before(double change, const MeasuredRun& run) {
  const double date = date_of_program(run);
  return date > 0 && date < change;
}

bool is_on(const MeasuredRun& run, const char* column) {
  return run.text(column).starts_with("yes");
}

}  // namespace

const char* megatron_core_release(const MeasuredRun& run) {
  constexpr double kOverlapsByArgument = 2025;  // what a run of 2024 does not name it did not have
  return is_before(kOverlapsByArgument, run) ? "megatron-core-2024" : "megatron-core-defaults";
}

const char* megatron_lm_release(const MeasuredRun& run) {
  constexpr double kScatterGather = 2021.22;  // 21 March 2021
  constexpr double kSequenceParallelism =
      2022;                             // arXiv 2205.05198, which also brought selective recomputation
  constexpr double kFlash = 2023;       // FlashAttention
  constexpr double kOverlaps = 2023.8;  // September to November 2023
  const double date = date_of_program(run);
  if (is_since(kOverlaps, run)) return megatron_core_release(run);
  if (date >= kFlash) return "megatron-lm-2023";
  if (multiplies_in_fp8(run) || is_on(run, "flash_attn")) return "megatron-core-defaults";
  const bool selective = run.text("recompute").starts_with("selective");
  if (date >= kSequenceParallelism || selective || is_on(run, "sequence_parallel")) return "megatron-lm-2022";
  return is_before(kScatterGather, run) ? "megatron-lm-2020" : "megatron-lm-2021";
}

const char* megatron_deepspeed_release(const MeasuredRun& run) {
  constexpr double kRebased = 2023.5;  // deepspeedai/Megatron-DeepSpeed 7f7cea32 of 12 July 2023
  return is_since(kRebased, run) ? "megatron-deepspeed-2023" : "megatron-deepspeed";
}

const char* deepspeed_zero3_release(const MeasuredRun& run) {
  constexpr double kGathersAhead = 2022;  // DeepSpeed's commit 4912e0ad
  return date_of_program(run) >= kGathersAhead ? "deepspeed-zero3-2022" : "deepspeed-zero3";
}

const char* nanotron_release(const MeasuredRun& run) {
  constexpr double kGathersAgain = 2024.545;  // 17 July: tp_recompute_allgather
  return is_before(kGathersAgain, run) ? "nanotron-2024" : "nanotron";
}

const char* oneflow_release(const MeasuredRun& run) {
  const bool in_ways = run.integer("tp").value_or(1) * run.integer("pp").value_or(1) > 1;
  return in_ways ? "oneflow-ways" : "oneflow";
}

const char* nemo_release(const MeasuredRun& run) {
  constexpr double kFusedAttention =
      2024.65;  // its launcher left cuDNN's attention on (stacks.yaml, nemo-24.07)
  if (architecture_of(run).starts_with("Blackwell")) return "nemo-graphs";
  return is_before(kFusedAttention, run) ? "nemo-24.07" : "nemo-24.12";
}

}  // namespace orrery
